"""TileLang's names that tileops does not have; using one raises an error."""

from __future__ import annotations

from dataclasses import dataclass

from tileops.errors import UnsupportedConstructError
from tileops.language.missing import by_name
from tileops.language.tracer import active_tracer

_REASONS = by_name("""
a raw pointer <- access_ptr address_of handle match_buffer tvm_access_ptr
C or CUDA source text <- import_source CUDASourceCodeKernel call_extern call_intrin call_pure_extern
    call_pure_intrin
a barrier <- alloc_barrier alloc_cluster_barrier mbarrier_wait_parity mbarrier_arrive barrier_arrive
    barrier_wait mbarrier_expect_tx mbarrier_arrive_expect_tx cp_async_barrier_noinc
    named_barrier_arrive named_barrier_sync ptx_arrive_barrier ptx_init_barrier_thread_count
    ptx_wait_barrier ptx_arrive_barrier_expect_tx create_list_of_mbarrier get_mbarrier
Blackwell tensor memory <- alloc_tmem deallocate_tmem tcgen05_gemm tcgen05_mma_arrive
    tcgen05_gemm_blockscaled tcgen05_cp_warpx4 tcgen05_sf_warp_transpose tcgen05_before_thread_sync
    tcgen05_after_thread_sync mma_gemm_blockscaled
an asynchronous copy or gemm <- async_copy tma_copy tma_load tma_load_2sm tma_store tma_gather4
    tma_scatter4 tma_store_wait tma_store_arrive create_tma_descriptor ptx_cp_async ptx_wait_group
    ptx_commit_group fence_proxy_async wgmma_gemm wait_wgmma warpgroup_arrive warpgroup_commit_batch
    warpgroup_wait
warp specialisation <- set_max_nreg WSSchedule WSRole WSPipeline WSScope WSInstr WSSync
    annotate_ws_schedule ws_op WSID
a cluster of blocks <- ClusterKernel block_rank_in_cluster cluster_sync cluster_arrive
    cluster_arrive_relaxed cluster_wait copy_cluster clc_try_cancel clc_try_cancel_multicast
    clc_is_canceled clc_get_first_ctaid_x clc_get_first_ctaid_y clc_get_first_ctaid_z
the sparse tensor cores <- gemm_sp gemm_sp_v2
a thread index <- launch_thread get_lane_idx get_warp_idx get_warp_idx_sync get_warp_group_idx
    shuffle_elect
a synchronisation of threads <- sync_warp sync_grid syncthreads_or syncthreads_and syncthreads_count
    tvm_storage_sync
an exchange between threads <- shfl_sync shfl_xor shfl_up shfl_down shfl_xor_sync shfl_up_sync
    shfl_down_sync tvm_warp_shuffle tvm_thread_allreduce comm_reducer warp_reduce_sum
    warp_reduce_max warp_reduce_min warp_reduce_bitand warp_reduce_bitor any_sync all_sync
    ballot_sync ballot activemask match_any_sync match_all_sync
an instruction of one thread <- ldg32 ldg64 ldg128 ldg256 stg32 stg64 stg128 stg256 lds32 lds64
    lds128 sts32 sts64 sts128 __ldg
vector arithmetic <- Ramp Broadcast vectorlow vectorhigh
a random number generator <- rng_init rng_rand rng_rand_float
TIR <- evaluate attr alloc_buffer block reads writes block_attr Buffer buffer_store decl_buffer
    While let LetStmt func_attr preflattened_buffer allocate axis q_multiply_shift
""")
VECTOR_TYPE = "a vector type"
_VECTOR_BASES = ("bool", "int", "uint", "float", "bfloat")


def on_which_target() -> str:
    """The end of a refusal, with the target of the trace if it is known; no target has these."""
    tracer = active_tracer()
    target = tracer.target if tracer is not None else None
    return ", on any target" if target is None else f" on target {target}, nor on any other"


@dataclass(eq=False, repr=False)
class UnsupportedName:
    """A construct that tileops does not have; using it raises UnsupportedConstructError."""

    name: str
    reason: str

    def error(self) -> UnsupportedConstructError:
        """The error for using this name, at the statement being traced."""
        return UnsupportedConstructError(
            f"T.{self.name} ({self.reason}) is not supported by tileops{on_which_target()}"
        )

    def describe(self) -> str:
        """The name as the user writes it."""
        return f"T.{self.name}"

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Raise the error."""
        raise self.error()

    def __getitem__(self, key: object) -> object:
        raise self.error()

    def __repr__(self) -> str:
        return f"<unsupported T.{self.name}>"


def lookup(name: str) -> UnsupportedName | None:
    """The stand-in for a name of the language that tileops does not have; None for others."""
    if name in _REASONS:
        return UnsupportedName(name, _REASONS[name])
    base, separator, lanes = name.rpartition("x")
    if separator and lanes.isdigit() and base.startswith(_VECTOR_BASES):
        return UnsupportedName(name, VECTOR_TYPE)
    return None


def all_names() -> tuple[str, ...]:
    """Every name that is known and not supported, sorted."""
    return tuple(sorted(_REASONS))

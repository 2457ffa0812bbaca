"""Names that the language does not have, TileLang's too, and what to write for other languages'."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tileops.errors import ProgramAttributeError, UnsupportedConstructError
from tileops.language.tracer import active_tracer
from tileops.language.value import describe

# What to write, the end of a sentence, for each name of another language.
INSTEAD = """
# -- tiles and memory
T.gemm(a, b, c) adds the product of the tiles a and b to the fragment c <- dot matmul mm bmm addmm
    mma einsum tensordot inner outer vdot dot_general mmul product matmul_scaled dot_scaled wmma
    mma_sync gemm_v1 gemm_v2
T.copy(A[row, column], tile) loads a tile; one element is A[i, j] <- load ld load_tile block_load
    async_load read load_matrix ldmatrix load_matrix_sync lds ldg memcpy memcpy_async copy_async
    cp_async load_async descriptor_load tensor_load gload make_block_ptr make_tensor_descriptor
    make_tensor_ptr block_ptr advance load_tensor prefetch
T.copy(tile, B[row, column]) stores a tile; one element is set by B[i, j] = value <- store st
    store_tile block_store write store_matrix stmatrix store_matrix_sync sts stg copy_out
    descriptor_store tensor_store gstore assign set set_item scatter_tile
T.alloc_fragment(shape, dtype) makes a tile and T.clear(tile) sets it to 0 <- zeros zeros_like
    new_zeros init_zeros accumulator
T.alloc_fragment(shape, dtype) makes a tile and T.fill(tile, value) sets it <- full ones full_like
    ones_like new_full new_ones constant splat const_tile
T.empty(shape, dtype) makes an output, and A.shape and A.dtype give another's <- empty_like
    new_empty output alloc_output alloc_out empty_strided
T.alloc_shared(shape, dtype) makes a tile in shared memory <- shared smem SharedMemory shared_memory
    alloc_smem local_alloc __shared__ shared_array alloc_shared_memory Shared allocate_shared
T.alloc_fragment(shape, dtype) makes a tile in registers <- alloc alloc_register alloc_registers
    registers rmem alloc_rmem register_tile fragment alloc_tile tile_alloc wmma_fragment alloc_frag
    new_tile alloc_matrix
T.alloc_var(dtype, init) makes a scalar that changes <- var variable scalar alloc_scalar local_var
    mutable alloc_variable
T.alloc_global(shape, dtype) makes memory that the launches of a call share <- workspace
    alloc_workspace scratch global_memory alloc_gmem
# -- indices and launches
the index is that of `for i, j in T.Parallel(m, n)` <- arange iota mgrid meshgrid indices ogrid
    linspace program_offsets tile_index broadcasted_iota
the block's index is bx of `with T.Kernel(n) as bx`, or T.get_block_binding(0) <- program_id pid
    blockIdx block_idx block_id blockidx get_program_id get_block_id cta_id ctaid block_index bid
    get_group_id workgroup_id
the number of blocks is what T.Kernel(n) was given <- num_programs gridDim grid_dim num_blocks
    griddim get_num_programs nctaid
threads are not named one by one; T.Parallel(n) spreads its rounds over them, and
    T.get_thread_binding() gives an index where one is needed <- threadIdx thread_idx thread_id
    threadidx tid lane_id laneid warp_id thread_index get_thread_id local_id get_local_id
the number of threads is that of T.Kernel(n, threads=128) <- blockDim block_dim num_threads blockdim
    num_warps warpSize warp_size WARP_SIZE threads thread_count launch_bounds __launch_bounds__
T.sync_threads() waits for the block's threads; between tile operations nothing is needed <- sync
    syncthreads __syncthreads barrier debug_barrier block_sync threadfence sync_block __syncwarp
    syncwarp synchronize fence thread_barrier block_barrier membar
`with T.Kernel(grid) as bx` is the launch, and T.Parallel goes over a tile <- tile tiles kernel
    program block_program launch_kernel launch_grid Grid
`@tileops.jit` makes a program of a function <- jit kernel_function func function autotune compile
    Config Function triton_jit
a parameter with a default, such as n: int = 64, is known at compile time; T.const is a size of a
    tensor <- constexpr Constexpr compile_time static specialize comptime register_block_size
    register_tunable
# -- loops and branches
`for k in range(n)` or T.serial(n) is a loop in order <- range static_range for_range fori_loop For
    for_ loop sequential prange tile_range for_loop loop_range arange_loop seq scf_for
`for k in T.Pipelined(n, num_stages=3)` overlaps copies with computing <- pipeline pipelined_range
    software_pipeline pipelining
`while`, `for` and `if` are written as in Python <- while_loop WhileLoop scan map vmap cond switch
    ifelse if_else If Else associative_scan fori while_
T.if_then_else(cond, a, b), or `a if cond else b`, is for one element <- where Where ternary iif
    select if_then if_else_then masked_fill choose blend
# -- reductions
T.reduce_sum(tile, out, dim=1) sums along a dimension <- sum Sum reduce_add add_reduce nansum
    sum_reduce row_sum block_sum
T.reduce_max(tile, out, dim=1) takes the greatest along a dimension <- amax nanmax max_reduce
    row_max block_max reduce_maximum
T.reduce_min(tile, out, dim=1) takes the least along a dimension <- amin nanmin min_reduce row_min
    block_min reduce_minimum
T.reduce_sum(tile, out, dim=1), then out[i] / n, is the mean <- mean average nanmean avg reduce_mean
T.reduce_sum of the values and of their squares gives the variance <- var_mean std variance norm
    layer_norm rms_norm l2norm batch_norm var_reduce
T.argmax(tile, out, dim=1) gives the place of the greatest along a dimension <- argreduce
    max_with_index nanargmax
T.argmin(tile, out, dim=1) gives the place of the least along a dimension <- nanargmin
T.reduce_max, T.exp(x - top[i]) and T.reduce_sum make a softmax <- softmax log_softmax logsumexp
    online_softmax
`for k in T.serial(n)` with a T.alloc_var carries a value from one round to the next <- prod cumprod
    reduce_prod reduce_mul product_reduce fold accumulate
# -- elements
T.cast(x, dtype) or x.astype(dtype) converts <- astype to convert type as_type typecast static_cast
    to_dtype type_as
T.reinterpret(x, dtype) reads the bits of a value as another dtype <- bitcast bitcast_convert_type
    view_as as_float as_int __float_as_int __int_as_float
T.max(a, b) takes the greater <- fmax fmaxf imax max_ maximumf
T.min(a, b) takes the less <- fmin fminf imin min_ minimumf
T.abs(x) is the absolute value <- absolute fabs fabsf magnitude
T.clamp(x, low, high) keeps a value between two <- clip clamp_ saturate __saturatef
T.pow(x, y), or x ** y, is the power <- power powf powi float_power
T.max(x, 0) is relu <- relu relu6 leaky_relu threshold
x * T.sigmoid(x) is silu <- silu swish hardswish
0.5 * x * (1 + T.erf(x * 0.7071067811865476)) is gelu <- gelu quick_gelu
T.log1p(T.exp(x)) is softplus <- softplus mish logaddexp
T.exp(x) - 1 is expm1 <- expm1 expm1f elu selu
T.nearbyint(x) rounds to the nearest integer <- rint rintf lrint __float2int_rn
1 / x is the reciprocal <- reciprocal rcp frcp __frcp_rn inv
write the operator: + - * / // % & | ^ << >> <- add sub subtract mul multiply div divide true_divide
    fdiv truediv floor_divide floor_div idiv mod remainder neg negative bitwise_shift lshift rshift
    square sqr equal not_equal greater less greater_equal less_equal eq ne lt le gt ge negate mulhi
    umulhi xor bit_and bit_or bit_xor logical_xor
write `and`, `or` and `not` <- land lor lnot logical
T.if_then_else(x > 0, 1, -1) gives a sign <- sign sgn signbit
T.exp, T.log, T.sin and the like take every float dtype <- expf exp2f logf log2f log10f sqrtf rsqrtf
    sinf cosf tanf tanhf fmaf __expf __logf __sinf __cosf fast_exp fast_tanh fast_math erff floorf
    ceilf libdevice math extra
T.infinity(dtype) is infinity, and T.max_value(dtype) the greatest number <- inf Inf INFINITY finfo
    iinfo FLT_MAX float_max nan pi
T.atomic_add(B[i], value) adds atomically <- atomicAdd atomic_sub atomicSub atomic_inc atomicInc
    atomic_fetch_add red_add index_add scatter_add
T.atomic_max(B[i], value) takes the greater atomically <- atomicMax atomic_fmax
T.atomic_min(B[i], value) takes the less atomically <- atomicMin atomic_fmin
there are T.atomic_add, T.atomic_max, T.atomic_min, T.atomic_or, T.atomic_load and T.atomic_store <-
    atomic_cas atomic_xchg atomic_and atomic_xor atomicCAS atomicExch atomicAnd atomicOr atomicXor
    atomic_exch atomic
# -- shapes
T.transpose(tile, other) swaps the last two dimensions; T.gemm takes transpose_A and transpose_B <-
    trans permute swapaxes t swap_dims moveaxis movedim transpose_tile
an index that is left out broadcasts, as in tile[i, j] * row[j] <- broadcast broadcast_to
    expand_dims unsqueeze squeeze expand repeat expand_as newaxis broadcast_to_tile bcast None_
    broadcast_tensors
T.reshape(tile, shape) is another shape of the same storage <- ravel flatten view_shape as_strided
    reshape_tile unflatten
T.copy(a, out[0:n, :]) puts a tile into a part of another <- cat concat concatenate stack hstack
    vstack join split chunk interleave slice insert_slice extract_slice dynamic_slice
    dynamic_update_slice narrow pad block_slice
indices may be read from a tensor: A[index[i], j] in a T.Parallel loop <- gather scatter take
    index_select take_along_axis embedding gather_tile put index_put
indices are computed in a T.Parallel loop: A[n - 1 - i] <- flip roll rot90 fliplr flipud rev
T.if_then_else(i >= j, x, 0) in a T.Parallel loop masks <- tril triu mask causal_mask masked_select
    masked_load masked_store eye diag identity
# -- looking and checking
T.print(value, msg) prints when the kernel runs, Python's print while it is recorded <- printf
    device_print static_print debug_print print_tensor trace_print log_print cuPrintf
`assert cond` checks sizes, T.device_assert(cond, msg) values of the kernel <- static_assert assert_
    Assert check expects require
T.assume(x % 16 == 0) tells the compiler what holds <- multiple_of max_contiguous max_constancy hint
    likely unlikely __builtin_assume assume_aligned builtin_assume
T.use_swizzle(10) walks the grid in panels <- swizzle2d swizzle grid_swizzle rasterization
T.align_up(x, 16) rounds up to a multiple; Python computes powers of known sizes <- next_power_of_2
    next_pow2 round_up roundup pad_to next_power_of_two
T.rng_init and T.rng_rand_float draw random numbers, or a tensor has them <- rand randn randint
    uniform normal dropout philox randint4x random seed bernoulli rand4x
torch sorts better; a program may work on what it gives <- sort argsort topk unique histogram
    searchsorted bincount nonzero bisect median quantile
# -- dtypes
the dtype is T.float16 <- f16 fp16 half_t float16_t Float16 __half
the dtype is T.float32 <- f32 fp32 float32_t single Float32 float_
the dtype is T.float64 <- f64 fp64 float64_t Float64
the dtype is T.bfloat16 <- bf16 bfloat16_t BFloat16 __nv_bfloat16
the dtype is T.float8_e4m3fn <- float8e4nv fp8e4m3 fp8_e4m3 e4m3 f8e4m3 Float8E4M3FN
the dtype is T.float8_e5m2 <- float8e5 fp8e5m2 fp8_e5m2 e5m2 f8e5m2 Float8E5M2
the dtype is T.int8 <- i8 int8_t Int8 char schar
the dtype is T.int16 <- i16 int16_t Int16
the dtype is T.int32 <- i32 int32_t Int32 int_ integer
the dtype is T.int64 <- i64 int64_t Int64 long_
the dtype is T.uint8 <- u8 uint8_t Uint8 byte uchar
the dtype is T.uint16 <- u16 uint16_t Uint16
the dtype is T.uint32 <- u32 uint32_t Uint32
the dtype is T.uint64 <- u64 uint64_t Uint64
the dtype is T.bool <- bool_ int1 i1 boolean Boolean
"""

# The same for attributes of a buffer, a slice or a value.
OF_A_VALUE = """
x.astype(dtype), or T.cast(x, dtype), converts an element <- to type float half double int long
    short bool bfloat16 type_as convert cast_to
T.reinterpret(x, dtype) reads the bits of an element as another dtype <- bitcast
a value is known only when the kernel runs; T.print(x) shows it <- item tolist numpy cpu
T.copy(A[i, j], tile) loads from it, and A[i, j] is an element <- load copy_from copy
T.copy(tile, A[i, j]) stores to it, and A[i, j] = value sets an element <- store copy_ copy_to set
    put save store_to write
T.fill(tile, value) and T.clear(tile) set it <- fill fill_ zero_ zeros clear memset
T.reduce_sum(tile, out, dim=1) sums along a dimension <- sum mean reduce
T.reduce_max(tile, out, dim=1) takes the greatest along a dimension <- max amax
T.reduce_min(tile, out, dim=1) takes the least along a dimension <- min amin
T.argmax(tile, out, dim=1) and T.argmin give the place along a dimension <- argmax argmin
T.transpose(tile, other) swaps the last two dimensions <- T t mT transpose permute swapaxes
T.view(tile, shape) and T.reshape(tile, shape) give another shape <- view reshape flatten ravel
    squeeze unsqueeze expand broadcast_to
its extents are in shape, as A.shape[0] <- size numel nelement len length dim dims rank
it is contiguous unless the program declares strides; jit(contiguous="copy") copies others <-
    contiguous
code is made without a device at hand; make what depends on it a compile-time parameter <- device
    is_cuda get_device
the tensor itself is what a kernel takes as a pointer <- data_ptr
T.empty makes an output of a program, T.alloc_global a workspace <- new_empty empty_like
    new_zeros new_full
T.gemm(a, b, c) adds the product of two tiles to a fragment <- dot matmul mm bmm
the functions are those of T, as T.exp(x) of an element <- abs exp log sqrt rsqrt sin cos tanh
    sigmoid relu pow clamp clip floor ceil round maximum minimum
atomics are T.atomic_add(A[i], value) and the like <- atomic_add atomicAdd add_ atomic
"""


def by_name(table: str) -> dict[str, str]:
    """The texts of a table of ``text <- names`` by name; an indented line goes on with an entry."""
    entries = re.sub(r"\n +", " ", re.sub("#.*", "", table)).split("\n")
    parts = [entry.partition(" <- ") for entry in entries]
    return {name: text for text, _, names in parts for name in names.split()}


def unmangled(name: str) -> Iterator[str]:
    """The names that Python may have mangled into ``name``: ``__exp`` for ``_Class__exp``."""
    if name.startswith("_"):
        start = name.find("__", 2)
        while start > 0:
            yield name[start:]
            start = name.find("__", start + 1)


# Below this likeness is chance: `dot` is like `Not` by 0.67, and `cleer` like `clear` by 0.8.
_ALIKE = 0.7


def nearest(name: str, among: Iterable[str]) -> str | None:
    """The name of ``among`` that ``name`` is most like, capitals aside; None for none."""
    import difflib

    by_lower = {known.lower(): known for known in among}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_ALIKE)
    return by_lower[found[0]] if found else None


def unknown_construct(name: str, known: Iterable[str]) -> ProgramAttributeError:
    """The error for ``T.<name>``, at the statement being traced."""
    instead = by_name(INSTEAD).get(name) or by_name(INSTEAD).get(name.lower())
    like = None if instead else nearest(name, known)
    return ProgramAttributeError(
        f"the tile language has no name {name!r}" + _meant(like and f"T.{like}", instead)
    )


def is_of_the_language(holder: object) -> bool:
    """True for a class of the language and for a value of one."""
    owner = holder if isinstance(holder, type) else type(holder)
    return owner.__module__.startswith("tileops.language")


def unknown_attribute(holder: object, name: str) -> ProgramAttributeError:
    """The error for ``holder.<name>``, where ``holder`` is a value of the language."""
    instead = None if isinstance(holder, (type, str)) else by_name(OF_A_VALUE).get(name)
    like = None if instead else nearest(name, (n for n in dir(holder) if not n.startswith("_")))
    what = f"T.{holder.__name__}" if isinstance(holder, type) else describe(holder)
    return ProgramAttributeError(f"{what} has no attribute {name!r}" + _meant(like, instead))


def _meant(like: str | None, instead: str | None) -> str:
    if instead:
        return f"; {instead}"
    return f"; did you mean {like}?" if like else ""


# -- TileLang's names that raise an error once they are used ---------------------------------------
_REASONS = by_name("""
a raw pointer <- handle match_buffer tvm_access_ptr
C or CUDA source text <- CUDASourceCodeKernel call_intrin call_pure_extern
    call_pure_intrin
a barrier <- alloc_cluster_barrier named_barrier_sync ptx_arrive_barrier
    ptx_init_barrier_thread_count ptx_wait_barrier ptx_arrive_barrier_expect_tx
    create_list_of_mbarrier get_mbarrier
Blackwell tensor memory <- alloc_tmem deallocate_tmem tcgen05_gemm tcgen05_mma_arrive
    tcgen05_gemm_blockscaled tcgen05_cp_warpx4 tcgen05_sf_warp_transpose tcgen05_before_thread_sync
    tcgen05_after_thread_sync mma_gemm_blockscaled
an asynchronous copy or gemm <- tma_load tma_load_2sm tma_store tma_gather4 tma_scatter4
    create_tma_descriptor warpgroup_arrive warpgroup_commit_batch warpgroup_wait
warp specialisation <- WSSchedule WSRole WSPipeline WSScope WSInstr WSSync annotate_ws_schedule
    ws_op WSID
cluster launch control <- clc_try_cancel clc_try_cancel_multicast clc_is_canceled
    clc_get_first_ctaid_x clc_get_first_ctaid_y clc_get_first_ctaid_z
the sparse tensor cores <- gemm_sp gemm_sp_v2
a thread index <- launch_thread
a synchronisation of threads <- tvm_storage_sync
an instruction of one thread <- ldg32 ldg64 ldg128 ldg256 stg32 stg64 stg128 stg256 lds32 lds64
    lds128 sts32 sts64 sts128 __ldg
vector arithmetic <- Ramp Broadcast vectorlow vectorhigh
TIR <- alloc_buffer block reads writes block_attr buffer_store decl_buffer
    While let LetStmt func_attr preflattened_buffer allocate axis q_multiply_shift
""")
# Reason to what a program may write instead.
INSTEAD_OF = {
    "a raw pointer": "pass the tensor; T.make_tensor makes one of an address",
    "C or CUDA source text": "T.Extern launches a kernel of tileops.cuda(source), and T.cast, "
    "T.reinterpret, T.vectorized and T.dp4a are what such text mostly does",
    "a barrier": "T.alloc_barrier, T.barrier_arrive and T.barrier_wait",
    "Blackwell tensor memory": "T.gemm into a fragment, which Triton keeps there on sm_100",
    "an asynchronous copy or gemm": "T.copy and T.gemm in T.Pipelined, or T.tma_copy and "
    "T.wgmma_gemm with barriers",
    "warp specialisation": "T.Pipelined, which divides a block by itself on sm_90, or T.ws",
    "cluster launch control": "T.Persistent, whose blocks take tiles in a fixed order",
    "the sparse tensor cores": "T.gemm of unpacked tiles",
    "a thread index": "T.get_thread_binding",
    "a synchronisation of threads": "T.sync_threads for the block, T.sync_grid or two T.Kernel for "
    "the grid",
    "an instruction of one thread": "T.copy, or elements in T.vectorized, which become the widest "
    "accesses",
    "vector arithmetic": "elements in T.vectorized, or T.float16x2(a, b) and T.add2",
    "TIR": "the statements of the language",
}
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
        instead = INSTEAD_OF.get(self.reason)
        return UnsupportedConstructError(
            f"T.{self.name} ({self.reason}) is not supported by tileops{on_which_target()}"
            + (f"; instead: {instead}" if instead else "")
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


def by_reason() -> dict[str, list[str]]:
    """Reason to the names that are not supported for it."""
    found: dict[str, list[str]] = {}
    for name, reason in _REASONS.items():
        found.setdefault(reason, []).append(name)
    return found


def all_names() -> tuple[str, ...]:
    """Every name that is known and not supported, sorted."""
    return tuple(sorted(_REASONS))

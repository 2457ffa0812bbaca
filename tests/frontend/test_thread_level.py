"""Every construct of single threads, barriers and layouts raises one error class with its line.

The names are those of the language's thread-level part, without the ones that work: vectors,
T.dp4a, T.vectorized, thread indices that choose elements or groups, T.Fragment, and barriers, copies
and products of groups (test_explicit.py).
"""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.traced import body_of
from tileops.errors import ProgramError, UnsupportedConstructError
from tileops.language.missing import all_names

NAMES = [
    "alloc_tmem",
    "alloc_cluster_barrier",
    "alloc_buffer",
    "gemm_sp",
    "While",
    "launch_thread",
    "call_intrin",
    "ldg32",
    "ldg64",
    "ldg128",
    "ldg256",
    "stg32",
    "stg64",
    "stg128",
    "stg256",
    "lds32",
    "lds64",
    "lds128",
    "sts32",
    "sts64",
    "sts128",
    "__ldg",
    "tvm_storage_sync",
    "CUDASourceCodeKernel",
    "tma_load",
    "create_tma_descriptor",
    "ptx_arrive_barrier",
    "WSSchedule",
    "WSRole",
    "WSPipeline",
    "WSScope",
    "WSInstr",
    "WSSync",
    "annotate_ws_schedule",
    "ws_op",
    "WSID",
    "tcgen05_gemm",
    "tcgen05_mma_arrive",
    "tcgen05_gemm_blockscaled",
    "tcgen05_cp_warpx4",
    "tcgen05_sf_warp_transpose",
    "clc_try_cancel",
    "clc_try_cancel_multicast",
    "clc_is_canceled",
    "clc_get_first_ctaid_x",
    "mma_gemm_blockscaled",
    "tcgen05_before_thread_sync",
    "tcgen05_after_thread_sync",
    "deallocate_tmem",
    "tma_gather4",
    "tma_scatter4",
    "tma_load_2sm",
    "q_multiply_shift",
]


@pytest.mark.parametrize("name", sorted({*NAMES, *all_names()}))
def test_using_the_name_raises_with_its_line(name: str) -> None:
    construct = getattr(T, name)

    def program(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1):
            construct(A, 0)

    with pytest.raises(UnsupportedConstructError) as caught:
        body_of(program)
    error = str(caught.value)
    assert isinstance(caught.value, ProgramError)
    assert f"T.{name} " in error
    assert "on any target" in error
    assert "test_thread_level.py:" in error
    assert "construct(A, 0)" in error


def test_the_target_is_named_where_it_is_known() -> None:
    @tileops.jit(target="cuda:sm_90")
    def program(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1):
            T.tma_load(A, A)

    with pytest.raises(UnsupportedConstructError, match="on target cuda:sm_90, nor on any other"):
        program.get_tir(torch.zeros(8))


def test_constructs_that_work_in_one_form_only() -> None:
    def exchange(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            T.copy(A[tx], A[0])

    def stochastic(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1):
            A[0] = T.cast(T.cast(A[1], "float8_e4m3fn", round="rs", rbits=7), "float32")

    with pytest.raises(UnsupportedConstructError, match=r"test_thread_level\.py:"):
        body_of(stochastic)
    body_of(exchange)  # one element to one element: each thread's store

    def tile(A):
        A: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            shared = T.alloc_shared((8,), T.float32)
            T.copy(A[tx], shared)

    with pytest.raises(UnsupportedConstructError, match="does more than choose elements"):
        body_of(tile)

"""What roles, barriers and asynchronous steps record, and what they refuse."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.traced import body_of, lines
from tileops.errors import (
    ProgramError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)


def test_a_role_is_the_threads_of_its_groups_and_barriers_count_threads() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=384):
            tile = T.alloc_shared((2, 128), T.float32)
            full = T.alloc_barrier([128, 128])
            empty = T.alloc_barrier(arrive_count=256)
            with T.ws(2):
                T.barrier_wait(empty, 1)
                T.tma_copy(A[0], tile[1, :], barrier=full[1])
                T.barrier_arrive(full[1])
            with T.ws(0, 1):
                T.mbarrier_wait_parity(mbarrier=full[1], parity=0)
                T.mbarrier_arrive(mbarrier=empty)

    assert body_of(program) == lines("""
        barriers %full.4: u64[2] barrier arrivals (128, 128)
        barriers %empty.5: u64[1] barrier arrivals (256,)
        role threads 256 + 128:
          wait %empty.5[0] parity 1
          copy %A.1[0 : +128] -> %tile.3[1 : +1, 0 : +128] later on %full.4[1]
          arrive %full.4[1]
        role threads 0 + 256:
          wait %full.4[1] parity 0
          arrive %empty.5[0]
    """)


def test_a_condition_on_the_thread_index_is_a_role() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=384):
            tile = T.alloc_shared((128,), T.float32)
            part = T.alloc_fragment((128,), T.float32)
            full = T.alloc_barrier(1)
            tx = T.get_thread_binding()
            if tx >= 256:
                if T.shuffle_elect(128):
                    T.tma_copy(A[0], tile, barrier=full)
                    T.barrier_arrive(full)
            elif tx // 128 == 1:
                T.barrier_wait(full, 0)
            else:
                T.fill(part, 0)

    assert body_of(program) == lines("""
        barriers %full.5: u64[1] barrier arrivals (1,)
        role threads 0 + 128:
          fill %part.4[0 : +128] = 0.0f32
        role threads 128 + 128:
          wait %full.5[0] parity 0
        role threads 256 + 1:
          copy %A.1[0 : +128] -> %tile.3[0 : +128] later on %full.5[0]
          arrive %full.5[0]
    """)


def test_thread_indices_in_a_role_count_from_its_first_thread() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float16)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((1024,), T.float16)
            full = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            if tx >= 128:
                place = (tx - 128) * 8
                T.ptx_cp_async(T.access_ptr(tile[place], "w", 8), T.access_ptr(A[place], "r", 8), 8)
                T.cp_async_barrier_noinc(full)
            else:
                T.barrier_wait(full, 0)

    assert body_of(program, {"N": 1024}) == lines("""
        barriers %full.3: u64[1] barrier arrivals (128,)
        role threads 0 + 128:
          wait %full.3[0] parity 0
        role threads 128 + 128:
          parallel tx.4 in [128]:
            vectorized v.5: i32 in 0 .. 8 copies=later:
              %tile.2[((((tx.4 + 128) - 128) * 8) + v.5)] = %A.0[((((tx.4 + 128) - 128) * 8) + v.5)]
          arrive after copies %full.3[0]
    """)


def test_asynchronous_steps_and_their_waits() -> None:
    def program(A, B, C):
        A: T.Tensor((64, 64), T.float16)
        B: T.Tensor((64, 64), T.float16)
        C: T.Tensor((64, 64), T.float16)
        with T.Kernel(1):
            A_s = T.alloc_shared((64, 64), T.float16)
            B_s = T.alloc_shared((64, 64), T.float16)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.async_copy(A, A_s)
            T.async_copy(B, B_s)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.fence_proxy_async()
            T.wgmma_gemm(A_s, B_s, acc, transpose_B=True, clear_accum=True)
            T.wait_wgmma(0)
            T.tma_copy(A_s, C)
            T.tma_store_arrive()
            T.tma_store_wait(0)

    assert body_of(program) == lines("""
        copy %A.0[0 : +64, 0 : +64] -> %A_s.4[0 : +64, 0 : +64] grouped
        copy %B.1[0 : +64, 0 : +64] -> %B_s.5[0 : +64, 0 : +64] grouped
        group copies
        end copies but 0
        gemm %A_s.4[0 : +64, 0 : +64], %B_s.5[0 : +64, 0 : +64], %acc.6[0 : +64, 0 : +64] tb clear true square later
        end gemms but 0
        copy %A_s.4[0 : +64, 0 : +64] -> %C.2[0 : +64, 0 : +64] later
        end stores but 0
    """)


def test_a_named_barrier_is_for_all_threads_unless_told() -> None:
    def program(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1, threads=256):
            T.sync_threads(3)
            with T.ws(0):
                T.sync_threads(barrier_id=4, arrive_count=128)
            T.named_barrier_arrive(5, 256)

    assert body_of(program) == lines("""
        named barrier 3 threads 256 waits True
        role threads 0 + 128:
          named barrier 4 threads 128 waits True
        named barrier 5 threads 256 waits False
    """)


def test_roles_without_barriers_leave_no_trace() -> None:
    def program(A):
        A: T.Tensor((128,), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((128,), T.float32)
            tx = T.get_thread_binding()
            with T.ws(1):
                T.copy(A, tile)
            T.sync_threads()
            if tx < 128:
                T.copy(tile, A)

    assert body_of(program) == lines("""
        copy %A.0[0 : +128] -> %tile.2[0 : +128]
        copy %tile.2[0 : +128] -> %A.0[0 : +128]
    """)


def test_a_barrier_may_have_another_name() -> None:
    def program(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            barriers = T.alloc_barrier([128, 128])
            one = barriers[1]
            T.barrier_arrive(one)

    assert body_of(program).endswith("arrive %barriers.2[1]")


# -- refusals ----------------------------------------------------------------------------------------
def _with(body) -> None:
    def program(A):
        A: T.Tensor((128, 64), T.float16)
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((128, 64), T.float16)
            f = T.alloc_fragment((128, 64), T.float32)
            full = T.alloc_barrier([128])
            body(A, s, f, full)

    body_of(program)


WRONG = {
    "a load without a barrier": (lambda A, s, f, full: T.tma_copy(A, s), ProgramValueError),
    "a store with a barrier": (
        lambda A, s, f, full: T.tma_copy(s, A, barrier=full),
        ProgramValueError,
    ),
    "a copy to registers": (
        lambda A, s, f, full: T.tma_copy(A, f, barrier=full),
        ProgramTypeError,
    ),
    "a buffer as a barrier": (
        lambda A, s, f, full: T.tma_copy(A, s, barrier=s),
        ProgramTypeError,
    ),
    "a cluster": (
        lambda A, s, f, full: T.tma_copy(A, s, barrier=full, cluster_mask=1),
        UnsupportedConstructError,
    ),
    "another parity": (lambda A, s, f, full: T.barrier_wait(full, 2), ProgramValueError),
    "no arrivals": (lambda A, s, f, full: T.alloc_barrier(0), ProgramValueError),
    "odd registers": (lambda A, s, f, full: T.set_max_nreg(25, 0), ProgramValueError),
    "a named barrier of few threads": (
        lambda A, s, f, full: T.sync_threads(1, 16),
        ProgramValueError,
    ),
    "a named barrier that there is not": (
        lambda A, s, f, full: T.sync_threads(16, 128),
        ProgramValueError,
    ),
    "bytes that cp.async has not": (
        lambda A, s, f, full: T.ptx_cp_async(T.access_ptr(s[0, 0]), T.access_ptr(A[0, 0]), 5),
        ProgramValueError,
    ),
    "an element for a place": (
        lambda A, s, f, full: T.ptx_cp_async(s[0, 0], A[0, 0], 8),
        ProgramTypeError,
    ),
    "groups that are apart": (lambda A, s, f, full: T.ws(0, 2), UnsupportedConstructError),
    "no group": (lambda A, s, f, full: T.ws(), ProgramValueError),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_use_is_refused_where_it_is(what: str) -> None:
    body, error = WRONG[what]
    with pytest.raises(error) as caught:
        _with(body)
    assert isinstance(caught.value, ProgramError)
    assert "test_explicit.py:" in str(caught.value)


def test_a_part_of_a_group_cannot_run_a_tile_operation() -> None:
    def program(A):
        A: T.Tensor((128,), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_fragment((128,), T.float32)
            tx = T.get_thread_binding()
            if tx < 64:
                T.copy(A, tile)

    with pytest.raises(UnsupportedConstructError, match="a copy by 64 threads from thread 0 on"):
        body_of(program)


def test_a_name_stays_in_its_role() -> None:
    def program(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1, threads=256):
            full = T.alloc_barrier(128)
            with T.ws(0):
                value = A[0]
                T.barrier_arrive(full)
            with T.ws(1):
                A[1] = value

    with pytest.raises(ProgramValueError, match="`value` is used outside the role"):
        body_of(program)


def test_a_fragment_that_is_set_whole_is_each_threads_own() -> None:
    def program(A):
        A: T.Tensor((128,), T.float32)
        with T.Kernel(1, threads=128):
            own = T.alloc_fragment((2,), T.float32)
            tx = T.get_thread_binding()
            T.clear(own)
            own[0] = A[tx]
            A[tx] = own[0] * 2

    assert body_of(program).startswith("threads thread.")
    a = torch.randn(128)
    expected = a * 2
    tileops.jit(program)(a)
    assert torch.equal(a, expected)


def test_a_variable_that_each_thread_sets_is_a_name_for_its_value() -> None:
    def program(A, B):
        A: T.Tensor((128,), T.int32)
        B: T.Tensor((128,), T.int32)
        with T.Kernel(1, threads=128):
            own = T.alloc_var(T.int32)
            tx = T.get_thread_binding()
            for r in T.serial(2):
                own = A[(tx + r) % 128]
                if own > 0:
                    B[tx] = own

    assert body_of(program) == lines("""
        parallel tx.4 in [128]:
          serial r.5: i32 in 0 .. 2:
            let own.6: i32 = %A.0[((tx.4 + r.5) % 128)]
            if (own.6 > 0):
              %B.1[tx.4] = own.6
    """)


def test_registers_that_threads_differ_in_have_an_element_for_each_thread() -> None:
    def program(A, B):
        A: T.Tensor((128, 8), T.float32)
        B: T.Tensor((128,), T.float32)
        with T.Kernel(1, threads=128):
            total = T.alloc_var(T.float32, 1.0)
            last = T.alloc_local((2,), T.float32)
            tx = T.get_thread_binding()
            for k in T.serial(8):
                total += A[tx, k]
                last[k % 2] = A[tx, k]
            B[tx] = total + last[1]

    assert body_of(program) == lines("""
        parallel tx.5 in [128]:
          %total.3[tx.5] = 1.0f32
        parallel tx.5 in [128]:
          serial k.6: i32 in 0 .. 8:
            %total.3[tx.5] = (%total.3[tx.5] + %A.0[tx.5, k.6])
            %last.4[tx.5, (k.6 % 2)] = %A.0[tx.5, k.6]
          %B.1[tx.5] = (%total.3[tx.5] + %last.4[tx.5, 1])
    """)

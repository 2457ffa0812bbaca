"""A thread index that chooses elements becomes a loop over the threads; anything more is refused."""

from __future__ import annotations

import pytest

import tileops.language as T
from tests.kit.traced import body_of, lines
from tileops.errors import UnsupportedConstructError


def test_a_run_of_statements_is_one_loop_over_the_threads() -> None:
    def program(A, B):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B: T.Tensor((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            tx = T.get_thread_binding()
            row = bx * 64 + tx
            value = A[row] * 2.0
            if row < N:
                B[row] = value

    assert body_of(program) == lines("""
        parallel tx.4 in [64]:
          let value.5: f32 = (%A.1[((bx.3 * 64) + tx.4)] * 2.0f32)
          if (((bx.3 * 64) + tx.4) < N.0):
            %B.2[((bx.3 * 64) + tx.4)] = value.5
    """)


def test_a_barrier_ends_a_run_and_block_wide_loops_stay_outside() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=(32, 4)):
            tx, ty = T.get_thread_bindings()
            tile = T.alloc_shared((4, 32), T.float32)
            for k in T.serial(8):
                tile[ty, tx] = A[k * 32 + tx]
                T.sync_threads()
                A[tx] = tile[3 - ty, tx]
                T.sync_threads()

    assert body_of(program) == lines("""
        serial k.6: i32 in 0 .. 8:
          parallel tx.3, ty.4 in [32, 4]:
            %tile.5[ty.4, tx.3] = %A.1[((k.6 * 32) + tx.3)]
          parallel tx.3, ty.4 in [32, 4]:
            %A.1[tx.3] = %tile.5[(3 - ty.4), tx.3]
    """)


def test_a_while_loop_that_each_thread_ends_for_itself_is_refused() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            total = T.alloc_var(T.float32, 0.0)
            while total < 1.0:
                total += A[tx]
            A[tx] = total

    with pytest.raises(UnsupportedConstructError, match="more than choose elements") as caught:
        body_of(program)
    assert caught.value.location is not None


def test_a_name_that_outlives_its_run_is_refused() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            before = A[tx]
            T.sync_threads()
            A[31 - tx] = before

    with pytest.raises(UnsupportedConstructError, match="more than choose elements"):
        body_of(program)


def test_tile_operations_under_a_thread_condition_are_refused() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((4,), T.float32)
            if tx == 0:
                T.copy(A[0], tile)

    with pytest.raises(UnsupportedConstructError):
        body_of(program)


def test_barriers_without_thread_indices_leave_no_trace() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1) as bx:
            A[bx] = 1.0
            T.sync_threads()

    assert body_of(program) == "%A.1[bx.2] = 1.0f32"


def test_a_binding_of_all_threads_is_the_thread_index() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=(32, 4)):
            tx = T.thread_binding(0, 32, thread="threadIdx.x")
            ty = T.thread_binding(4, thread="threadIdx.y")
            A[ty * 32 + tx] = 1.0

    assert body_of(program) == lines("""
        parallel tx.3, ty.4 in [32, 4]:
          %A.1[((ty.4 * 32) + tx.3)] = 1.0f32
    """)


@pytest.mark.parametrize(
    ("stop", "thread"), [(16, "threadIdx.x"), (32, "threadIdx.w"), (32, "blockIdx.x")]
)
def test_a_binding_of_some_threads_is_refused(stop: int, thread: str) -> None:
    def program(A, stop, thread):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            A[T.thread_binding(0, stop, thread=thread)] = 1.0

    with pytest.raises(UnsupportedConstructError, match="all threads of the block"):
        body_of(program, stop=stop, thread=thread)

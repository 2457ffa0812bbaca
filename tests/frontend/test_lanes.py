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


def test_a_while_loop_that_each_thread_ends_for_itself_is_one_of_threads() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=(32, 2)):
            tx, ty = T.get_thread_bindings()
            total = T.alloc_var(T.float32, 0.0)
            while total < 1.0:
                total += A[tx]
            A[ty * 32 + tx] = total

    assert body_of(program) == lines("""
        threads thread.6 in 64: # a thread index that does more than choose elements
          let tx.3: i32 = (thread.6 % 32)
          let ty.4: i32 = (thread.6 // 32)
          while (%total.5[0] < 1.0f32):
            %total.5[0] = (%total.5[0] + %A.1[tx.3])
          %A.1[((ty.4 * 32) + tx.3)] = %total.5[0]
    """)


def test_statements_of_threads_wait_where_they_touch_what_others_do() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            own = T.alloc_local((1,), T.int32)
            tile = T.alloc_shared((64,), T.int32)
            own[0] = A[tx]
            while own[0] > 0:
                own[0] -= 7
            for i in T.serial(2):
                tile[tx * 2 + i] = own[0]
            tile[tx * 2] += 1
            if tx < 16:
                tile[tx] = tile[tx] + tile[tx + 32]
            for i in T.Parallel(64):
                tile[i] += 1
            for k in T.serial(3):
                A[tx] = tile[(tx + k) % 64]
                tile[tx] = A[tx]

    assert body_of(program) == lines("""
        threads thread.9 in 32: # a thread index that does more than choose elements
          let tx.3: i32 = thread.9
          %own.4[0] = %A.1[tx.3]
          while (%own.4[0] > 0):
            %own.4[0] = (%own.4[0] - 7)
          serial i.6: i32 in 0 .. 2:
            %tile.5[((tx.3 * 2) + i.6)] = %own.4[0]
          intrinsic sync_threads()
          %tile.5[(tx.3 * 2)] = (%tile.5[(tx.3 * 2)] + 1)
          intrinsic sync_threads()
          if (tx.3 < 16):
            %tile.5[tx.3] = (%tile.5[tx.3] + %tile.5[(tx.3 + 32)])
          intrinsic sync_threads()
          parallel i.7 in [64]:
            %tile.5[i.7] = (%tile.5[i.7] + 1)
          intrinsic sync_threads()
          serial k.8: i32 in 0 .. 3:
            intrinsic sync_threads()
            %A.1[tx.3] = %tile.5[((tx.3 + k.8) % 64)]
            intrinsic sync_threads()
            %tile.5[tx.3] = %A.1[tx.3]
    """)


def test_a_name_that_outlives_its_run_is_an_element_of_each_thread() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            before = A[tx]
            T.sync_threads()
            A[31 - tx] = before

    assert body_of(program) == lines("""
        parallel tx.3 in [32]:
          %before.5[tx.3] = %A.1[tx.3]
        parallel tx.3 in [32]:
          %A.1[(31 - tx.3)] = %before.5[tx.3]
    """)


def test_threads_wait_where_they_read_what_others_write() -> None:
    def program(A, B):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((64,), T.float32)
            for i in T.serial(2):
                tile[tx * 2 + i] = A[tx * 2 + i]
            tile[tx * 2] = tile[tx * 2] + 1.0
            B[tx] = tile[31 - tx]

    assert body_of(program) == lines("""
        parallel tx.4 in [32]:
          serial i.6: i32 in 0 .. 2:
            %tile.5[((tx.4 * 2) + i.6)] = %A.1[((tx.4 * 2) + i.6)]
        parallel tx.4 in [32]:
          %tile.5[(tx.4 * 2)] = (%tile.5[(tx.4 * 2)] + 1.0f32)
        parallel tx.4 in [32]:
          %B.2[tx.4] = %tile.5[(31 - tx.4)]
    """)


def test_a_loop_in_which_threads_wait_is_one_of_the_block() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((2, 32), T.float32)
            tile[0, tx] = A[tx]
            for _round in T.serial(5):
                value = tile[0, tx] + tile[0, (tx + 1) % 32]
                tile[0, tx] = value
            A[tx] = tile[0, tx]

    assert body_of(program) == lines("""
        parallel tx.3 in [32]:
          %tile.4[0, tx.3] = %A.1[tx.3]
        serial _round.5: i32 in 0 .. 5:
          parallel tx.3 in [32]:
            %value.7[tx.3] = (%tile.4[0, tx.3] + %tile.4[0, ((tx.3 + 1) % 32)])
          parallel tx.3 in [32]:
            %tile.4[0, tx.3] = %value.7[tx.3]
        parallel tx.3 in [32]:
          %A.1[tx.3] = %tile.4[0, tx.3]
    """)


def test_threads_that_would_wait_for_some_only_are_refused() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((32,), T.float32)
            if A[tx] > 0:
                tile[tx] = A[tx]
                A[tx] = tile[31 - tx]

    with pytest.raises(UnsupportedConstructError, match="threads read what others write"):
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

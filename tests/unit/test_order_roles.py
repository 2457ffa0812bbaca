"""Programs with roles are checked, then put in one order: which order, and what is found wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tileops.language as T
from tests.kit.traced import lines, program_of
from tests.programs.explicit import CASES
from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.ir.printer import print_body
from tileops.ir.program import Program
from tileops.ir.verifier import verify
from tileops.log import TileopsWarning
from tileops.passes.context import Context
from tileops.passes.explicit import order_roles
from tileops.target import parse_target


def ordered(program: Program) -> Program:
    found = order_roles(program, Context(parse_target("cpu")))
    verify(found, made_by="order_roles")
    return found


def order_of(func, **consts: int) -> str:
    """The statements of a program in their one order, without allocations."""
    (launch,) = ordered(program_of(func, consts or None)).launches
    text = [line for line in print_body(launch.body) if not line.strip().startswith("alloc")]
    return "\n".join(text)


# -- orders ------------------------------------------------------------------------------------------
def test_loops_of_roles_become_one_loop_without_barriers() -> None:
    def program(A, B):
        N = T.const("N")
        A: T.Tensor((N, 64), T.float32)
        B: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((64,), T.float32)
            total = T.alloc_fragment((64,), T.float32)
            full = T.alloc_barrier(128)
            empty = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            if tx < 128:
                T.clear(total)
                for k in T.serial(N):
                    T.barrier_wait(full, k % 2)
                    for i in T.Parallel(64):
                        total[i] += tile[i]
                    T.barrier_arrive(empty)
                T.copy(total, B)
            else:
                for n in T.serial(N):
                    T.barrier_wait(empty, (n + 1) % 2)
                    T.tma_copy(A[n, 0:64], tile, barrier=full)
                    T.barrier_arrive(full)

    assert order_of(program, N=5) == lines("""
        fill %total.4[0 : +64] = 0.0f32
        serial k.8: i32 in 0 .. 5:
          copy %A.0[k.8 : +1, 0 : +64] -> %tile.3[0 : +64]
          parallel i.9 in [64]:
            %total.4[i.9] = (%total.4[i.9] + %tile.3[i.9])
        copy %total.4[0 : +64] -> %B.1[0 : +64]
    """)


def test_a_ring_of_slots_becomes_a_pipelined_loop_over_one() -> None:
    case = next(c for c in CASES if c.id == "explicit_bodies_long")
    (launch,) = ordered(case.impl.get_tir(*case.inputs(), **case.options)).launches
    text = "\n".join(print_body(launch.body))
    assert "f16[64, 32] shared" in text
    assert "pipelined k.10: i32 in 0 .. 7 stages 2:" in text
    assert launch.threads == 128  # those that compute


def test_loops_over_slots_within_a_loop_become_one() -> None:
    def program(A, B):
        N = T.const("N")
        A: T.Tensor((2 * N, 64), T.float32)
        B: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((2, 8, 8), T.float32)
            total = T.alloc_fragment((8, 8), T.float32)
            full = T.alloc_barrier([128, 128])
            empty = T.alloc_barrier([128, 128])
            with T.ws(0):
                T.clear(total)
                for k in T.serial(N):
                    for slot in T.unroll(2):
                        T.barrier_wait(full[slot], k % 2)
                        for i, j in T.Parallel(8, 8):
                            total[i, j] += tile[slot, i, j]
                        T.barrier_arrive(empty[slot])
                for i, j in T.Parallel(8, 8):
                    B[i * 8 + j] = total[i, j]
            with T.ws(1):
                for k in T.serial(N):
                    for slot in T.unroll(2):
                        T.barrier_wait(empty[slot], k % 2 ^ 1)
                        T.tma_copy(
                            A[(k * 2 + slot) * 8 : (k * 2 + slot + 1) * 8, 0:8],
                            tile[slot, :, :],
                            barrier=full[slot],
                        )
                        T.barrier_arrive(full[slot])

    text = order_of(program, N=4)
    assert "in 0 .. 8 stages 2:" in text
    assert "unroll" not in text


def test_groups_keep_registers_of_their_own() -> None:
    def program(A, B):
        A: T.Tensor((64,), T.float32)
        B: T.Tensor((2, 64), T.float32)
        with T.Kernel(1, threads=256):
            part = T.alloc_fragment((64,), T.float32)
            done = T.alloc_barrier(256)
            T.copy(A, part)
            with T.ws(0):
                for i in T.Parallel(64):
                    part[i] += 1
                T.barrier_arrive(done)
                T.copy(part, B[0, 0:64])
            with T.ws(1):
                for i in T.Parallel(64):
                    part[i] *= 2
                T.barrier_arrive(done)
                T.copy(part, B[1, 0:64])

    assert order_of(program) == lines("""
        copy %A.0[0 : +64] -> %part_0.7[0 : +64]
        copy %A.0[0 : +64] -> %part_128.8[0 : +64]
        parallel i.6 in [64]:
          %part_128.8[i.6] = (%part_128.8[i.6] * 2.0f32)
        copy %part_128.8[0 : +64] -> %B.1[1 : +1, 0 : +64]
        parallel i.5 in [64]:
          %part_0.7[i.5] = (%part_0.7[i.5] + 1.0f32)
        copy %part_0.7[0 : +64] -> %B.1[0 : +1, 0 : +64]
    """)


def test_loops_up_to_a_variable_of_the_block_become_one() -> None:
    def program(A, counts, B):
        A: T.Tensor((8, 64), T.float32)
        counts: T.Tensor((4,), T.int32)
        B: T.Tensor((64,), T.float32)
        with T.Kernel(4, threads=256) as bx:
            tile = T.alloc_shared((64,), T.float32)
            total = T.alloc_fragment((64,), T.float32)
            count = T.alloc_var(T.int32)
            full = T.alloc_barrier(128)
            empty = T.alloc_barrier(128)
            count = counts[bx]
            T.clear(total)
            with T.ws(1):
                for k in T.serial(count):
                    T.barrier_wait(empty, (k + 1) % 2)
                    T.tma_copy(A[k, 0:64], tile, barrier=full)
                    T.barrier_arrive(full)
            with T.ws(0):
                for k in T.serial(count):
                    T.barrier_wait(full, k % 2)
                    for i in T.Parallel(64):
                        total[i] += tile[i]
                    T.barrier_arrive(empty)
                T.copy(total, B)

    assert order_of(program).count("serial") == 1


def test_a_launch_without_roles_loses_its_waits() -> None:
    def program(A, B):
        A: T.Tensor((64, 64), T.float16)
        B: T.Tensor((64, 64), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((64, 64), T.float16)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.async_copy(A, tile)
            T.ptx_wait_group(0)
            T.wgmma_gemm(tile, tile, acc, clear_accum=True)
            T.wait_wgmma(0)
            T.copy(acc, B)

    text = order_of(program)
    assert [line.split()[0] for line in text.splitlines()] == ["copy", "gemm", "copy"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_program_has_an_order(case) -> None:
    ordered(case.impl.get_tir(*case.inputs(), **case.options))


# -- faults ------------------------------------------------------------------------------------------
def ring(
    *,
    full: int = 128,
    empty: int = 128,
    first: int = 1,
    second: int = 0,
    waits_full: bool = True,
    waits_empty: bool = True,
    frees: bool = True,
    arrives: bool = True,
    ends: bool = True,
    slots: int = 2,
) -> Callable[..., None]:
    """A loader and a group that multiplies, right as it is; each argument makes one fault."""

    def program(A, B):
        A: T.Tensor((512, 64), T.float16)
        B: T.Tensor((64, 64), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((slots, 64, 64), T.float16)
            acc = T.alloc_fragment((64, 64), T.float32)
            is_full = T.alloc_barrier([full] * slots)
            is_empty = T.alloc_barrier([empty] * slots)
            T.clear(acc)
            with T.ws(1):
                for k in T.serial(8):
                    if waits_empty:
                        T.barrier_wait(is_empty[k % slots], (k // slots + first) % 2)
                    T.tma_copy(A[k * 64, 0], tile[k % slots, :, :], barrier=is_full[k % slots])
                    if arrives:
                        T.barrier_arrive(is_full[k % slots])
            with T.ws(0):
                for k in T.serial(8):
                    if waits_full:
                        T.barrier_wait(is_full[k % slots], (k // slots + second) % 2)
                    T.wgmma_gemm(tile[k % slots, :, :], tile[k % slots, :, :], acc)
                    if ends:
                        T.wait_wgmma(0)
                    if frees:
                        T.barrier_arrive(is_empty[k % slots])
                T.wait_wgmma(0)
                T.copy(acc, B)

    return program


def test_the_ring_is_right_as_it_is() -> None:
    assert "pipelined" in order_of(ring())
    assert "pipelined" in order_of(ring(slots=4))


FAULTS = {
    "no wait for a full slot": (ring(waits_full=False), "in no order|deadlock"),
    "no wait for an empty slot": (ring(waits_empty=False), "in no order"),
    "the other parity of full": (ring(second=1), "in no order|deadlock"),
    "the other parity of empty": (ring(first=0), "deadlock"),
    "nobody says that a slot is empty": (ring(frees=False), "deadlock"),
    "nobody says that a slot is full": (ring(arrives=False), "deadlock|half way"),
    "fewer threads than a phase takes": (ring(full=256), "deadlock"),
    "more threads than a phase takes": (ring(empty=64), "64 arrivals more than the 64 of a phase"),
    "a slot is freed under a product": (ring(ends=False), "in no order"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_found(what: str) -> None:
    program, message = FAULTS[what]
    with pytest.raises(ProgramValueError, match=message) as caught:
        order_of(program)
    assert "test_order_roles.py:" in str(caught.value)


def test_a_deadlock_says_who_waits_where() -> None:
    with pytest.raises(ProgramValueError) as caught:
        order_of(ring(frees=False))
    text = str(caught.value)
    assert "threads 128 to 255 wait at line" in text
    assert "in `wait %is_empty" in text
    assert "128 arrivals and 0 bytes missing" in text


def test_a_result_in_flight_is_not_touched() -> None:
    def program(A, B):
        A: T.Tensor((64, 64), T.float16)
        B: T.Tensor((64, 64), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((64, 64), T.float16)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.copy(A, tile)
            T.wgmma_gemm(tile, tile, acc, clear_accum=True)
            T.copy(acc, B)

    with pytest.raises(ProgramValueError, match="touches the result of a product in flight"):
        order_of(program)


def test_a_copy_by_cp_async_is_waited_for() -> None:
    def program(A, B):
        A: T.Tensor((64,), T.float32)
        B: T.Tensor((64,), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((64,), T.float32)
            T.async_copy(A, tile)
            T.ptx_wait_group(1)
            T.copy(tile, B)

    with pytest.raises(ProgramValueError, match="`tile` is written and read in no order"):
        order_of(program)


def test_a_copy_to_a_tensor_is_waited_for_before_its_source_changes() -> None:
    with pytest.raises(ProgramValueError, match="`tile` is written and read in no order"):
        order_of(_stores(waits=False))
    assert order_of(_stores(waits=True)).count("copy") == 2


def _stores(*, waits: bool) -> Callable[..., None]:
    def program(A):
        A: T.Tensor((2, 64), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((64,), T.float32)
            T.fill(tile, 1)
            T.tma_copy(tile, A[0, 0:64])
            if waits:
                T.tma_store_wait(0)
            T.fill(tile, 2)
            T.tma_copy(tile, A[1, 0:64])

    return program


def test_registers_of_another_role_are_not_read() -> None:
    def program(A):
        A: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=256):
            part = T.alloc_fragment((64,), T.float32)
            done = T.alloc_barrier(128)
            with T.ws(0):
                T.fill(part, 1)
                T.barrier_arrive(done)
            with T.ws(1):
                T.barrier_wait(done, 0)
                T.copy(part, A)

    with pytest.raises(ProgramValueError, match="`part` is in the registers of another role"):
        order_of(program)


def _one_write(*, twice: bool) -> Callable[..., None]:
    def program(A):
        A: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((64,), T.float32)
            done = T.alloc_barrier(256)
            with T.ws(1):
                T.barrier_arrive(done)
                T.barrier_wait(done, 0)
                T.copy(tile, A)
            with T.ws(0):
                if twice:
                    T.fill(tile, 0)
                T.barrier_arrive(done)
                T.fill(tile, 1)

    return program


def test_a_read_of_the_only_write_comes_behind_it_with_a_warning() -> None:
    with pytest.warns(TileopsWarning, match="no barrier orders the accesses of `tile`"):
        text = order_of(_one_write(twice=False))
    assert text.splitlines()[0].startswith("fill")
    with pytest.raises(ProgramValueError, match="in no order"):
        order_of(_one_write(twice=True))


def test_a_role_beyond_the_block() -> None:
    def program(A):
        A: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=128):
            done = T.alloc_barrier(128)
            with T.ws(1):
                T.barrier_arrive(done)

    with pytest.raises(ProgramValueError, match="threads 128 to 255, and the block has 128"):
        order_of(program)


def test_a_barrier_has_no_value() -> None:
    def program(A):
        A: T.Tensor((64,), T.float32)
        with T.Kernel(1):
            done = T.alloc_barrier(128)
            if done[0] > 0:
                A[0] = 1

    with pytest.raises(ProgramValueError, match="the barrier `done` has no value"):
        order_of(program)


def test_loops_that_do_not_match_are_refused() -> None:
    def program(A, B):
        A: T.Tensor((8, 64), T.float32)
        B: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((64,), T.float32)
            full = T.alloc_barrier(128)
            empty = T.alloc_barrier(128)
            with T.ws(1):
                for k in T.serial(8):
                    T.barrier_wait(empty, (k + 1) % 2)
                    T.tma_copy(A[k, 0:64], tile, barrier=full)
                    T.barrier_arrive(full)
            with T.ws(0):
                for _k in T.serial(4):
                    for half in T.serial(2):
                        T.barrier_wait(full, half)
                        T.copy(tile, B)
                        T.barrier_arrive(empty)

    with pytest.raises(UnsupportedConstructError, match="cannot be put in one order"):
        order_of(program)


@pytest.mark.parametrize("blocks", ["none", "none for most", "divided by 0"])
def test_the_check_ends_whatever_the_grid_is(blocks: str) -> None:
    def program(A):
        N, M = T.dynamic("N, M")
        A: T.Tensor((N, M), T.float32)
        grid = {"none": 0, "none for most": N // 90000, "divided by 0": N // (M // 90000)}[blocks]
        with T.Kernel(grid, threads=128):
            tile = T.alloc_shared((128,), T.float32)
            full = T.alloc_barrier(128)
            T.tma_copy(A[0, 0:128], tile, barrier=full)
            T.barrier_arrive(full)
            T.barrier_wait(full, 0)
            T.copy(tile, A[0, 0:128])

    assert "copy %A" in order_of(program)


def test_the_check_ends_where_a_size_may_be_a_divisor_of_zero() -> None:
    def program(A):
        N, M = T.dynamic("N, M")
        A: T.Tensor((N, M), T.float32)
        with T.Kernel(N, threads=128) as bx:
            tile = T.alloc_shared((128,), T.float32)
            full = T.alloc_barrier(128)
            for k in T.serial(N // (M // 90000)):
                T.tma_copy(A[bx, 0:128], tile, barrier=full)
                T.barrier_arrive(full)
                T.barrier_wait(full, k % 2)
                T.copy(tile, A[bx, 0:128])

    assert "copy %A" in order_of(program)

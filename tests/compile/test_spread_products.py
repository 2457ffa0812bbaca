"""Loops of three products or more: what is in flight, rides in rings, is exchanged and added."""

from __future__ import annotations

from typing import Any

import pytest

import tileops.language as T
from benchmarks.pairs import attention_backward, attention_backward_two_kernels
from tests.kit import goldens
from tests.kit.schedules import HOPPER, Scheduled, schedules_of
from tests.kit.traced import program_of
from tileops.codegen import gpu
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.ir.program import Program
from tileops.ir.schedule import Added, Issue, Settle
from tileops.ir.stmt import For
from tileops.ir.walk import walk


def of_two_kernels() -> list[Scheduled]:
    sizes: dict[str, Any] = {"B": 1, "S": 256, "H": 2, "D": 64, "is_causal": False}
    func = attention_backward_two_kernels.program(T, **sizes)
    program: Program = func.program
    return list(schedules_of(program, "backward"))


def in_flight(scheduled: Scheduled) -> list[str]:
    """The products and waits of the loop: results that start, ``-`` those waited for."""
    (loop,) = [s for s in scheduled.schedule.math if isinstance(s, For)]
    out = []
    for stmt in loop.body:
        if isinstance(stmt, Issue):
            out.append(stmt.c.buffer.name)
        if isinstance(stmt, Settle):
            out.append(f"-{','.join(b.name for b in stmt.results)}")
    return out


def test_products_start_when_their_operands_are_there() -> None:
    keys, queries = of_two_kernels()
    assert in_flight(keys) == ["P", "dP", "-P", "-dP", "dv", "dk", "-dv,dk"]
    assert in_flight(queries) == ["P", "dP", "-P", "-dP", "dq", "-dq"]


def test_vectors_ride_with_the_matrix_that_stays_longest() -> None:
    keys, queries = of_two_kernels()
    held = [[b.name for b in ring.buffers] for ring in keys.schedule.rings]
    assert held == [["K_s", "V_s"], ["Q_s", "sums_s", "delta_s"], ["dO_s"]]
    # Those of the queries' own rows are loaded once, into registers.
    assert [len(ring.buffers) for ring in queries.schedule.rings] == [2, 1, 1]


def with_vector(size: int, by: str) -> Any:
    """Two sums that read one tile, and a vector of ``size`` elements between them."""

    def program(A, B, V):  # type: ignore[no-untyped-def]
        A: T.Tensor((64, 512), T.float16)
        B: T.Tensor((512, 512), T.float16)
        V: T.Tensor((512, 512 if by != "stride" else 510), T.float32)
        C = T.empty((64, size), T.float32)
        with T.Kernel(1, threads=128) as bx:
            A_s = T.alloc_shared((64, 64), T.float16)
            B_s = T.alloc_shared((64, size), T.float16)
            V_s = T.alloc_shared((size,), T.float32)
            s = T.alloc_fragment((64, size), T.float32)
            acc = T.alloc_fragment((64, size), T.float32)
            T.clear(acc)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], A_s)
                T.copy(B[k * 64, bx * size], B_s)
                T.copy(V[k, 0:size], V_s)
                T.clear(s)
                T.gemm(A_s, B_s, s)
                for i, j in T.Parallel(64, size):
                    s[i, j] = s[i, j] * V_s[i if by == "row" else j]
                if by == "part":
                    for j in T.Parallel(size // 2):
                        acc[0, j] = acc[0, j] + V_s[j]
                T.gemm(A_s, B_s, acc)
            for i, j in T.Parallel(64, size):
                acc[i, j] = acc[i, j] + s[i, j]
            T.copy(acc, C)
        return C

    return program


@pytest.mark.parametrize(
    ("size", "by", "rides"),
    [(64, "column", True), (32, "column", True), (16, "column", False), (64, "row", False),
     (64, "part", False), (64, "stride", False)],
)  # fmt: skip
def test_what_keeps_a_vector_from_a_ring(size: int, by: str, rides: bool) -> None:
    """It is read by columns, and its copy fills whole lines of 128 bytes at aligned addresses."""
    for scheduled in schedules_of(program_of(with_vector(size, by), consts={}), "vector"):
        (ring,) = scheduled.schedule.rings
        assert ("V_s" in [b.name for b in ring.buffers]) == rides
        scheduled.check()
        assert any(isinstance(s, Issue) for s in walk(scheduled.schedule.math))
        return
    assert by == "part"  # one row of a tile is written: no roles


# -- what groups exchange, and what is added by TMA ------------------------------------------------
def of_one_kernel(is_causal: bool = False) -> Scheduled:
    sizes: dict[str, Any] = {"B": 1, "S": 256, "H": 2, "D": 128, "is_causal": is_causal}
    (found,) = schedules_of(attention_backward.program(T, **sizes).program, "backward")
    return found


def test_groups_exchange_a_transposed_operand() -> None:
    own = of_one_kernel()
    assert in_flight(own) == ["P", "dP", "-P", "-dP", "dv", "dk", "dq", "-dv,dk,dq"]
    (exchange,) = [ring for ring in own.schedule.rings if ring.is_exchange]
    assert [b.name for b in exchange.buffers] == ["dS_s"]
    (product,) = [
        s for s in walk(own.schedule.math) if isinstance(s, Issue) and s.c.buffer.name == "dq"
    ]
    # All keys of dS, and of K the columns of this group.
    assert product.a.static_extents() == (128, 64)
    assert product.b.static_extents() == (128, 64)
    assert str(product.b.starts[1]) == str(own.schedule.first_row)


def test_an_addition_in_a_loop_of_products_is_done_by_tma() -> None:
    (added,) = [s for s in walk(of_one_kernel().schedule.math) if isinstance(s, Added)]
    assert added.descriptor.box == (1, 64, 1, 64)
    assert [b.name for b in (added.src.buffer, added.dst.buffer)] == ["dq", "dQ_sum"]


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_backward_compiles_without_waiting_for_each_product(is_causal: bool) -> None:
    sizes: dict[str, Any] = {"B": 1, "S": 256, "H": 2, "D": 128, "is_causal": is_causal}
    program: Program = attention_backward.program(T, **sizes).program
    code = gpu.generate(program, HOPPER, Specialization(fast=True))
    assert [launch.language for launch in code.launches] == ["triton", "gluon", "triton"]
    artifact = compile_kernel(code, HOPPER, {})
    ptx = artifact.files["launch1.ptx"].decode()
    assert "cp.reduce.async.bulk.tensor" in ptx
    assert "red.global" not in ptx
    # Five sums of 224 registers a thread, of the 240 that there are: a few go to local memory.
    assert artifact.launches[1].spills <= 128


@T.macro
def by_elements(D, s, k):
    for i, j in T.Parallel(128, 64):
        if k * 128 + i < 1024:
            T.atomic_add(D[k * 128 + i, j], s[i, j])


@T.macro
def by_tiles(D, s, k):
    T.atomic_add(D[k * 128 : k * 128 + 128, 0:64], s)


@T.macro
def in_order(D, s, k):
    for i, j in T.Parallel(128, 64):
        T.atomic_add(D[k * 128 + i, j], s[i, j], memory_order="acq_rel")


@T.macro
def transposed(D, s, k):
    for i, j in T.Parallel(128, 64):
        T.atomic_add(D[k * 128 + j, i], s[i, j])


@T.macro
def some_rows(D, s, k):
    for i, j in T.Parallel(128, 64):
        if k * 128 + i < 100:
            T.atomic_add(D[k * 128 + i, j], s[i, j])


@T.macro
def scaled(D, s, k):
    for i, j in T.Parallel(128, 64):
        T.atomic_add(D[k * 128 + i, j], s[i, j] * 2.0)


@T.macro
def beside_another(D, s, k):
    for i, j in T.Parallel(128, 64):
        T.atomic_add(D[k * 128 + i, j], s[i, j])
    for j in T.Parallel(64):
        T.atomic_add(D[0, j], 1.0)


# What adds a tile, to whether TMA does it.
ADDITIONS = {
    by_elements: True, by_tiles: True, in_order: False, transposed: False, some_rows: False,
    scaled: False, beside_another: False,
}  # fmt: skip


def with_addition(add: Any) -> Any:
    """A loop of products that adds its results to a tensor."""

    def program(A, B, D):  # type: ignore[no-untyped-def]
        A: T.Tensor((128, 512), T.float16)
        B: T.Tensor((512, 512), T.float16)
        D: T.Tensor((1024, 64), T.float32)
        C = T.empty((128, 64), T.float32)
        with T.Kernel(8, threads=128) as bx:
            A_s = T.alloc_shared((128, 64), T.float16)
            B_s = T.alloc_shared((64, 64), T.float16)
            s = T.alloc_fragment((128, 64), T.float32)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], A_s)
                T.copy(B[k * 64, bx * 64], B_s)
                T.clear(s)
                T.gemm(A_s, B_s, s)
                add(D, s, k)
            T.copy(s, C)
        return C

    return program


@pytest.mark.parametrize("add", ADDITIONS, ids=lambda add: add.__name__)
def test_what_keeps_an_addition_from_tma(add: Any) -> None:
    (own,) = schedules_of(program_of(with_addition(add), consts={}), "addition")
    assert any(isinstance(s, Added) for s in walk(own.schedule.math)) == ADDITIONS[add]


@pytest.mark.parametrize(
    ("rows", "keys", "reason"),
    [(32, 64, "the products have 32 rows"), (32, 128, "the products have 32 rows"),
     (64, 256, "4 groups would exchange operands"), (64, 64, None),
     (128, 128, "bytes of shared memory")],
)  # fmt: skip
def test_what_keeps_attention_backward_from_roles(rows: int, keys: int, reason: str | None) -> None:
    assert (reason or "schedule") in note_of_backward(rows, keys, columns=128)


def test_groups_have_whole_swizzle_patterns() -> None:
    assert "a group has 32 columns of `K_s`" in note_of_backward(rows=64, keys=128, columns=64)
    assert "schedule" in note_of_backward(rows=128, keys=128, columns=64)  # divided by rows


def note_of_backward(rows: int, keys: int, columns: int) -> str:
    sizes: dict[str, Any] = {"B": 1, "S": 256, "H": 2, "D": columns, "is_causal": False}
    own = attention_backward.program(T, **sizes, block_M=rows, block_N=keys)
    code = gpu.generate(own.program, HOPPER, Specialization(fast=True))
    (note,) = code.launches[1].notes
    return note


def test_columns_that_groups_divide_are_not_read_from_a_vector() -> None:
    """A reader of other columns than its own keeps the launch from roles."""

    def program(A, B, V):  # type: ignore[no-untyped-def]
        A: T.Tensor((128, 512), T.float16)
        B: T.Tensor((512, 128), T.float16)
        V: T.Tensor((8, 128), T.float32)
        C = T.empty((512, 128), T.float32)
        with T.Kernel(1, threads=256) as _:
            A_s = T.alloc_shared((128, 64), T.float16)
            B_s = T.alloc_shared((64, 128), T.float16)
            X_s = T.alloc_shared((128, 64), T.float16)
            V_s = T.alloc_shared((128,), T.float32)
            s = T.alloc_fragment((128, 128), T.float32)
            half = T.alloc_fragment((128, 64), T.float16)
            t = T.alloc_fragment((64, 128), T.float32)
            K_s = T.alloc_shared((128, 128), T.float16)
            T.copy(B[0:128, :], K_s)
            T.clear(s)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], A_s)
                T.copy(B[k * 64, 0], B_s)
                T.copy(V[k, :], V_s)
                T.gemm(A_s, B_s, s)
                for i, j in T.Parallel(128, 64):
                    half[i, j] = s[i, j]
                T.copy(half, X_s)
                T.clear(t)
                T.gemm(X_s, K_s, t, transpose_A=True)
                for i, j in T.Parallel(64, 128):
                    t[i, j] = t[i, j] * V_s[j]
                T.gemm(A_s, B_s, s)
                T.copy(t, C[k * 64, 0])
        return C

    assert not list(schedules_of(program_of(program, consts={}), "columns"))


def test_text_is_golden() -> None:
    goldens.check("schedules", "attention_backward", of_one_kernel().text())

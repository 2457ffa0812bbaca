"""Where allocations end up, and which tiles need a first value."""

from __future__ import annotations

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Load, Region, Var
from tileops.ir.stmt import Alloc, Body, Copy, Fill, For, Gemm, Launch, Parallel, Store
from tileops.passes.place_allocs import place_allocs

F16, F32, I32 = DType("float16"), DType("float32"), DType("int32")
C = fold.const
SHAPE = (C(16), C(16))
A = Buffer(0, "A", (C(64), C(64)), F16, "global")
A_S, B_S = Buffer(1, "A_s", SHAPE, F16, "shared"), Buffer(2, "B_s", SHAPE, F16, "shared")
ACC = Buffer(3, "acc", SHAPE, F32, "fragment")
K, I, J = Var(I32, 4, "k"), Var(I32, 5, "i"), Var(I32, 6, "j")


def whole(b: Buffer) -> Region:
    return Region(b, tuple(C(0) for _ in b.shape), b.shape)


def tile(b: Buffer) -> Copy:
    return Copy(Region(A, (C(0), fold.mul(K, C(16))), SHAPE), whole(b))


def launch(body: Body) -> Launch:
    return Launch((C(1),), (Var(I32, 9, "bx"),), 128, body)


def loop(*body: object) -> For:
    return For("pipelined", K, C(0), C(4), tuple(body), 3)  # type: ignore[arg-type]


GEMM = Gemm(whole(A_S), whole(B_S), whole(ACC), False, False, C(False))


def test_a_tile_rewritten_by_each_iteration_belongs_to_the_loop() -> None:
    body = (
        Alloc(A_S),
        Alloc(B_S),
        Alloc(ACC),
        Fill(whole(ACC), C(0.0)),
        loop(tile(A_S), tile(B_S), GEMM),
    )
    placed = place_allocs(launch(body))
    assert placed.unset == {1, 2, 3}
    outer = placed.launch.body
    assert [type(s).__name__ for s in outer] == ["Alloc", "Fill", "For"]
    assert [type(s).__name__ for s in outer[-1].body] == ["Alloc", "Copy", "Alloc", "Copy", "Gemm"]


def test_an_accumulator_that_is_never_cleared_needs_a_first_value() -> None:
    placed = place_allocs(
        launch((Alloc(A_S), Alloc(B_S), Alloc(ACC), loop(tile(A_S), tile(B_S), GEMM)))
    )
    assert placed.unset == {1, 2}
    assert placed.launch.body[0] == Alloc(ACC)


def test_a_tile_read_after_the_loop_stays_outside() -> None:
    body = (Alloc(A_S), loop(tile(A_S)), Copy(whole(A_S), Region(A, (C(0), C(0)), SHAPE)))
    placed = place_allocs(launch(body))
    assert placed.unset == frozenset()
    assert placed.launch.body[0] == Alloc(A_S)


def test_a_nest_that_covers_the_tile_writes_it_whole() -> None:
    store = Store(ACC, (I, J), C(1.0))
    assert place_allocs(launch((Alloc(ACC), Parallel((I, J), SHAPE, (store,))))).unset == {3}


def test_a_nest_that_reads_the_tile_or_covers_a_part_does_not() -> None:
    update = Store(ACC, (I, J), fold.add(Load(F32, ACC, (I, J)), C(1.0)))
    part = Parallel((I, J), (C(16), C(8)), (Store(ACC, (I, J), C(1.0)),))
    for nest in (Parallel((I, J), SHAPE, (update,)), part):
        assert place_allocs(launch((Alloc(ACC), nest))).unset == frozenset()

"""Which tiles a loop carries, which need a first value, and what replaces one whole."""

from __future__ import annotations

from tileops.codegen.triton.liveness import Liveness, liveness_of, writes_whole
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Load, Region, Var
from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, Copy, Fill, For, Gemm, Launch, Parallel, Store, View

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


def liveness(*body: object) -> Liveness:
    launch = Launch((C(1),), (Var(I32, 9, "bx"),), 128, tuple(body))  # type: ignore[arg-type]
    return liveness_of(Program("program", (), (), (), (launch,), ()), launch)


def loop(*body: object) -> For:
    return For("pipelined", K, C(0), C(4), tuple(body), 3)  # type: ignore[arg-type]


GEMM = Gemm(whole(A_S), whole(B_S), whole(ACC), False, False, C(False))


def test_a_tile_rewritten_by_each_iteration_belongs_to_the_loop() -> None:
    body = (Alloc(A_S), Alloc(B_S), Alloc(ACC), Fill(whole(ACC), C(0.0)))
    loop_ = loop(tile(A_S), tile(B_S), GEMM)
    found = liveness(*body, loop_)
    assert found.exposed_of((*body, loop_)) == frozenset()
    assert found.written(loop_.body) == {1, 2, 3}
    assert found.exposed_of(loop_.body) == {3}


def test_an_accumulator_that_is_never_cleared_needs_a_first_value() -> None:
    body = (Alloc(A_S), Alloc(B_S), Alloc(ACC), loop(tile(A_S), tile(B_S), GEMM))
    assert liveness(*body).exposed_of(body) == {3}


def test_a_tile_read_after_the_loop_lives_beyond_it() -> None:
    body = (Alloc(A_S), loop(tile(A_S)), Copy(whole(A_S), Region(A, (C(0), C(0)), SHAPE)))
    assert liveness(*body).after(body, frozenset())[1] == {1}


def test_a_nest_that_covers_the_tile_writes_it_whole() -> None:
    nest = Parallel((I, J), SHAPE, (Store(ACC, (I, J), C(1.0)),))
    assert writes_whole(nest, ACC)
    assert liveness(Alloc(ACC), nest).kills(nest) == {3}


def test_a_nest_that_reads_the_tile_or_covers_a_part_does_not() -> None:
    update = Store(ACC, (I, J), fold.add(Load(F32, ACC, (I, J)), C(1.0)))
    part = Parallel((I, J), (C(16), C(8)), (Store(ACC, (I, J), C(1.0)),))
    for nest in (Parallel((I, J), SHAPE, (update,)), part):
        assert not writes_whole(nest, ACC)
        assert liveness(Alloc(ACC), nest).exposed(nest) == {3}


def test_a_whole_write_that_reads_the_storage_by_another_name_needs_the_old_value() -> None:
    view = Buffer(10, "v", (C(256),), F32, "fragment")
    flat = fold.add(fold.mul(I, C(16)), J)
    nest = Parallel((I, J), SHAPE, (Store(ACC, (I, J), Load(F32, view, (flat,))),))
    found = liveness(Alloc(ACC), View(view, ACC), nest)
    assert found.kills(nest) == frozenset()
    assert found.exposed(nest) == {3}

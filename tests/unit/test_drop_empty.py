"""The pass that removes what works on nothing: small IR in, printed IR out."""

from __future__ import annotations

import dataclasses

import pytest

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Region, Var
from tileops.ir.printer import print_program
from tileops.ir.program import Program, TensorParam
from tileops.ir.stmt import (
    Alloc,
    ArgReduce,
    Body,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Reduce,
    Stmt,
    Store,
)
from tileops.passes.context import Context
from tileops.passes.drop_empty import drop_empty
from tileops.target import parse_target

INT32, FLOAT32 = DType("int32"), DType("float32")
ZERO, TWO = fold.const(0), fold.const(2)
N, I, BX = Var(INT32, 0, "N"), Var(INT32, 1, "i"), Var(INT32, 2, "bx")
TENSOR = Buffer(3, "A", (TWO, TWO), FLOAT32, "global")
TILE = Buffer(4, "t", (TWO, TWO), FLOAT32, "fragment")
ROW = Buffer(5, "r", (TWO,), FLOAT32, "fragment")
STORE = Store(TENSOR, (ZERO, ZERO), fold.const(1.0))


def of(body: Body) -> Program:
    launch = Launch((fold.const(1),), (BX,), 32, (Alloc(TILE), Alloc(ROW), *body))
    return Program("p", (TensorParam("A", TENSOR),), (), (), (launch,), ())


def left(*body: Stmt) -> Body:
    made = drop_empty(of(body), Context(parse_target("cuda:sm_90")))
    return made.launches[0].body[2:]


def part(buffer: Buffer, *extents: int) -> Region:
    return Region(buffer, (ZERO,) * len(extents), tuple(map(fold.const, extents)))


def nest(*extents: int, body: Body = (STORE,)) -> Parallel:
    variables = tuple(Var(INT32, 10 + n, f"v{n}") for n in range(len(extents)))
    return Parallel(variables, tuple(map(fold.const, extents)), body)


def loop(start: int, stop: int, body: Body = (STORE,)) -> For:
    return For("serial", I, fold.const(start), fold.const(stop), body)


@pytest.mark.parametrize(
    "stmt",
    [
        nest(0),
        nest(4, 0),
        nest(4, body=(nest(0),)),
        loop(0, 0),
        loop(3, 2),
        loop(0, 5, (nest(0),)),
        If(fold.binary("lt", N, TWO), (nest(0),), (loop(1, 1),)),
        Copy(part(TENSOR, 0, 2), part(TILE, 0, 2)),
        Fill(part(TILE, 2, 0), fold.const(1.0)),
        Reduce("sum", part(TILE, 2, 0), part(ROW, 2), 1, False),
        Reduce("sum", part(TILE, 0, 2), part(ROW, 0), 1, True),
        Gemm(part(TILE, 2, 0), part(TILE, 0, 2), part(TILE, 2, 2), False, False, fold.const(False)),
        Gemm(part(TILE, 0, 2), part(TILE, 2, 2), part(TILE, 0, 2), False, False, fold.const(True)),
    ],
)
def test_what_works_on_nothing_goes(stmt: Stmt) -> None:
    assert left(stmt) == ()


@pytest.mark.parametrize(
    "stmt",
    [nest(1), nest(4, 2), loop(0, 1), loop(-1, 0), Fill(part(TILE, 2, 1), fold.const(1.0)), STORE],
)
def test_the_rest_stays_as_it_is(stmt: Stmt) -> None:
    program = of((stmt,))
    assert drop_empty(program, Context(parse_target("cpu"))) is program


def test_a_branch_that_is_left_stays() -> None:
    cond = fold.binary("lt", N, TWO)
    assert left(If(cond, (nest(0),), (STORE,))) == (If(cond, (), (STORE,)),)
    assert left(loop(0, 2, (nest(0), STORE))) == (loop(0, 2, (STORE,)),)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("sum", 0.0), ("max", -float("inf")), ("min", float("inf")), ("absmax", 0.0), ("abssum", 0.0)],
)
def test_a_reduction_of_nothing_leaves_what_it_starts_from(kind: str, value: float) -> None:
    reduced = Reduce(kind, part(TILE, 2, 0), part(ROW, 2), 1, True)
    assert left(reduced) == (Fill(part(ROW, 2), fold.const(value)),)


def test_the_place_in_nothing_is_zero() -> None:
    row = dataclasses.replace(ROW, dtype=INT32)
    place = ArgReduce("max", part(TILE, 2, 0), part(row, 2), 1)
    assert left(place) == (Fill(part(row, 2), fold.const(0)),)


def test_a_product_over_nothing_is_zero() -> None:
    c, clear = part(TILE, 2, 2), fold.binary("eq", N, ZERO)
    a, b = part(TILE, 2, 0), part(TILE, 0, 2)
    zero = Fill(c, fold.const(0.0))
    assert left(Gemm(a, b, c, False, False, fold.const(True))) == (zero,)
    assert left(Gemm(a, b, c, False, False, clear)) == (If(clear, (zero,)),)


def test_the_printed_program_shows_what_is_left() -> None:
    made = drop_empty(of((nest(0), STORE)), Context(parse_target("cpu")))
    assert "parallel" not in print_program(made)
    assert "%A.3[0, 0] = 1.0f32" in print_program(made)

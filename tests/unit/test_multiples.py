"""Numbers that divide values: constants, sums, products, and what variables are bound to."""

from __future__ import annotations

import pytest

from tileops.dtypes import INT32, INT64
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.stmt import Bind
from tileops.passes.hopper.multiples import Multiples

C = fold.const
LOOP, BOUND, SIZE = Var(INT32, 0, "k"), Var(INT32, 1, "first"), Var(INT32, 2, "n")
TABLE = Buffer(3, "offsets", (C(8),), INT32, "global")
BODY = (Bind(BOUND, fold.mul(LOOP, C(64))),)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (C(0), 0),
        (C(-24), 24),
        (LOOP, 1),
        (SIZE, 16),
        (BOUND, 64),
        (fold.add(BOUND, C(8)), 8),
        (fold.sub(BOUND, C(24)), 8),
        (fold.mul(fold.add(LOOP, C(1)), C(48)), 48),
        (fold.mul(SIZE, C(2)), 32),
        (fold.cast(BOUND, INT64), 64),
        (fold.binary("min", BOUND, SIZE), 16),
        (fold.binary("floordiv", BOUND, C(2)), 1),
        (fold.binary("floormod", BOUND, C(96)), 32),
        (fold.select(fold.binary("lt", LOOP, C(2)), BOUND, C(0)), 64),
        (Load(INT32, TABLE, (LOOP,)), 1),
        (fold.mul(Load(INT32, TABLE, (LOOP,)), C(8)), 8),
    ],
)
def test_what_divides_a_value(expr: Expr, expected: int) -> None:
    assert Multiples(BODY, frozenset({SIZE.id})).of(expr) == expected

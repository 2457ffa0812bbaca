"""What interval analysis knows of block, loop and size variables; checked by enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.integers import I32, X, Y, evaluate, expressions, place
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Expr, Var
from tileops.ir.program import Program
from tileops.ir.stmt import For, Launch
from tileops.passes.analyze_ranges import COUNT, Interval, Ranges, launch_ranges

N = Var(I32, 2, "N")


@settings(max_examples=1000, deadline=None)
@given(expressions(), st.integers(-3, 3), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4))
def test_every_value_lies_in_the_interval(expr: Expr, lo: int, n: int, lo2: int, m: int) -> None:
    ranges = Ranges({0: Interval(lo, lo + n - 1), 1: Interval(lo2, lo2 + m - 1)})
    value, index = ranges.of(expr), ranges.exact(expr)
    for x, y in itertools.product(range(lo, lo + n), range(lo2, lo2 + m)):
        for found, at in (
            (value, evaluate(expr, {0: x, 1: y})),
            (index, place(expr, {0: x, 1: y})),
        ):
            assert found.lo <= at <= found.hi


@pytest.mark.parametrize(("index", "below"), [(X, True), (fold.add(X, fold.const(1)), False)])
def test_a_loop_variable_is_below_its_own_symbolic_stop(index: Expr, below: bool) -> None:
    ranges = Ranges({N.id: COUNT}).inside(For("serial", X, fold.const(0), N, ()))
    assert ranges.is_below(index, N) is below
    assert ranges.is_non_negative(X)


def test_a_block_index_times_the_tile_stays_inside_a_static_shape() -> None:
    launch = Launch((fold.const(32),), (X,), 128, ())
    program = Program("program", (), (), (), (launch,), ())
    ranges = launch_ranges(program, launch).with_span(Y, fold.const(0), fold.const(128))
    index = fold.add(fold.mul(X, fold.const(128)), Y)
    assert ranges.of(index) == Interval(0, 4095)
    assert ranges.is_below(index, fold.const(4096))
    assert not ranges.is_below(index, fold.const(4095))


U32 = DType("uint32")


def test_unsigned_arithmetic_wraps() -> None:
    ranges = Ranges({0: Interval(0, 31)})
    unsigned = fold.cast(X, U32)
    assert ranges.of(fold.add(unsigned, fold.const(5, U32))) == Interval(5, 36)
    assert ranges.of(fold.sub(unsigned, fold.const(5, U32))) == Interval(0, 2**32 - 1)
    assert ranges.of(fold.cast(fold.sub(X, fold.const(5)), U32)) == Interval(0, 2**32 - 1)


def test_values_wrap_and_indices_do_not() -> None:
    ranges = Ranges({0: Interval(0, 31), N.id: COUNT})
    product = fold.mul(X, fold.const(1 << 28))
    assert ranges.of(product) == Interval(-(2**31), 2**31 - 1)
    assert ranges.exact(product) == Interval(0, 31 << 28)
    # The sign of a shifted or divided value is that of what wrapped.
    assert not ranges.is_non_negative(fold.binary("shr", product, fold.const(3)))
    assert not ranges.starts_inside(fold.binary("floordiv", product, fold.const(3)))
    # Sizes are taken as fitting, times other sizes and factors too; times elements they may not.
    assert ranges.is_non_negative(fold.mul(fold.mul(N, N), fold.const(64)))
    read = fold.binary("max", Y, fold.const(0))
    assert not ranges.is_non_negative(fold.mul(read, N))

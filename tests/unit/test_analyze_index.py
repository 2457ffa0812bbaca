"""Affine index maps and the guards that they need."""

from __future__ import annotations

import itertools

from hypothesis import given, settings

from tests.unit.integers import X, Y, evaluate, expressions, place
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.passes.analyze_index import affine, in_width, needs_guard, region_guards
from tileops.passes.analyze_ranges import Interval, Ranges

I32 = DType("int32")
I, J, K = Var(I32, 0, "i"), Var(I32, 1, "j"), Var(I32, 2, "k")
C = fold.const


def test_a_sum_of_multiples_is_affine() -> None:
    found = affine(fold.add(fold.mul(I, C(4)), fold.sub(K, J)), {0, 1})
    assert found is not None
    assert found.coefficients == ((0, 4), (1, -1))
    assert found.rest == K


def test_terms_that_cancel_vanish() -> None:
    found = affine(fold.sub(fold.add(I, K), I), {0})
    assert found is not None
    assert found.coefficients == ()


def test_a_plain_variable_is_recognised() -> None:
    found = affine(I, {0, 1})
    assert found is not None
    assert found.coefficients == ((0, 1),)
    assert found.rest == fold.const(0)


def test_products_and_divisions_of_variables_are_not_affine() -> None:
    assert affine(fold.mul(I, J), {0, 1}) is None
    assert affine(fold.binary("floordiv", I, C(2)), {0}) is None


def test_division_of_an_invariant_is_part_of_the_rest() -> None:
    found = affine(fold.add(I, fold.binary("floordiv", K, C(2))), {0})
    assert found is not None
    assert found.coefficients == ((0, 1),)


@settings(max_examples=1000, deadline=None)
@given(expressions())
def test_an_affine_map_is_worth_what_its_expression_is(expr: Expr) -> None:
    for variables in ({X.id}, {Y.id}, {X.id, Y.id}):
        found = affine(expr, variables)
        for x, y in itertools.product((-3, 0, 7), (-2, 1, 40)) if found is not None else ():
            env = {X.id: x, Y.id: y}
            at = sum(c * env[v] for v, c in found.coefficients) + place(found.rest, env)
            assert at == place(expr, env)


# All but the edges of the type: a tensor does not reach them.
@settings(max_examples=300, deadline=None)
@given(expressions())
def test_an_index_in_its_width_is_inside_a_tensor_where_the_exact_one_is(expr: Expr) -> None:
    ranges = Ranges({X.id: Interval(-3, 7), Y.id: Interval(-2, 40)})
    chosen = in_width(expr, ranges)
    for x, y in itertools.product((-3, 0, 7), (-2, 1, 40)):
        env = {X.id: x, Y.id: y}
        exact, got = place(expr, env), evaluate(chosen, env)
        assert got == exact or (not 0 <= exact < 2**31 - 2**24 and not 0 <= got < 2**31 - 2**24)


def test_an_index_of_elements_read_is_computed_wide_only_where_it_must_be() -> None:
    read, i = Var(DType("int32"), 7, "read"), fold.const(63)
    ranges = Ranges()
    assert in_width(fold.sub(fold.add(read, i), fold.const(5)), ranges).dtype == "int32"
    assert in_width(fold.mul(read, fold.const(64)), ranges).dtype == "int64"


def test_what_wraps_is_not_affine() -> None:
    unsigned = fold.cast(I, DType("uint32"))
    assert affine(fold.cast(unsigned, DType("int64")), {0}) is None
    small = fold.cast(I, DType("int8"))
    assert affine(fold.add(small, small), {0}) is None


def test_guards_are_needed_only_where_a_bound_can_break() -> None:
    ranges = Ranges({0: Interval(0, 127), 2: Interval(-1, 3)})
    assert needs_guard(I, C(128), ranges) == (False, False)
    assert needs_guard(I, C(127), ranges) == (False, True)
    assert needs_guard(K, C(8), ranges) == (True, False)


def test_a_region_is_guarded_by_its_last_element() -> None:
    buffer = Buffer(9, "A", (C(100), C(64)), DType("float16"), "global")
    ranges = Ranges({0: Interval(0, 3)})
    region = Region(buffer, (fold.mul(I, C(32)), C(0)), (C(32), C(64)))
    assert region_guards(region, ranges) == ((False, True), (False, False))


def test_a_whole_dimension_of_symbolic_extent_needs_no_guard() -> None:
    size = Var(I32, 7, "N")
    buffer = Buffer(9, "A", (size,), DType("float16"), "global")
    assert region_guards(Region(buffer, (C(0),), (size,)), Ranges({})) == ((False, False),)

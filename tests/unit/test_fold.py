"""Smart constructors: promotion, folding, and what they refuse."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.exactly import converted, to_float
from tileops.dtypes import DType, promote
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Binary, Cast, Const, Var
from tileops.ir.program import const_value
from tileops.passes.encodings import E8M0

I32, I64, F16, F32, U8 = (DType(n) for n in ("int32", "int64", "float16", "float32", "uint8"))
X = Var(I32, 0, "x")

NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "floormod": np.mod,
    "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("op", sorted(NUMPY))
@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64", "uint32"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_constants_fold_as_numpy_computes_them(op: str, name: str, data: st.DataObject) -> None:
    info = np.iinfo(name)
    a, b = (data.draw(st.integers(int(info.min), int(info.max))) for _ in range(2))
    if op in ("floordiv", "floormod") and (b == 0 or (a == info.min and b == -1)):
        return
    dtype = DType(name)
    with np.errstate(over="ignore"):
        expected = int(NUMPY[op](np.array(a, name), np.array(b, name)))
    assert fold.binary(op, fold.const(a, dtype), fold.const(b, dtype)) == Const(dtype, expected)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("int32", "int64", "int64"), ("int32", "uint32", "uint32"), ("float16", "float32", "float32"),
        ("float16", "bfloat16", "float32"), ("int64", "float16", "float16"), ("bool", "int8", "int8"),
        ("float8_e4m3fn", "float8_e5m2", "float32"), ("float8_e4m3fn", "float16", "float16"),
    ],
)  # fmt: skip
def test_promotion(a: str, b: str, expected: str) -> None:
    assert promote(DType(a), DType(b)) == expected
    assert promote(DType(b), DType(a)) == expected


def test_neutral_elements_vanish() -> None:
    assert fold.add(X, fold.const(0)) is X
    assert fold.mul(fold.const(1), X) is X
    assert fold.mul(X, fold.const(0)) == fold.const(0)
    assert fold.binary("floordiv", X, fold.const(1)) is X


def test_floats_narrower_than_64_bits_are_left_to_the_device() -> None:
    a, b = fold.const(1.0, F32), fold.const(3.0, F32)
    assert isinstance(fold.binary("div", a, b), Binary)


def test_a_literal_keeps_its_value_until_it_is_rounded_at_run_time() -> None:
    assert isinstance(fold.cast(fold.const(0.1), F16), Cast)
    assert fold.cast(fold.const(0.0), F16) == Const(F16, 0.0)


@pytest.mark.parametrize("op", ["and", "or", "xor", "shl"])
def test_bit_operations_refuse_floats(op: str) -> None:
    with pytest.raises(ProgramTypeError):
        fold.binary(op, Var(F32, 1, "f"), Var(F32, 2, "g"))


def test_true_division_refuses_integers() -> None:
    with pytest.raises(ProgramTypeError, match="ambiguous"):
        fold.binary("div", X, fold.const(2))


def test_constant_division_by_zero_is_an_error() -> None:
    with pytest.raises(ProgramValueError, match="division by zero"):
        fold.binary("floordiv", fold.const(1), fold.const(0))


def test_logic_with_a_constant_folds() -> None:
    p = Var(DType("bool"), 3, "p")
    assert fold.binary("land", fold.const(True), p) is p
    assert fold.binary("lor", p, fold.const(True)) == fold.const(True)
    assert fold.unary("not", fold.const(False)) == fold.const(True)


def test_a_literal_outside_int32_is_int64() -> None:
    assert fold.const(2**31).dtype == "int64"
    assert fold.const(-(2**31)).dtype == "int32"


def test_a_literal_outside_int64_never_wraps_on_its_way_to_a_float() -> None:
    assert fold.const(2**63 - 1).dtype == DType("int64")
    for value in (2**63, 2**64 - 1):
        assert fold.const(value) == Const(DType("uint64"), value)
        for name in ("float32", "float64"):
            assert fold.binary("mul", Var(DType(name), 0, "x"), fold.const(value)).b == Const(
                DType(name), float(value)
            )
    for value in (2**64, -(2**63) - 1, 10**400):
        with pytest.raises(ProgramValueError, match=f"a literal of {value.bit_length()} bits"):
            fold.const(value)


def test_wrapping_follows_twos_complement() -> None:
    assert fold.const(300, U8).value == 44
    assert fold.wrap(2**31, I32) == -(2**31)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (300.7, "int8", 127),
        (-300.0, "int8", -128),
        (-1.5, "uint8", 0),
        (9.0, "int4", 7),
        (7.9, "int4", 7),
    ],
)
def test_a_float_constant_saturates_as_at_run_time(value: float, name: str, expected: int) -> None:
    assert fold.cast(Const(F32, value), DType(name)) == Const(DType(name), expected)


NAN = math.nan
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_a_constant_nan_gives_the_other_operand(op: str, name: str) -> None:
    dtype = DType(name)
    nan, x = Const(dtype, NAN), Var(dtype, 0, "x")
    one = Const(dtype, 1.0)
    assert fold.binary(op, x, nan) == x
    assert fold.binary(op, nan, x) == x
    assert fold.binary(op, nan, one) == fold.binary(op, one, nan) == one
    both = fold.binary(op, nan, nan)
    assert isinstance(both, Const)
    assert math.isnan(both.value)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (2**60 + 2**36 + 1, "float32", 2.0**60 + 2.0**37),  # float64 would lose the 1 and tie
        (-(2**60) - 2**36 - 1, "float32", -(2.0**60) - 2.0**37),
        (2**60 + 2**36, "float32", 2.0**60),
        (2**24 + 1, "float32", 2.0**24),
        (2**24 + 3, "float32", 2.0**24 + 4),
        (2**63 - 1, "float64", 2.0**63),
        (2**53 + 1, "float64", 2.0**53),
    ],
)
def test_an_integer_constant_becomes_a_float_by_one_rounding(
    value: int, name: str, expected: float
) -> None:
    assert fold.cast(Const(I64, value), DType(name)) == Const(DType(name), expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.1, 0.10000000149011612), (1e39, math.inf), (-1e39, -math.inf), (2.0**-150, 0.0)],
)
def test_a_float64_constant_is_rounded_where_it_becomes_float32(
    value: float, expected: float
) -> None:
    cast = fold.cast(Const(DType("float64"), value), F32)
    assert cast == Const(F32, expected)
    assert fold.settled(Const(F32, value)) == Const(F32, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_literals_of_16_bits_become_integers_where_they_are_written(dtype: str) -> None:
    """A compiler may leave such a conversion undefined: it folds what no instruction computes."""
    rng = random.Random(dtype)
    values = [2.0**31, -(2.0**31), 2.0**63, 2.0**64, 65504.0, 65519.0, 65520.0, 1e-8, 0.5, -0.0]
    values += [math.nan, math.inf, -math.inf, 2**64 - 1, -(2**63), 257, 2049, 2051]
    values += [rng.uniform(-2, 2) * 2.0 ** rng.randint(-30, 70) for _ in range(200)]
    for value in values:
        for target in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
            literal = fold.cast(fold.cast(fold.const(value), DType(dtype)), DType(target))
            exact = value if value != value or math.isinf(value) else Fraction(value)
            wanted = converted(to_float(exact, dtype), dtype, target)
            assert const_value(literal) == wanted, (value, target)


def test_literals_become_the_power_of_two_that_is_nearest() -> None:
    three_halves = 3 * 2**62
    for value in (three_halves - 1, three_halves, 2**64 - 1, 1, 3, 1.4999999, 2.0**-127, 2.0**-126):
        wanted = to_float(Fraction(value), "float8_e8m0fnu")
        assert E8M0.literal(value).value == wanted, value

"""Owns integer arithmetic, comparison, selection, bit operations and conversions of scalars."""

from __future__ import annotations

import math
from functools import reduce

from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.language.value import (
    Value,
    absolute,
    as_dtype,
    binary,
    to_expr,
    unary,
    wrap,
)


def ceildiv(a: object, b: object) -> object:
    """``-(-a // b)``, the quotient rounded up: a Python int for two ints, else a value.

    Of integers it is exact wherever it fits their type.
    """
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b) if b else _division_by_zero()
    return binary("ceildiv", a, b)


def align_up(a: object, b: object) -> object:
    """``ceildiv(a, b) * b``: for ``b`` above 0 the least multiple of it that is at least ``a``."""
    if isinstance(a, int) and isinstance(b, int):
        return (-(-a // b) if b else _division_by_zero()) * b
    return binary("mul", ceildiv(a, b), b)


def floordiv(a: object, b: object) -> object:
    """``a // b``, rounded towards minus infinity."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else _division_by_zero()
    return binary("floordiv", a, b)


def floormod(a: object, b: object) -> object:
    """``a % b`` with the sign of ``b``."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else _division_by_zero()
    return binary("floormod", a, b)


def truncdiv(a: object, b: object) -> object:
    """``a / b`` rounded towards zero, as in C."""
    return _fold_ints("truncdiv", a, b)


def truncmod(a: object, b: object) -> object:
    """The remainder of ``truncdiv``, with the sign of ``a``."""
    return _fold_ints("truncmod", a, b)


def fmod(x: object, y: object) -> Value:
    """The remainder of ``x / y`` truncated, of floats, with the sign of ``x``; it is exact."""
    a, b = to_expr(x, "an argument of T.fmod"), to_expr(y, "an argument of T.fmod")
    if not (a.dtype.is_float or b.dtype.is_float):
        raise ProgramTypeError(
            "T.fmod takes floats; T.truncmod takes integers", found=f"{a.dtype} and {b.dtype}"
        )
    return binary("truncmod", x, y)


def _fold_ints(op: str, a: object, b: object) -> object:
    out = binary(op, a, b)
    return out.value if isinstance(a, int) and isinstance(b, int) else out


def _division_by_zero() -> int:
    raise ProgramValueError("division by zero")


def minimum(a: object, b: object) -> object:
    """The smaller of two scalars; a number is preferred to NaN, and two NaNs give NaN."""
    if isinstance(a, (bool, int, float)) and isinstance(b, (bool, int, float)):
        return fold.extreme("min", a, b)
    return binary("min", a, b)


def maximum(a: object, b: object) -> object:
    """The larger of two scalars; a number is preferred to NaN, and two NaNs give NaN."""
    if isinstance(a, (bool, int, float)) and isinstance(b, (bool, int, float)):
        return fold.extreme("max", a, b)
    return binary("max", a, b)


def clamp(dst: object, min_val: object, max_val: object) -> object:
    """``min(max(dst, min_val), max_val)``: a NaN becomes a bound, a bound that is NaN is none."""
    return minimum(maximum(dst, min_val), max_val)


def absolute_value(x: object) -> Value:
    """``|x|`` of an integer or float."""
    return absolute(x)


def if_then_else(cond: object, a: object, b: object) -> Value:
    """``a`` where ``cond`` holds, else ``b``; a read in the branch not taken is not performed."""
    condition = to_expr(cond, "the condition")
    return wrap(fold.select(condition, to_expr(a), to_expr(b)), cond, a, b)


def Select(cond: object, a: object, b: object) -> Value:
    """``a`` where ``cond`` holds, else ``b``; both sides are evaluated."""
    return if_then_else(cond, a, b)


def logical_and(*conditions: object) -> Value:
    """True where all conditions hold."""
    return _logical("land", conditions)


def logical_or(*conditions: object) -> Value:
    """True where any condition holds."""
    return _logical("lor", conditions)


def _logical(op: str, conditions: tuple[object, ...]) -> Value:
    terms = (
        conditions[0]
        if len(conditions) == 1 and isinstance(conditions[0], (tuple, list))
        else conditions
    )
    exprs = [fold.truth(to_expr(c, "a condition")) for c in terms]
    if not exprs:
        raise ProgramValueError("a logical operation needs at least one condition")
    return wrap(reduce(lambda x, y: fold.binary(op, x, y), exprs), *terms)


def logical_not(cond: object) -> Value:
    """True where ``cond`` does not hold."""
    return unary("not", cond)


def shift_left(a: object, b: object) -> Value:
    """``a << b``."""
    return binary("shl", a, b)


def shift_right(a: object, b: object) -> Value:
    """``a >> b``; arithmetic for signed integers."""
    return binary("shr", a, b)


def bitwise_and(a: object, b: object) -> Value:
    """``a & b`` of integers."""
    return binary("and", a, b)


def bitwise_or(a: object, b: object) -> Value:
    """``a | b`` of integers."""
    return binary("or", a, b)


def bitwise_xor(a: object, b: object) -> Value:
    """``a ^ b`` of integers."""
    return binary("xor", a, b)


def bitwise_not(a: object) -> Value:
    """``~a`` of an integer."""
    return unary("invert", a)


_HAS_INFINITY = ("float16", "bfloat16", "tfloat32", "float32", "float64", "float8_e5m2")
# Largest finite value of each float, from the formats' definitions.
_FLOAT_MAX = {
    "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
    "tfloat32": (2 - 2**-10) * 2.0**127,
    "float32": (2 - 2**-23) * 2.0**127,
    "float64": (2 - 2**-52) * 2.0**1023,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float4_e2m1fn": 6.0,
}


def infinity(dtype: object) -> Value:
    """Positive infinity of a float dtype that has one."""
    kind = as_dtype(dtype)
    if kind not in _HAS_INFINITY:
        raise ProgramTypeError(
            "T.infinity: the dtype has no infinity",
            expected=", ".join(_HAS_INFINITY),
            found=str(kind),
        )
    return Value(fold.const(math.inf, kind))


def max_value(dtype: object) -> Value:
    """The largest finite value of ``dtype``."""
    kind = as_dtype(dtype)
    if kind.is_float:
        return Value(fold.const(_FLOAT_MAX[str(kind)], kind))
    return Value(fold.const(True if kind.is_bool else kind.limits[1], kind))


def min_value(dtype: object) -> Value:
    """The smallest finite value of ``dtype``."""
    kind = as_dtype(dtype)
    if kind.is_float:
        return Value(fold.const(-_FLOAT_MAX[str(kind)], kind))
    return Value(fold.const(False if kind.is_bool else kind.limits[0], kind))


def index_to_coordinates(index: object, shape: object) -> list[object]:
    """The row-major coordinates of a flat index in ``shape``."""
    dims = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    out: list[object] = []
    for extent in reversed(dims):
        out.append(floormod(index, extent))
        index = floordiv(index, extent)
    return out[::-1]

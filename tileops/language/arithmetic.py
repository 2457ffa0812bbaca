"""Integer arithmetic, comparison, selection, bit operations and limits of scalars."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.language.value import Value, as_dtype, as_tuple, binary, named, to_expr, unary, wrap

__all__ = [
    "Select", "align_up", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceildiv",
    "clamp", "floordiv", "floormod", "fmod", "if_then_else", "index_to_coordinates", "infinity",
    "max_value", "min_value", "shift_left", "shift_right", "truncdiv", "truncmod",
]  # fmt: skip

_Binary = Callable[[object, object], object]


def _division(op: str, of_ints: Callable[[int, int], int], text: str) -> _Binary:
    def function(a: object, b: object) -> object:
        if not (isinstance(a, int) and isinstance(b, int)):
            return binary(op, a, b)
        if not b:
            raise ProgramValueError("division by zero")
        return of_ints(a, b)

    return named(op, text, function)


ceildiv = _division(
    "ceildiv",
    lambda a, b: -(-a // b),
    """``-(-a // b)``, the quotient rounded up: a Python int for two ints, else a value.

    Of integers it is exact if the result fits their type.
    """,
)
floordiv = _division("floordiv", operator.floordiv, "``a // b``, rounded towards minus infinity.")
floormod = _division("floormod", operator.mod, "``a % b`` with the sign of ``b``.")


def align_up(a: object, b: object) -> object:
    """``ceildiv(a, b) * b``: for ``b`` above 0 the least multiple of it that is at least ``a``."""
    count = ceildiv(a, b)
    if isinstance(count, int) and isinstance(b, int):
        return count * b
    return binary("mul", count, b)


def _truncating(op: str, text: str) -> _Binary:
    def function(a: object, b: object) -> object:
        out = binary(op, a, b)
        return out.value if isinstance(a, int) and isinstance(b, int) else out

    return named(op, text, function)


truncdiv = _truncating("truncdiv", "``a / b`` rounded towards zero, as in C.")
truncmod = _truncating("truncmod", "The remainder of ``truncdiv``, with the sign of ``a``.")


def fmod(x: object, y: object) -> Value:
    """The remainder of ``x / y`` truncated, of floats, with the sign of ``x``; it is exact."""
    a, b = to_expr(x, "an argument of T.fmod"), to_expr(y, "an argument of T.fmod")
    if not (a.dtype.is_float or b.dtype.is_float):
        raise ProgramTypeError(
            "T.fmod takes floats; T.truncmod takes integers", found=f"{a.dtype} and {b.dtype}"
        )
    return binary("truncmod", x, y)


def _extreme(name: str, op: str, text: str) -> _Binary:
    def function(a: object, b: object) -> object:
        if isinstance(a, (bool, int, float)) and isinstance(b, (bool, int, float)):
            return fold.extreme(op, a, b)
        return binary(op, a, b)

    text += " of two scalars; a number is preferred to NaN, and two NaNs give NaN."
    return named(name, text, function)


minimum = _extreme("minimum", "min", "The smaller")
maximum = _extreme("maximum", "max", "The larger")


def clamp(dst: object, min_val: object, max_val: object) -> object:
    """``min(max(dst, min_val), max_val)``: a NaN becomes a bound; a NaN bound is ignored."""
    return minimum(maximum(dst, min_val), max_val)


def if_then_else(cond: object, a: object, b: object) -> Value:
    """``a`` if ``cond`` holds, else ``b``; a read in the branch not taken is not performed."""
    condition = to_expr(cond, "the condition")
    return wrap(fold.select(condition, to_expr(a), to_expr(b)), cond, a, b)


def Select(cond: object, a: object, b: object) -> Value:
    """``a`` if ``cond`` holds, else ``b``; both sides are evaluated."""
    return if_then_else(cond, a, b)


def _logical(name: str, op: str, text: str) -> Callable[..., Value]:
    def function(*conditions: object) -> Value:
        terms = as_tuple(conditions[0]) if len(conditions) == 1 else conditions
        exprs = [fold.truth(to_expr(c, "a condition")) for c in terms]
        if not exprs:
            raise ProgramValueError("a logical operation needs at least one condition")
        return wrap(reduce(lambda x, y: fold.binary(op, x, y), exprs), *terms)

    return named(name, text, function)


logical_and = _logical("logical_and", "land", "True if all conditions hold.")
logical_or = _logical("logical_or", "lor", "True if any condition holds.")


logical_not = named("logical_not", "True if ``cond`` is false.", lambda cond: unary("not", cond))
bitwise_not = named("bitwise_not", "``~a`` of an integer.", lambda a: unary("invert", a))


def _bitwise(name: str, op: str, text: str) -> Callable[[object, object], Value]:
    return named(name, text, lambda a, b: binary(op, a, b))


bitwise_and = _bitwise("bitwise_and", "and", "``a & b`` of integers.")
bitwise_or = _bitwise("bitwise_or", "or", "``a | b`` of integers.")
bitwise_xor = _bitwise("bitwise_xor", "xor", "``a ^ b`` of integers.")
shift_left = _bitwise("shift_left", "shl", "``a << b``.")
shift_right = _bitwise("shift_right", "shr", "``a >> b``; arithmetic for signed integers.")

HAS_INFINITY = ("float16", "bfloat16", "tfloat32", "float32", "float64", "float8_e5m2")
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
    if kind not in HAS_INFINITY:
        raise ProgramTypeError(
            "T.infinity: the dtype has no infinity",
            expected=", ".join(HAS_INFINITY),
            found=str(kind),
        )
    return Value(fold.const(math.inf, kind))


def max_value(dtype: object) -> Value:
    """The largest finite value of ``dtype``."""
    return Value(fold.const(_limits(as_dtype(dtype))[1], as_dtype(dtype)))


def min_value(dtype: object) -> Value:
    """The smallest finite value of ``dtype``."""
    return Value(fold.const(_limits(as_dtype(dtype))[0], as_dtype(dtype)))


def _limits(dtype: DType) -> tuple[int | float, int | float]:
    if dtype.is_bool:
        return False, True
    if dtype.is_float:
        return -_FLOAT_MAX[str(dtype)], _FLOAT_MAX[str(dtype)]
    return dtype.limits


def index_to_coordinates(index: object, shape: object) -> list[object]:
    """The row-major coordinates of a flat index in ``shape``."""
    dims = as_tuple(shape)
    out: list[object] = []
    for extent in reversed(dims):
        out.append(floormod(index, extent))
        index = floordiv(index, extent)
    return out[::-1]

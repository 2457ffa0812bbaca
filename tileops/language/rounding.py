"""Owns the arithmetic that names its rounding: ``T.ieee_*``.

``rounding_mode`` is "rn" (to nearest, ties to even), "rz" (towards zero), "ru" (towards plus
infinity) or "rd" (towards minus infinity), as IEEE 754-2019 section 4.3 defines them. Each result
is the exact one rounded once; no compiler fuses it with its neighbours.
"""

from __future__ import annotations

from tileops.dtypes import DType, promote
from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.language.value import FLOAT32, Value, to_expr, wrap

_MODES = ("rn", "rz", "ru", "rd")
_WIDE = ("float32", "float64")


def _rounded(name: str, op: str, mode: str, *values: object) -> Value:
    if mode not in _MODES:
        raise ProgramValueError(
            f"T.{name}: unknown rounding_mode",
            expected=", ".join(map(repr, _MODES)),
            found=repr(mode),
        )
    args = [to_expr(v, f"an argument of T.{name}") for v in values]
    args = [a if a.dtype.is_float else fold.cast(a, FLOAT32) for a in args]
    dtype: DType = args[0].dtype
    for a in args[1:]:
        dtype = promote(dtype, a.dtype)
    if mode != "rn" and dtype not in _WIDE:
        raise UnsupportedConstructError(
            f"T.{name} with rounding_mode={mode!r}",
            expected="operands of float32 or float64; narrower ones are rounded to nearest only",
            found=str(dtype),
        )
    return wrap(fold.call(f"{op}_{mode}", *(fold.cast(a, dtype) for a in args)), *values)


def ieee_add(a: object, b: object, rounding_mode: str = "rn") -> Value:
    """``a + b`` rounded once."""
    return _rounded("ieee_add", "add", rounding_mode, a, b)


def ieee_sub(a: object, b: object, rounding_mode: str = "rn") -> Value:
    """``a - b`` rounded once."""
    return _rounded("ieee_sub", "sub", rounding_mode, a, b)


def ieee_mul(a: object, b: object, rounding_mode: str = "rn") -> Value:
    """``a * b`` rounded once."""
    return _rounded("ieee_mul", "mul", rounding_mode, a, b)


def ieee_fdiv(a: object, b: object, rounding_mode: str = "rn") -> Value:
    """``a / b`` rounded once."""
    return _rounded("ieee_fdiv", "div", rounding_mode, a, b)


def ieee_fmaf(a: object, b: object, c: object, rounding_mode: str = "rn") -> Value:
    """``a * b + c`` rounded once."""
    return _rounded("ieee_fmaf", "fma", rounding_mode, a, b, c)


def ieee_frcp(x: object, rounding_mode: str = "rn") -> Value:
    """``1 / x`` rounded once."""
    return _rounded("ieee_frcp", "div", rounding_mode, 1.0, x)


def ieee_fsqrt(x: object, rounding_mode: str = "rn") -> Value:
    """Square root rounded once."""
    return _rounded("ieee_fsqrt", "sqrt", rounding_mode, x)


def ieee_frsqrt(x: object, rounding_mode: str = "rn") -> Value:
    """One over the square root of a float32 or narrower, rounded once to nearest."""
    expr = to_expr(x)
    if rounding_mode in _MODES and (rounding_mode != "rn" or expr.dtype == "float64"):
        raise UnsupportedConstructError(
            f"T.ieee_frsqrt with rounding_mode={rounding_mode!r} of {expr.dtype}",
            expected="rounding_mode='rn' and at most float32",
        )
    return _rounded("ieee_frsqrt", "rsqrt", rounding_mode, x)

"""The math functions of scalars, in the dtype of the argument, and the ``T.ieee_*`` arithmetic.

Integer arguments become float32 first. ``T.ieee_*`` names its rounding, as IEEE 754-2019 section
4.3 defines it: the result is the exact one rounded once, and no compiler fuses it with its
neighbours.
"""

from __future__ import annotations

from collections.abc import Callable

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.language.operands import one_of
from tileops.language.value import (
    BOOL,
    INT32,
    Value,
    float_arguments,
    math_call,
    named,
    power,
    to_expr,
    wrap,
)

__all__ = [
    "acos", "asin", "atan", "atan2", "ceil", "clz", "copysign", "cos", "cosh", "erf", "exp",
    "exp2", "exp10", "floor", "fma", "ieee_add", "ieee_fdiv", "ieee_fmaf", "ieee_frcp",
    "ieee_frsqrt", "ieee_fsqrt", "ieee_mul", "ieee_sub", "isfinite", "isinf", "isnan", "log",
    "log1p", "log2", "log10", "nearbyint", "popcount", "pow", "pow_of_int", "round", "rsqrt",
    "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip

_Unary = Callable[[object], Value]


def _unary(name: str, text: str) -> _Unary:
    return named(name, text + " In the dtype of ``x``.", lambda x: math_call(name, x))


exp = _unary("exp", "e to the power ``x``.")
exp2 = _unary("exp2", "2 to the power ``x``.")
exp10 = _unary("exp10", "10 to the power ``x``.")
log = _unary("log", "Natural logarithm.")
log2 = _unary("log2", "Logarithm to base 2.")
log10 = _unary("log10", "Logarithm to base 10.")
log1p = _unary("log1p", "Natural logarithm of ``1 + x``.")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "One over the square root.")
sin = _unary("sin", "Sine.")
cos = _unary("cos", "Cosine.")
tan = _unary("tan", "Tangent.")
sinh = _unary("sinh", "Hyperbolic sine.")
cosh = _unary("cosh", "Hyperbolic cosine.")
tanh = _unary("tanh", "Hyperbolic tangent.")
asin = _unary("asin", "Arc sine.")
acos = _unary("acos", "Arc cosine.")
atan = _unary("atan", "Arc tangent.")
sigmoid = _unary("sigmoid", "``1 / (1 + exp(-x))``.")
erf = _unary("erf", "The error function.")
ceil = _unary("ceil", "Round towards plus infinity.")
floor = _unary("floor", "Round towards minus infinity.")
trunc = _unary("trunc", "Round towards zero.")
nearbyint = _unary("nearbyint", "Round to the nearest integer, ties to even.")


def _test(name: str, text: str) -> _Unary:
    return named(name, text, lambda x: math_call(name, x, dtype=BOOL))


isnan = _test("isnan", "True if ``x`` is not a number.")
isinf = _test("isinf", "True if ``x`` is infinite.")
isfinite = _test("isfinite", "True if ``x`` is neither infinite nor NaN.")


def atan2(y: object, x: object) -> Value:
    """The angle of the point (``x``, ``y``)."""
    return math_call("atan2", y, x)


def copysign(x: object, y: object) -> Value:
    """The magnitude of ``x`` with the sign of ``y``."""
    return math_call("copysign", x, y)


def fma(a: object, b: object, c: object) -> Value:
    """``a * b + c`` with one rounding."""
    return math_call("fma", a, b, c)


def _bit_count(name: str, text: str) -> _Unary:
    def function(x: object) -> Value:
        expr = to_expr(x)
        if not expr.dtype.is_integer:
            raise ProgramTypeError(f"T.{name} needs an integer", found=str(expr.dtype))
        return wrap(fold.call(name, expr, dtype=INT32), x)

    return named(name, text, function)


popcount = _bit_count("popcount", "The number of bits set in an integer.")
clz = _bit_count("clz", "The number of leading zero bits of an integer.")


def pow(x: object, y: object) -> Value:
    """``x`` to the power ``y``."""
    return power(x, y)


def pow_of_int(x: object, y: int) -> Value:
    """``x`` to an integer power, by repeated multiplication."""
    if not isinstance(y, int) or y < 0:
        raise ProgramValueError(
            "T.pow_of_int needs an exponent that is a non-negative int", found=repr(y)
        )
    base = to_expr(x)
    out = fold.const(1, base.dtype) if y == 0 else base
    for _ in range(y - 1):
        out = fold.mul(out, base)
    return wrap(out, x)


_ROUNDS = {"ties-to-even": "nearbyint", "ties-away-from-zero": "round"}


def round(x: object, rounding_mode: str = "ties-to-even") -> Value:
    """Round to the nearest integer; ties to even, or away from zero."""
    return math_call(_ROUNDS[one_of("T.round", "rounding_mode", rounding_mode, _ROUNDS)], x)


# -- arithmetic that names its rounding ------------------------------------------------------------
_MODES = ("rn", "rz", "ru", "rd")
_MODES_TEXT = """

    ``rounding_mode`` is "rn" (to nearest, ties to even), "rz" (towards zero), "ru" (towards plus
    infinity) or "rd" (towards minus infinity); the last three need float32 or float64.
    """


def _rounded(name: str, op: str, mode: str, *values: object) -> Value:
    one_of(f"T.{name}", "rounding_mode", mode, _MODES)
    args = float_arguments(name, *values)
    dtype = args[0].dtype
    if mode != "rn" and dtype not in ("float32", "float64"):
        raise UnsupportedConstructError(
            f"T.{name} with rounding_mode={mode!r}",
            expected="operands of float32 or float64; narrower ones are rounded to nearest only",
            found=str(dtype),
        )
    return wrap(fold.call(f"{op}_{mode}", *args), *values)


def _ieee_binary(name: str, op: str, text: str) -> Callable[..., Value]:
    def function(a: object, b: object, rounding_mode: str = "rn") -> Value:
        return _rounded(name, op, rounding_mode, a, b)

    return named(name, text + _MODES_TEXT, function)


ieee_add = _ieee_binary("ieee_add", "add", "``a + b`` rounded once.")
ieee_sub = _ieee_binary("ieee_sub", "sub", "``a - b`` rounded once.")
ieee_mul = _ieee_binary("ieee_mul", "mul", "``a * b`` rounded once.")
ieee_fdiv = _ieee_binary("ieee_fdiv", "div", "``a / b`` rounded once.")


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

"""Owns the math functions of scalars. Integer arguments become float32 first."""

from __future__ import annotations

from collections.abc import Callable

from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.language import arguments
from tileops.language.value import BOOL, INT32, Value, math_call, power, to_expr, wrap

_Unary = Callable[[object], Value]


def _unary(name: str, text: str) -> _Unary:
    def function(x: object) -> Value:
        return math_call(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text + " In the dtype of ``x``."
    return function


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


def atan2(y: object, x: object) -> Value:
    """The angle of the point (``x``, ``y``)."""
    return math_call("atan2", y, x)


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


def copysign(x: object, y: object) -> Value:
    """The magnitude of ``x`` with the sign of ``y``."""
    return math_call("copysign", x, y)


def fma(a: object, b: object, c: object) -> Value:
    """``a * b + c`` with one rounding."""
    return math_call("fma", a, b, c)


def round(x: object, rounding_mode: str = "ties-to-even") -> Value:
    """Round to the nearest integer; ties to even, or away from zero."""
    names = {"ties-to-even": "nearbyint", "ties-away-from-zero": "round"}
    if arguments.text("T.round", "rounding_mode", rounding_mode) not in names:
        raise ProgramValueError(
            "T.round: unknown rounding_mode",
            expected=" or ".join(map(repr, names)),
            found=repr(rounding_mode),
        )
    return math_call(names[rounding_mode], x)


def isnan(x: object) -> Value:
    """True where ``x`` is not a number."""
    return math_call("isnan", x, dtype=BOOL)


def isinf(x: object) -> Value:
    """True where ``x`` is infinite."""
    return math_call("isinf", x, dtype=BOOL)


def isfinite(x: object) -> Value:
    """True where ``x`` is neither infinite nor NaN."""
    return math_call("isfinite", x, dtype=BOOL)


def _bit_count(name: str, x: object) -> Value:
    expr = to_expr(x)
    if not expr.dtype.is_integer:
        raise ProgramTypeError(f"T.{name} needs an integer", found=str(expr.dtype))
    return wrap(fold.call(name, expr, dtype=INT32), x)


def popcount(x: object) -> Value:
    """The number of bits set in an integer."""
    return _bit_count("popcount", x)


def clz(x: object) -> Value:
    """The number of leading zero bits of an integer."""
    return _bit_count("clz", x)

"""Exact arithmetic in a given rounding mode, for the interpreter and for tests.

Results come from the exact value as a fraction and not from a processor's rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# The sign of the exact value less a finite candidate.
_Compare = Callable[[float], int]


def rounded(name: str) -> Callable[..., Array]:
    """The function ``op_mode`` of float32 or float64 arrays, as IEEE 754-2019 section 4.3 has it.

    ``op`` is add, sub, mul, div, fma, sqrt or rsqrt; ``mode`` rn, rz, ru or rd.
    """
    op, _, mode = name.partition("_")

    def apply(*args: Array) -> Array:
        wide = np.broadcast_arrays(*args)
        kind = wide[0].dtype.type
        values = zip(*(a.reshape(-1) for a in wide), strict=True)
        with np.errstate(all="ignore"):
            out = [_rounded(op, mode, kind, row) for row in values]
        return np.array(out, kind).reshape(wide[0].shape)

    return apply


def _rounded(op: str, mode: str, kind: Callable[[float], Any], args: tuple[Any, ...]) -> Any:  # noqa: ANN401
    near = _close(op, kind, args)
    if not all(map(math.isfinite, args)) or math.isnan(near) or _is_infinite(op, args):
        return near
    compare = _comparison(op, tuple(map(float, args)))
    if math.isfinite(near):
        near = _to_nearest(compare, near, kind)
    if mode == "rz":
        mode = "rd" if compare(0.0) > 0 else "ru"
        is_towards_zero = True
    else:
        is_towards_zero = False
    side = _side(compare, near)
    if mode == "rd" and side < 0:
        return np.nextafter(near, kind(-math.inf))
    if mode == "ru" and side > 0:
        return np.nextafter(near, kind(math.inf))
    if mode == "rd" and side == 0 and near == 0 and not is_towards_zero and _cancels(op, args):
        return kind(-0.0)
    return near


def _close(op: str, kind: Callable[[float], Any], args: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """A value next to the exact one, and the right one where that is infinite or no number."""
    wide = [np.float64(a) for a in args]
    match op:
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "mul":
            return args[0] * args[1]
        case "div":
            return args[0] / args[1]
        case "fma":
            return kind(_sum(*map(float, args)))
        case "sqrt":
            return np.sqrt(args[0])
        case _:
            return kind(1.0 / np.sqrt(wide[0]))


def _sum(a: float, b: float, c: float) -> float:
    """``a * b + c`` in float64, rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return c if math.isfinite(a) and math.isfinite(b) else a * b + c
    if a == 0 or b == 0:
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _is_infinite(op: str, args: tuple[Any, ...]) -> bool:
    """Whether the exact value is infinite, or of a zero that no rounding touches."""
    return bool((op == "div" and args[1] == 0) or (op in ("sqrt", "rsqrt") and args[0] == 0))


def _comparison(op: str, args: tuple[float, ...]) -> _Compare:
    x, *rest = map(Fraction, args)
    match op:
        case "sqrt":
            return lambda c: _sign(x - Fraction(c) ** 2) if c >= 0 else 1
        case "rsqrt":
            return lambda c: _sign(1 - x * Fraction(c) ** 2) if c >= 0 else 1
        case "add":
            exact = x + rest[0]
        case "sub":
            exact = x - rest[0]
        case "mul":
            exact = x * rest[0]
        case "div":
            exact = x / rest[0]
        case _:
            exact = x * rest[0] + rest[1]
    return lambda c: _sign(exact - Fraction(c))


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def _side(compare: _Compare, near: Any) -> int:  # noqa: ANN401
    if math.isinf(near):
        return -1 if near > 0 else 1
    return compare(float(near))


def _to_nearest(compare: _Compare, near: Any, kind: Callable[[float], Any]) -> Any:  # noqa: ANN401
    """The nearest value, the even one of two, found from one that is at most some steps away."""
    while (side := compare(float(near))) != 0:
        other = np.nextafter(near, kind(side * math.inf))
        if math.isinf(other):
            return near
        # Twice the width holds the midpoint of neighbours: float64's are compared as fractions.
        middle = _middle(compare, float(near), float(other))
        if middle * side < 0 or (middle == 0 and _is_even(near)):
            return near
        near = other
        if middle == 0 or compare(float(near)) * side <= 0:
            return near
    return near


def _middle(compare: _Compare, a: float, b: float) -> int:
    # _comparison takes what Fraction takes.
    return compare((Fraction(a) + Fraction(b)) / 2)  # type: ignore[arg-type]


def _is_even(value: Any) -> bool:  # noqa: ANN401
    bits = np.asarray(value).view(f"u{value.dtype.itemsize}")
    return int(bits) % 2 == 0


def _cancels(op: str, args: tuple[Any, ...]) -> bool:
    """Whether an exact zero is the sum of values of opposite signs."""
    if op not in ("add", "sub", "fma"):
        return False
    last = -args[1] if op == "sub" else args[-1]
    first = args[0] * np.sign(np.copysign(1.0, args[1])) if op == "fma" else args[0]
    return bool(np.signbit(first) != np.signbit(last))

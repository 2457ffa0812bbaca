"""Exact arithmetic in a given rounding mode, for the interpreter and for tests.

Results come from the exact value as a fraction and not from a processor's rounding.
"""

# ruff: noqa: ANN401 - the elements of arrays are numpy's scalars of either type.
from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tileops.ir.fold import spacing

Array = npt.NDArray[Any]

_ROOT_BITS = 1200  # below the point: more than twice the bits of the root of any float64
_TO_INTEGER: dict[str, Callable[[Fraction], int]] = {
    "rn": round,
    "rz": math.trunc,
    "ru": math.ceil,
    "rd": math.floor,
}


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


def _root(x: Fraction) -> Fraction:
    """The square root of ``x``, or a number that no float or midpoint parts from it."""
    scaled = x * (1 << 2 * _ROOT_BITS)
    root = math.isqrt(math.floor(scaled))
    return Fraction(2 * root + (root * root != scaled), 2 << _ROOT_BITS)


# The operations of fractions, which are exact, and of numpy's floats.
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
}
_EXACT: dict[str, Callable[..., Any]] = {
    **_ARITHMETIC,
    "sqrt": _root,
    "rsqrt": lambda a: _root(1 / a),
}
_FLOAT: dict[str, Callable[..., Any]] = {
    **_ARITHMETIC,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
}
# The two numbers that an operation adds.
_ADDENDS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: (a, b),
    "sub": lambda a, b: (a, -b),
    "fma": lambda a, b, c: (a * b, c),
}


def _rounded(op: str, mode: str, kind: Any, args: tuple[Any, ...]) -> Any:
    near = _FLOAT[op](*args)
    if not all(map(math.isfinite, args)):
        # The product of an fma may overflow where its third operand decides.
        return args[-1] if op == "fma" and all(map(math.isfinite, args[:2])) else near
    if (op == "div" and args[1] == 0) or (op in ("sqrt", "rsqrt") and args[0] <= 0):
        return near
    exact = _EXACT[op](*map(Fraction, map(float, args)))
    if exact == 0:
        signs = np.signbit(_ADDENDS[op](*args)) if op in _ADDENDS else (False, False)
        return kind(-0.0) if mode == "rd" and signs[0] != signs[1] else near
    return kind(_to_float(exact, mode, np.finfo(kind)))


def _to_float(exact: Fraction, mode: str, form: Any) -> float:
    """``exact``, which is not 0, rounded to the floats that ``form`` describes."""
    step = spacing(exact, form.nmant + 1, form.minexp)
    magnitude: Fraction | float = abs(_TO_INTEGER[mode](exact / step) * step)
    largest = float(form.max)
    if magnitude > largest:
        is_away = mode == "rn" or mode == ("ru" if exact > 0 else "rd")
        magnitude = math.inf if is_away else largest
    return float(magnitude) if exact > 0 else -float(magnitude)

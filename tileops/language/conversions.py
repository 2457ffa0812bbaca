"""Conversions of scalars: by value, with the rounding that T.cast takes, and by bits."""

from __future__ import annotations

import warnings

from tileops.dtypes import DType, is_dtype_like, vector_parts
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Call, Expr
from tileops.language.missing import on_which_target
from tileops.language.operands import one_of
from tileops.language.value import FLOAT32, Value, as_dtype, is_scalar, to_expr, wrap
from tileops.language.vectors import Vector, as_type, convert, reinterpret_vector

__all__ = ["Cast", "cast", "reinterpret"]

_ROUNDINGS = ("", "rn", "rz", "rp", "rm", "rs")
_BYTE = DType("uint8")
# The magnitude from which a number rounds beyond the largest finite one, whether it itself does,
# and the bits of what it then becomes: NaN, or infinity.
_OVERFLOW = {
    "float8_e4m3fn": ("gt", 464.0, 0x7F),
    "float8_e5m2": ("ge", 61440.0, 0x7C),
}


def cast(
    value: object, dtype: object, round: str = "", sat: bool = True, rbits: object = None
) -> Value | Vector:
    """``value`` converted to ``dtype``; floats round to nearest even, float to int truncates.

    8-bit floats saturate to the largest finite number; with ``sat=False`` what is too large becomes
    NaN, or infinity if the type has one. ``round="rn"`` names the default, other roundings raise
    UnsupportedConstructError; ``rbits`` belongs to the stochastic one.
    """
    _check_rounding(round, sat, rbits)
    if isinstance(value, Vector) or vector_parts(dtype) is not None:
        if not sat:
            raise UnsupportedConstructError("T.cast(sat=False) of a vector")
        return convert(value, dtype)
    expr, kind = to_expr(value), as_dtype(dtype)
    if not sat and kind.is_float and kind.bits < 16 and expr.dtype != kind:
        return wrap(_overflowing(expr, kind), value)
    return wrap(fold.settled(fold.cast(expr, kind)), value)


def _check_rounding(round: str, sat: bool, rbits: object) -> None:
    one_of("T.cast", "round", round, _ROUNDINGS)
    if not isinstance(sat, bool):
        raise ProgramValueError("T.cast: sat is True or False", found=repr(sat))
    if (round == "rs") != (rbits is not None):
        raise ProgramValueError("T.cast: round='rs' and rbits are given together")
    if round == "rs":
        raise UnsupportedConstructError(
            "T.cast(round='rs') (stochastic rounding, whose random bits the lanes of one "
            f"instruction share) is not supported by tileops{on_which_target()}"
        )
    if round not in ("", "rn"):
        raise UnsupportedConstructError(
            f"T.cast(round={round!r}) is not supported by tileops{on_which_target()}; "
            "T.ieee_add(x, 0, rounding_mode) and the like round to float32 and float64"
        )


def _overflowing(expr: Expr, kind: DType) -> Expr:
    """``expr`` converted to the float ``kind`` of 8 bits without saturation."""
    if str(kind) not in _OVERFLOW:
        raise UnsupportedConstructError(
            f"T.cast(sat=False) to {kind}, which has nothing beyond its largest number"
        )
    op, limit, bits = _OVERFLOW[str(kind)]
    wide = expr if expr.dtype.is_float and expr.dtype.bits > 8 else fold.cast(expr, FLOAT32)
    magnitude = fold.call("abs", wide)
    beyond = fold.binary(op, magnitude, fold.const(limit, wide.dtype))
    byte = fold.const(bits, _BYTE)
    negative = fold.binary("lt", wide, fold.const(0.0, wide.dtype))
    signed = fold.select(negative, fold.const(bits | 0x80, _BYTE), byte)
    return fold.select(beyond, Call(kind, "reinterpret", (signed,)), fold.cast(expr, kind))


def Cast(dtype: object, value: object) -> Value | Vector:
    """``value`` converted to ``dtype`` (TIR's argument order)."""
    return cast(value, dtype)


def reinterpret(value: object, dtype: object) -> Value | Vector:
    """The bits of ``value`` read as ``dtype``, which has the same width."""
    if is_dtype_like(value) and is_scalar(dtype):
        warnings.warn(
            "T.reinterpret(dtype, value) is deprecated; write T.reinterpret(value, dtype)",
            stacklevel=2,
        )
        value, dtype = dtype, value
    if isinstance(value, Vector) or vector_parts(dtype) is not None:
        return reinterpret_vector(value, dtype)
    if dtype == "handle" and to_expr(value) == fold.const(0, to_expr(value).dtype):
        return wrap(to_expr(value), value)  # the null pointer, as T.attr takes it
    expr, kind = to_expr(value), as_dtype(dtype)
    if expr.dtype.bits != kind.bits:
        raise ProgramTypeError(
            "T.reinterpret needs two types of one width",
            expected=f"{expr.dtype.bits} bits",
            found=f"{kind}, {kind.bits} bits",
        )
    return wrap(as_type(expr, kind), value)

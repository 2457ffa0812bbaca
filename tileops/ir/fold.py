"""Constructors of expressions that promote dtypes and fold constants."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from tileops.dtypes import BOOL as BOOL
from tileops.dtypes import FLOAT32 as FLOAT32
from tileops.dtypes import INT32 as INT32
from tileops.dtypes import INT64 as INT64
from tileops.dtypes import DType, promote
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Region, Select, Unary, Var
from tileops.ir.operators import BITWISE, COMPARISONS, INTEGER_DIVISIONS, LOGICAL
from tileops.ir.walk import map_children

# A literal's dtype is the first with its value.
_LITERALS = tuple((dtype, *dtype.limits) for dtype in (INT32, INT64, DType("uint64")))

Number = bool | int | float


def const(value: Number, dtype: DType | None = None) -> Const:
    """A literal of ``dtype`` (by default bool, int32, int64 or uint64 by range, float32).

    ProgramValueError for an integer that none of these has.
    """
    if dtype is None:
        if isinstance(value, int) and not isinstance(value, bool):
            return Const(_integer_dtype(value), int(value))
        dtype = BOOL if isinstance(value, bool) else FLOAT32
    if dtype.is_bool:
        return Const(dtype, bool(value))
    if dtype.is_float:
        return Const(dtype, _as_float(value, dtype))
    if isinstance(value, float) and not value.is_integer():
        value = math.trunc(value)
    return Const(dtype, wrap(int(value), dtype))


def _as_float(value: Number, dtype: DType) -> float:
    """``value`` as Python's float, from which ``dtype`` rounds as from ``value`` itself."""
    if isinstance(value, int) and dtype != "float64":
        lost = abs(value).bit_length() - 53
        if lost > 0:  # rounded to odd: the last bit says that something followed
            kept, rest = divmod(abs(value), 1 << lost)
            odd = float((kept | (rest > 0)) << lost)
            return -odd if value < 0 else odd
    return float(value)


def settled(a: Expr) -> Expr:
    """``a``; a constant of float32 has the value that float32 rounds it to.

    A literal of the program keeps its digits until then, for a float64 that it may meet.
    """
    if not isinstance(a, Const) or a.dtype not in ("float32", "tfloat32"):
        return a
    try:
        value = struct.unpack("<f", struct.pack("<f", a.value))[0]
    except OverflowError:
        value = math.copysign(math.inf, a.value)
    return Const(a.dtype, value)


def _integer_dtype(value: int) -> DType:
    for dtype, least, most in _LITERALS:
        if least <= value <= most:
            return dtype
    raise ProgramValueError(
        f"no integer dtype holds a literal of {value.bit_length()} bits",
        expected="at most 64 bits, or a float such as 2.0**70",
    )


def wrap(value: int, dtype: DType) -> int:
    """``value`` reduced to the range of an integer dtype, two's complement."""
    mask = (1 << dtype.bits) - 1
    value &= mask
    if dtype.is_signed and value >> (dtype.bits - 1):
        value -= mask + 1
    return value


def cast(a: Expr, dtype: DType) -> Expr:
    """``a`` converted to ``dtype``.

    Constants are folded where the result is exact or an integer.
    """
    if a.dtype == dtype:
        return a
    if isinstance(a, Const):
        if dtype.is_integer and isinstance(a.value, float):
            return const(_saturated(a.value, dtype), dtype)
        if (
            not (dtype.is_float and dtype.bits < 32)
            or (isinstance(a.value, (bool, int)) and abs(int(a.value)) <= 8)
            or (
                isinstance(a.value, float)
                and (math.isinf(a.value) or a.value == 0.0)
                and dtype.bits == 16
            )
        ):
            return settled(const(a.value, dtype))
    if dtype.is_integer and isinstance(a, Cast) and isinstance(a.a, Const):
        # A compiler that folds such a conversion leaves what is out of range undefined.
        rounded = _as_16_bits(a.a.value, a.dtype)
        if rounded is not None:
            return const(_saturated(rounded, dtype), dtype)
    return Cast(dtype, a)


def spacing(value: Fraction, precision: int, least: int) -> Fraction:
    """The distance between floats around ``value``.

    They have ``precision`` bits, and ``least`` is the exponent of the least normal one.
    """
    numerator, denominator = abs(value.numerator), value.denominator
    exponent = numerator.bit_length() - denominator.bit_length()
    exponent -= Fraction(2) ** exponent > abs(value)
    return Fraction(2) ** (max(exponent, least) - precision + 1)


def nearest(value: Fraction | float, precision: int, least: int) -> Fraction:
    """``value`` rounded to nearest even in floats as ``spacing`` has them, without a largest."""
    exact = Fraction(value)
    step = spacing(exact, precision, least)
    return round(exact / step) * step


# Bits of precision and the least exponent of a normal number.
_OF_16_BITS = {"float16": (11, -14), "bfloat16": (8, -126)}


def _as_16_bits(value: bool | int | float, dtype: DType) -> float | None:
    """``value`` rounded to nearest even in a 16-bit float; None for other dtypes."""
    if str(dtype) not in _OF_16_BITS:
        return None
    if (isinstance(value, float) and not math.isfinite(value)) or value == 0:
        return float(value)
    precision, least = _OF_16_BITS[str(dtype)]
    rounded = nearest(value, precision, least)
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** (1 - least)
    return float(rounded) if abs(rounded) <= largest else math.copysign(math.inf, value)


def _saturated(value: float, dtype: DType) -> int:
    """``value`` as an integer of ``dtype``: towards zero, in its range, 0 for a NaN."""
    least, most = dtype.limits
    if math.isnan(value):
        return 0
    return math.trunc(max(least, min(value, most)))


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """``a op b`` after promotion; raises ProgramTypeError where the operator has no meaning."""
    if op in LOGICAL:
        return _logical(op, truth(a), truth(b))
    if op in ("shl", "shr"):
        b = cast(b, a.dtype)
    else:
        dtype = promote(a.dtype, b.dtype)
        if dtype.is_bool and op not in (*BITWISE, *COMPARISONS, "min", "max"):
            dtype = INT32
        a, b = cast(a, dtype), cast(b, dtype)
        if op == "ceildiv" and dtype.is_float:
            return unary("neg", binary("floordiv", unary("neg", a), b))
    _check_operands(op, a.dtype)
    result = BOOL if op in COMPARISONS else a.dtype
    if isinstance(a, Const) and isinstance(b, Const):
        folded = _fold(op, a, b, result)
        if folded is not None:
            return folded
    return _identities(op, a, b) or Binary(result, op, a, b)


def extreme(op: str, a: Number, b: Number) -> Number:
    """The ``min`` or ``max`` of two numbers: one of them is preferred to NaN."""
    if a != a:
        return b
    if b != b:
        return a
    return min(a, b) if op == "min" else max(a, b)


def _check_operands(op: str, dtype: DType) -> None:
    if op == "div" and not dtype.is_float:
        raise ProgramTypeError(
            "`/` on integers is ambiguous; use `//` (floor) or T.truncdiv, or cast an operand to a "
            "float",
            expected="float operands",
            found=str(dtype),
        )
    if op in BITWISE and dtype.is_float:
        raise ProgramTypeError(f"`{op}` needs integer or bool operands", found=str(dtype))


def truth(a: Expr) -> Expr:
    """``a`` as a bool: itself, or ``a != 0``."""
    return a if a.dtype.is_bool else binary("ne", a, const(0, a.dtype))


def _logical(op: str, a: Expr, b: Expr) -> Expr:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            neutral = bool(x.value) == (op == "land")
            return y if neutral else x
    return Binary(BOOL, op, a, b)


def _truncdiv(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_FOLD: dict[str, Callable[[Any, Any], Number]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "ceildiv": lambda a, b: -(-a // b),
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - b * _truncdiv(a, b),
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_OF_FLOAT64 = ("add", "sub", "mul")


def is_nan(a: Expr) -> bool:
    """True for a constant that is NaN."""
    return isinstance(a, Const) and a.value != a.value


def _fold(op: str, a: Const, b: Const, result: DType) -> Const | None:
    if op in COMPARISONS:
        return const(_FOLD[op](a.value, b.value), BOOL)
    if a.dtype.is_float:
        # Only where Python's arithmetic is the dtype's own; narrower floats round at run time.
        if a.dtype != "float64" or op not in _OF_FLOAT64:
            return None
        return const(_FOLD[op](a.value, b.value), result)
    if op in INTEGER_DIVISIONS and b.value == 0:
        raise ProgramValueError("division by zero in a constant expression")
    if op in ("shl", "shr") and not 0 <= b.value < a.dtype.bits:
        raise ProgramValueError(
            f"shift by {b.value} is outside 0..{a.dtype.bits - 1} for {a.dtype}"
        )
    return const(_FOLD[op](int(a.value), int(b.value)), result) if op in _FOLD else None


def _identities(op: str, a: Expr, b: Expr) -> Expr | None:
    if a.dtype.is_float:
        if op in ("min", "max"):  # a number is preferred to NaN
            return b if is_nan(a) else a if is_nan(b) else None
        return None
    if a.dtype.is_bool:
        return None
    a_value = a.value if isinstance(a, Const) else None
    b_value = b.value if isinstance(b, Const) else None
    match op, a_value, b_value:
        case ("add", 0, _) | ("mul", 1, _):
            return b
        case ("add" | "sub", _, 0) | ("mul" | "floordiv" | "ceildiv" | "truncdiv", _, 1):
            return a
        case ("mul", 0, _) | ("mul", _, 0) | ("floormod" | "truncmod", _, 1):
            return const(0, a.dtype)
        case _:
            return None


def unary(op: str, a: Expr) -> Expr:
    """``neg``, ``not`` (logical) or ``invert`` (bitwise) of ``a``."""
    if op == "not":
        a = truth(a)
        return const(not a.value, BOOL) if isinstance(a, Const) else Unary(BOOL, op, a)
    if op == "neg":
        if a.dtype.is_bool:
            a = cast(a, INT32)
        if isinstance(a, Const):
            return const(-a.value, a.dtype)
    if op == "invert":
        if a.dtype.is_float:
            raise ProgramTypeError("`~` needs an integer or bool operand", found=str(a.dtype))
        if isinstance(a, Const):
            return const(not a.value if a.dtype.is_bool else ~int(a.value), a.dtype)
    return Unary(a.dtype, op, a)


def select(cond: Expr, a: Expr, b: Expr) -> Expr:
    """``a if cond else b`` after promotion."""
    dtype = promote(a.dtype, b.dtype)
    a, b, cond = cast(a, dtype), cast(b, dtype), truth(cond)
    if isinstance(cond, Const):
        return a if cond.value else b
    return a if a == b else Select(dtype, cond, a, b)


def call(name: str, *args: Expr, dtype: DType | None = None) -> Expr:
    """A function of MATH_FUNCTIONS; the result has ``dtype`` or the first argument's."""
    return Call(dtype or args[0].dtype, name, args)


add = partial(binary, "add")
sub = partial(binary, "sub")
mul = partial(binary, "mul")
floordiv = partial(binary, "floordiv")
floormod = partial(binary, "floormod")
ceildiv = partial(binary, "ceildiv")  # -(-a // b); of integers exactly that if it fits their dtype


def substitute(expr: Expr, known: Mapping[int, Expr]) -> Expr:
    """``expr`` with variables replaced by id, folded and promoted anew."""

    def new(e: Expr) -> Expr:
        return substitute(e, known)

    match expr:
        case Var(id=n):
            return known.get(n, expr)
        case Binary(op=op, a=a, b=b):
            return binary(op, new(a), new(b))
        case Unary(op=op, a=a):
            return unary(op, new(a))
        case Cast(a=a, dtype=dtype):
            return cast(new(a), dtype)
        case Select(cond=c, a=a, b=b):
            return select(new(c), new(a), new(b))
        case _:
            return map_children(expr, new)


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The strides of a buffer in elements; row-major where it has none of its own."""
    if buffer.strides is not None:
        return buffer.strides
    strides: list[Expr] = [const(1)]
    for extent in reversed(buffer.shape[1:]):
        strides.insert(0, mul(strides[0], extent))
    return tuple(strides[: buffer.ndim])


def region_indices(
    region: Region, dims: Sequence[int], offsets: Sequence[Expr]
) -> tuple[Expr, ...]:
    """The indices of a region's element: its starts, plus ``offsets`` along ``dims``."""
    by_dim = dict(zip(dims, offsets, strict=True))
    return tuple(
        add(start, by_dim[d]) if d in by_dim else start for d, start in enumerate(region.starts)
    )

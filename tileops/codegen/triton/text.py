"""Pieces of Triton text: values with their dtype, axes and precedence, and their conversions."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

from tileops.dtypes import BOOL, FLOAT32, INT32, DType
from tileops.errors import InternalError
from tileops.ir.expr import Const

# Python's precedence, lowest first; an operand that binds weaker than its operator is put in
# parentheses.
COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(9)
_OPERATORS = {
    COMPARE: ("==", "!=", "<", "<=", ">", ">="),
    BIT_OR: ("|",),
    BIT_XOR: ("^",),
    BIT_AND: ("&",),
    SHIFT: ("<<", ">>"),
    SUM: ("+", "-"),
    PRODUCT: ("*", "/", "//", "%"),
}
_PRECEDENCE = {op: prec for prec, ops in _OPERATORS.items() for op in ops}

_LEAST_NORMAL = 2.0**-126  # of float32
# Triton's names that differ from ours.
_TRITON_TYPES = {
    "bool": "int1",
    "tfloat32": "float32",
    "float8_e4m3fn": "float8e4nv",
    "float8_e5m2": "float8e5",
}


@dataclass(frozen=True)
class Val:
    """Text of one value.

    ``axes`` are the axes of the current space along which the value varies; with none the text is
    a scalar, else a tile of the space's rank with extent 1 along all other axes. ``static`` marks
    what Triton may hold as a compile-time value, which has no ``.to``.
    """

    text: str
    dtype: DType
    axes: frozenset[int] = frozenset()
    prec: int = ATOM
    static: bool = False

    @property
    def is_scalar(self) -> bool:
        return not self.axes

    def at(self, prec: int) -> str:
        """The text, in parentheses if it binds weaker than ``prec``."""
        return self.text if self.prec >= prec else f"({self.text})"


def triton_type(dtype: DType) -> str:
    """Triton's name of a dtype, such as ``tl.float16``; InternalError where it has none."""
    if dtype.bits < 8 or dtype == "float8_e8m0fnu":
        raise InternalError(f"Triton has no type for {dtype}")
    return f"tl.{_TRITON_TYPES.get(dtype, dtype)}"


def number(value: int | float, dtype: DType = INT32) -> Val:
    """A literal that generated code needs, such as an extent."""
    return Val(str(value), dtype, static=True)


def literal(const: Const) -> Val:
    """A constant as Python text; its dtype comes from the operand it meets."""
    text, dtype = repr(const.value), const.dtype
    if isinstance(const.value, float):
        if not math.isfinite(const.value):
            text = f'-float("{text[1:]}")' if text[0] == "-" else f'float("{text}")'
        elif dtype.bits <= 32 and 0 < abs(const.value) < _LEAST_NORMAL:
            # Triton takes a subnormal literal as float64.
            return Val(f"tl.full((), {text}, {triton_type(dtype)})", dtype)
    return Val(text, dtype, prec=UNARY if text[0] == "-" else ATOM, static=True)


def infix(op: str, a: Val, b: Val | int, dtype: DType | None = None) -> Val:
    """``a op b``, by default a bool for a comparison and else of the dtype of ``a``.

    The right operand is put in parentheses at equal precedence. ``+ 0`` is left out.
    """
    if isinstance(b, int):
        b = number(b, a.dtype)
    if op in ("+", "-") and b.text == "0":
        return a
    if op == "+" and a.text == "0":
        return b
    prec = _PRECEDENCE[op]
    right = prec + 1
    left = right if prec == COMPARE else prec  # comparisons chain in Python
    dtype = dtype or (BOOL if prec == COMPARE else a.dtype)
    return Val(
        f"{a.at(left)} {op} {b.at(right)}", dtype, a.axes | b.axes, prec, a.static and b.static
    )


def call(name: str, *args: Val, dtype: DType | None = None) -> Val:
    """``name(args...)``, by default of the first argument's dtype."""
    axes = frozenset[int]().union(*(a.axes for a in args))
    return Val(f"{name}({', '.join(a.text for a in args)})", dtype or args[0].dtype, axes)


def where(mask: Val | None, a: Val, b: Val) -> Val:
    """``a`` where ``mask`` is true, else ``b``; ``a`` without a mask."""
    return a if mask is None else call("tl.where", mask, a, b, dtype=a.dtype)


def convert(a: Val, dtype: DType) -> Val:
    """``a`` converted to ``dtype``; to bool means ``a != 0``."""
    if a.dtype == dtype:
        return a
    if dtype.is_fp8 and a.dtype == "float64":
        raise InternalError("float64 to an 8-bit float by way of float32 is rounded twice")
    if _needs_step(a.dtype, dtype) or _needs_step(dtype, a.dtype):
        return convert(convert(a, FLOAT32), dtype)
    if dtype.is_bool:
        return Val(f"{a.at(BIT_OR)} != 0", dtype, a.axes, COMPARE, a.static)
    if a.dtype.is_float and dtype.is_integer:
        return _whole(a, dtype)
    return _converted(a, dtype)


def _whole(a: Val, dtype: DType) -> Val:
    """A float as an integer: towards zero, within the type's range, 0 for a NaN.

    What is below the range of an unsigned integer, or beyond that of a narrow one, is brought into
    it first: LLVM leaves its conversion open. The limits of wide integers are the instructions'
    own. Of a NaN, those with 64 bits on either side make the least integer.
    """
    if a.dtype.bits < 32:
        a = _converted(a, FLOAT32)
    least, most = dtype.limits
    narrow = dtype.bits < 32 or (dtype.bits == 32 and a.dtype == "float64")
    if not dtype.is_signed:
        a = _bounded("maximum", a, 0)  # the number, where the other is a NaN
        a = _bounded("minimum", a, most) if narrow else a
    else:
        has_nan, keep = a.dtype.bits == 32 and dtype.bits < 64, ""
        if has_nan:
            keep = ", propagate_nan=tl.PropagateNan.ALL"
        else:
            x = strict(a)
            a = where(infix("==", x, x), x, typed(number(0.0, a.dtype)))
        if narrow:
            a = _bounded("minimum", _bounded("maximum", a, least, keep), most, keep)
    return _converted(_converted(a, INT32) if dtype.bits < 32 else a, dtype)


def _bounded(name: str, a: Val, bound: int, keep: str = "") -> Val:
    """``a`` or the bound, a value of its dtype."""
    limit = strict(number(float(bound), a.dtype))
    return Val(f"tl.{name}({strict(a).text}, {limit.text}{keep})", a.dtype, a.axes)


def _converted(a: Val, dtype: DType) -> Val:
    name = triton_type(dtype)
    if triton_type(a.dtype) == name:
        return Val(a.text, dtype, a.axes, a.prec, a.static)
    if a.static and a.dtype != "float64":
        return Val(f"tl.cast({a.text}, {name})", dtype, a.axes)
    a = typed(a)  # tl.cast takes a literal as float32
    return Val(f"{a.at(ATOM)}.to({name})", dtype, a.axes)


def _needs_step(narrow: DType, other: DType) -> bool:
    """True where an 8-bit float is converted by way of float32."""
    # Triton has no direct conversion to another 8-bit float or an integer. That to bfloat16 goes
    # through ``cvt.bf16.f16``, which ptxas 12 drops where an integer is made of the result.
    return narrow.is_fp8 and other not in ("float16", "float32")


def typed(a: Val) -> Val:
    """``a`` as a value that certainly carries its dtype (a literal by itself does not)."""
    if not a.static:
        return a
    return Val(f"tl.full((), {a.text}, {triton_type(a.dtype)})", a.dtype)


def faithful(a: Val) -> Val:
    """``a`` as a value to store: there Triton takes a literal as float32, which may not hold it."""
    if not a.static or not a.dtype.is_float or a.dtype.bits == 32 or _is_float32(a.text):
        return a
    return typed(a)


def _is_float32(literal_text: str) -> bool:
    try:
        value = float(literal_text.replace('float("', "").replace('")', ""))
    except ValueError:  # several literals
        return False
    return math.isnan(value) or ctypes.c_float(value).value == value


def strict(a: Val) -> Val:
    """``a`` as an operand of tl.where, tl.minimum or tl.maximum."""
    # Beside a tile these take a literal as float32 or int32 and widen the result; operators do not.
    return a if a.dtype in ("float32", "int32", "bool") else typed(a)

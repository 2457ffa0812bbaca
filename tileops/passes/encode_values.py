"""Owns the arithmetic of encoded dtypes: values from codes, codes from values, conversions.

A value is an expression of the dtype's carrier that holds one of the dtype's own values.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Call, Const, Expr, Select
from tileops.passes.packed_types import BYTE, CARRIERS

_BOOL = DType("bool")
_INT8 = DType("int8")
_INT32 = DType("int32")
_INT64 = DType("int64")
_UINT16 = DType("uint16")
_UINT32 = DType("uint32")
_FLOAT16 = DType("float16")
_FLOAT32 = DType("float32")
_FLOAT64 = DType("float64")


def _number(value: float, dtype: DType) -> Expr:
    return fold.const(value, dtype)


def _bits(expr: Expr, dtype: DType) -> Expr:
    return Call(dtype, "reinterpret", (expr,))


# -- codes -----------------------------------------------------------------------------------------
def decode(code: Expr, dtype: DType) -> Expr:
    """The value of ``dtype`` whose code is the uint8 ``code`` (below 16 for 4-bit dtypes)."""
    if dtype == "uint4":
        return fold.cast(code, _INT8)
    if dtype == "int4":
        eight = _number(8, _INT8)
        return fold.sub(fold.binary("xor", fold.cast(code, _INT8), eight), eight)
    if dtype == "float4_e2m1fn":
        return _decode_fp4(code)
    return _decode_e8m0(code)


def encode(value: Expr, dtype: DType) -> Expr:
    """The code of a value of ``dtype``, as uint8."""
    if dtype.is_integer:
        return fold.binary("and", fold.cast(value, BYTE), _number(15, BYTE))
    if dtype == "float4_e2m1fn":
        return _encode_fp4(value)
    exponent = fold.binary("shr", _bits(value, _UINT32), _number(23, _UINT32))
    code = fold.cast(fold.binary("and", exponent, _number(255, _UINT32)), BYTE)
    return Select(BYTE, Call(_BOOL, "isnan", (value,)), _number(255, BYTE), code)


def _decode_fp4(code: Expr) -> Expr:
    """Sign, exponent and mantissa put where float16 has them.

    The exponents' biases differ by 14; a subnormal of one is a subnormal of the other.
    """
    wide = fold.cast(code, _UINT16)
    sign = fold.binary("and", wide, _number(8, _UINT16))
    rest = fold.binary("and", wide, _number(7, _UINT16))
    bits = fold.binary(
        "or",
        fold.binary("shl", sign, _number(12, _UINT16)),
        fold.binary("shl", rest, _number(9, _UINT16)),
    )
    return fold.mul(_bits(bits, _FLOAT16), _number(2.0**14, _FLOAT16))


def _encode_fp4(value: Expr) -> Expr:
    bits = _bits(fold.mul(value, _number(2.0**-14, _FLOAT16)), _UINT16)
    sign = fold.binary("and", fold.binary("shr", bits, _number(12, _UINT16)), _number(8, _UINT16))
    rest = fold.binary("and", fold.binary("shr", bits, _number(9, _UINT16)), _number(7, _UINT16))
    return fold.cast(fold.binary("or", sign, rest), BYTE)


def _decode_e8m0(code: Expr) -> Expr:
    wide = fold.cast(code, _UINT32)
    normal = _bits(fold.binary("shl", wide, _number(23, _UINT32)), _FLOAT32)
    is_nan = fold.binary("eq", code, _number(255, BYTE))
    is_least = fold.binary("eq", code, _number(0, BYTE))
    least = Select(_FLOAT32, is_least, _number(2.0**-127, _FLOAT32), normal)
    return Select(_FLOAT32, is_nan, _number(math.nan, _FLOAT32), least)


# -- conversions -----------------------------------------------------------------------------------
def to_encoded(value: Expr, dtype: DType) -> Expr:
    """``value`` of an ordinary dtype, or of another carrier, converted to ``dtype``.

    Integers wrap to 4 bits. Floats to integers go towards zero and saturate, NaN to 0. Floats to
    float4_e2m1fn round to nearest even and saturate, NaN to the largest; to float8_e8m0fnu they
    round to the nearest exponent.
    """
    if dtype.is_integer:
        return _to_nibble(value, dtype)
    if isinstance(value, Const):
        return constant(value.value, dtype)
    if dtype == "float4_e2m1fn":
        return _to_fp4(value)
    return _to_e8m0(value)


def canonical(value: Expr, dtype: DType) -> Expr:
    """The result of an operation on carriers brought back to a value of ``dtype``."""
    if value.dtype != CARRIERS[str(dtype)]:
        raise InternalError(f"{value.dtype} does not carry {dtype}")
    return to_encoded(value, dtype)


def _to_nibble(value: Expr, dtype: DType) -> Expr:
    if not value.dtype.is_float:
        wide = fold.cast(value, _INT32)
        low = fold.binary("and", wide, _number(15, _INT32))
        if dtype == "int4":
            eight = _number(8, _INT32)
            low = fold.sub(fold.binary("xor", low, eight), eight)
        return fold.cast(low, _INT8)
    least, most = (-8.0, 7.0) if dtype == "int4" else (0.0, 15.0)
    wide = value if value.dtype in (_FLOAT32, _FLOAT64) else fold.cast(value, _FLOAT32)
    kind = wide.dtype
    inside = fold.binary("min", fold.binary("max", wide, _number(least, kind)), _number(most, kind))
    is_nan = Call(_BOOL, "isnan", (wide,))
    number = Select(kind, is_nan, _number(0.0, kind), inside)
    return fold.cast(fold.cast(number, _INT32), _INT8)


def _to_fp4(value: Expr) -> Expr:
    """Rounded by a step that the magnitude chooses: 1/2 below 2, 1 below 4, 2 up to 6."""
    if value.dtype.is_bool:
        return fold.cast(value, _FLOAT16)
    if value.dtype.is_integer:
        # Clamped first, so that the float holds every value that is left.
        if value.dtype.is_signed:
            value = fold.binary("max", value, _number(-7, value.dtype))
        value = fold.cast(fold.binary("min", value, _number(7, value.dtype)), _FLOAT32)
    elif value.dtype != "float64":
        value = fold.cast(value, _FLOAT32)
    kind = value.dtype

    def number(x: float) -> Expr:
        return _number(x, kind)

    magnitude = fold.binary("min", Call(kind, "abs", (value,)), number(6.0))
    below_2 = fold.binary("lt", magnitude, number(2.0))
    below_4 = fold.binary("lt", magnitude, number(4.0))
    inverse = Select(kind, below_2, number(2.0), Select(kind, below_4, number(1.0), number(0.5)))
    step = Select(kind, below_2, number(0.5), Select(kind, below_4, number(1.0), number(2.0)))
    rounded = fold.mul(Call(kind, "nearbyint", (fold.mul(magnitude, inverse),)), step)
    signed = Call(kind, "copysign", (rounded, value))
    is_nan = Call(_BOOL, "isnan", (value,))
    return fold.cast(Select(kind, is_nan, number(6.0), signed), _FLOAT16)


def _to_e8m0(value: Expr) -> Expr:
    is_wide = value.dtype == _FLOAT64 or (value.dtype.is_integer and value.dtype.bits >= 32)
    # A value just below halfway must not be rounded up to it on the way.
    narrow = Call(_FLOAT32, "odd_float32", (value,)) if is_wide else fold.cast(value, _FLOAT32)
    bits = _bits(narrow, _UINT32)

    def number(x: int) -> Expr:
        return _number(x, _UINT32)

    exponent = fold.binary("and", fold.binary("shr", bits, number(23)), number(255))
    mantissa = fold.binary("and", bits, number(0x7FFFFF))
    tie = fold.binary("eq", mantissa, number(0x400000))
    up = fold.binary(
        "lor",
        fold.binary("gt", mantissa, number(0x400000)),
        fold.binary("land", tie, fold.binary("gt", exponent, number(0))),
    )
    raised = fold.add(exponent, fold.cast(up, _UINT32))
    code = Select(_UINT32, fold.binary("eq", exponent, number(255)), number(255), raised)
    return _decode_e8m0(fold.cast(code, BYTE))


def constant(value: bool | int | float, dtype: DType) -> Expr:
    """A literal of ``dtype``, rounded as a conversion to it rounds."""
    carrier = CARRIERS[str(dtype)]
    if dtype.is_integer:
        return fold.const(value, carrier)
    if dtype == "float4_e2m1fn":
        return fold.const(_nearest_fp4(float(value)), carrier)
    if isinstance(value, float) and not math.isfinite(value):
        return fold.const(math.nan, carrier)
    number = abs(Fraction(value))
    if number < Fraction(2) ** -126:
        # As the encoding of float32, which has one exponent for all of these.
        return fold.const(2.0 ** (-126 if number > Fraction(2) ** -127 else -127), carrier)
    power = Fraction(2) ** (math.frexp(float(number))[1] - 1)
    if power > number:  # the float was rounded up to a power of two
        power /= 2
    power *= 2 if 2 * number >= 3 * power else 1
    return fold.const(float(power) if power < Fraction(2) ** 128 else math.nan, carrier)


def _nearest_fp4(value: float) -> float:
    if math.isnan(value):
        return 6.0
    magnitude = min(abs(value), 6.0)
    step = 0.5 if magnitude < 2 else 1.0 if magnitude < 4 else 2.0
    return math.copysign(round(magnitude / step) * step, value)

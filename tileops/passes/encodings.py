"""Encoded dtypes: their conversions as expressions, and the buffers that hold their elements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from tileops.dtypes import BOOL, FLOAT16, FLOAT32, INT32, UINT8, DType
from tileops.errors import InternalError, UnsupportedConstructError
from tileops.ir import fold, walk
from tileops.ir.expr import Buffer, Call, Const, Expr, Region, Select, Var
from tileops.ir.printer import print_expr
from tileops.ir.program import const_value
from tileops.ir.stmt import AddressView, Alloc, Bind, Launch, View
from tileops.location import Location
from tileops.passes.analyze_index import half, parity
from tileops.target import Target

_INT8, _UINT16, _UINT32 = map(DType, ("int8", "uint16", "uint32"))


@dataclass(frozen=True)
class Encoding:
    """A dtype whose elements are stored as codes and computed with as values of ``carrier``.

    ``convert`` makes a value of an expression of an ordinary dtype, with one rounding. ``decode``
    makes a value of a code, which is a uint8 (below 16 where ``per_byte`` elements share one), and
    ``encode`` a code of a value. Where values are codes, carrier is uint8, and ``ordinary`` makes
    of one what can be computed with. Tile operations take elements as ``wide``, matrix products as
    ``factor``: both hold every value of the dtype.
    """

    dtype: DType
    carrier: DType
    convert: Callable[[Expr], Expr]
    decode: Callable[[Expr], Expr] = lambda code: code
    encode: Callable[[Expr], Expr] = lambda value: value
    ordinary: Callable[[Expr], Expr] = lambda value: value
    wide: DType = FLOAT32
    factor: DType = FLOAT16
    per_byte: int = 1

    @property
    def is_code(self) -> bool:
        """True if values are codes."""
        return self.carrier == UINT8

    def literal(self, value: bool | int | float) -> Expr:
        """A constant, rounded as a conversion rounds."""
        if self.dtype.is_integer:
            return fold.const(value, self.carrier)
        return self.convert(Const(FLOAT32, value))

    def canonical(self, value: Expr) -> Expr:
        """The result of an operation on carriers as a value of the dtype."""
        if value.dtype != self.carrier:
            raise InternalError(f"{value.dtype} does not carry {self.dtype}")
        return self.convert(value)


def _bits(expr: Expr, dtype: DType) -> Expr:
    return Call(dtype, "reinterpret", (expr,))


def _op(op: str, a: Expr, number: float) -> Expr:
    """``a op number`` in the dtype of ``a``."""
    return fold.binary(op, a, fold.const(number, a.dtype))


def _choose(cond: Expr, a: Expr | float, b: Expr | float, dtype: DType) -> Expr:
    a, b = (x if isinstance(x, Expr) else fold.const(x, dtype) for x in (a, b))
    return Select(dtype, cond, a, b)


def _is_nan(value: Expr) -> Expr:
    return Call(BOOL, "isnan", (value,))


# -- int4 and uint4, carried by int8, so that a matrix product of them is one of int8 --------------
def _integer(name: str, least: int, most: int) -> Encoding:
    signed = least < 0

    def with_sign(low: Expr) -> Expr:
        return _op("sub", _op("xor", low, 8), 8) if signed else low

    def convert(value: Expr) -> Expr:
        """Integers wrap to 4 bits. Floats go towards zero and saturate, NaN to 0."""
        if not value.dtype.is_float:
            return fold.cast(with_sign(_op("and", fold.cast(value, INT32), 15)), _INT8)
        wide = value if value.dtype == "float64" else fold.cast(value, FLOAT32)
        inside = _op("min", _op("max", wide, least), most)
        number = _choose(_is_nan(wide), 0.0, inside, wide.dtype)
        return fold.cast(fold.cast(number, INT32), _INT8)

    return Encoding(
        DType(name),
        carrier=_INT8,
        convert=convert,
        decode=lambda code: with_sign(fold.cast(code, _INT8)),
        encode=lambda value: _op("and", fold.cast(value, UINT8), 15),
        wide=_INT8,
        factor=_INT8,
        per_byte=2,
    )


# -- float4_e2m1fn, carried by float16 -------------------------------------------------------------
def _decode_fp4(code: Expr) -> Expr:
    """Sign, exponent and mantissa put where float16 has them.

    The exponents' biases differ by 14; a subnormal of one is a subnormal of the other.
    """
    wide = fold.cast(code, _UINT16)
    sign, rest = _op("shl", _op("and", wide, 8), 12), _op("shl", _op("and", wide, 7), 9)
    return _op("mul", _bits(fold.binary("or", sign, rest), FLOAT16), 2.0**14)


def _encode_fp4(value: Expr) -> Expr:
    bits = _bits(_op("mul", value, 2.0**-14), _UINT16)
    sign, rest = _op("and", _op("shr", bits, 12), 8), _op("and", _op("shr", bits, 9), 7)
    return fold.cast(fold.binary("or", sign, rest), UINT8)


def _to_fp4(value: Expr) -> Expr:
    """To nearest even, saturating, NaN to the largest.

    A value is rounded by a step that the magnitude chooses: 1/2 below 2, 1 below 4, 2 up to 6.
    """
    if isinstance(value, Const):
        return fold.const(_nearest_fp4(float(value.value)), FLOAT16)
    if value.dtype.is_bool:
        return fold.cast(value, FLOAT16)
    if value.dtype.is_integer:
        # Clamped first, so that the float holds every value that is left.
        if value.dtype.is_signed:
            value = _op("max", value, -7)
        value = _op("min", value, 7)
    if value.dtype != "float64":
        value = fold.cast(value, FLOAT32)
    kind = value.dtype
    magnitude = _op("min", Call(kind, "abs", (value,)), 6.0)
    below_2, below_4 = _op("lt", magnitude, 2.0), _op("lt", magnitude, 4.0)
    inverse = _choose(below_2, 2.0, _choose(below_4, 1.0, 0.5, kind), kind)
    step = _choose(below_2, 0.5, _choose(below_4, 1.0, 2.0, kind), kind)
    rounded = fold.mul(Call(kind, "nearbyint", (fold.mul(magnitude, inverse),)), step)
    signed = Call(kind, "copysign", (rounded, value))
    return fold.cast(_choose(_is_nan(value), 6.0, signed, kind), FLOAT16)


def _nearest_fp4(value: float) -> float:
    if math.isnan(value):
        return 6.0
    nearest = fold.nearest(min(abs(value), 6.0), 2, 0)
    return math.copysign(float(nearest), value)


# -- float8_e8m0fnu, carried by float32 ------------------------------------------------------------
def _decode_e8m0(code: Expr) -> Expr:
    normal = _bits(_op("shl", fold.cast(code, _UINT32), 23), FLOAT32)
    numbers = _choose(_op("eq", code, 0), 2.0**-127, normal, FLOAT32)
    return _choose(_op("eq", code, 255), math.nan, numbers, FLOAT32)


def _encode_e8m0(value: Expr) -> Expr:
    exponent = _op("and", _op("shr", _bits(value, _UINT32), 23), 255)
    return _choose(_is_nan(value), 255, fold.cast(exponent, UINT8), UINT8)


def _to_e8m0(value: Expr) -> Expr:
    """To the nearest exponent."""
    if isinstance(value, Const):
        return fold.const(_nearest_e8m0(value.value), FLOAT32)
    bits = _bits(_narrowed(value), _UINT32)
    exponent = _op("and", _op("shr", bits, 23), 255)
    mantissa = _op("and", bits, 0x7FFFFF)
    tie = _op("eq", mantissa, 0x400000)
    up = fold.binary(
        "lor",
        _op("gt", mantissa, 0x400000),
        fold.binary("land", tie, _op("gt", exponent, 0)),
    )
    raised = fold.add(exponent, fold.cast(up, _UINT32))
    code = _choose(_op("eq", exponent, 255), 255, raised, _UINT32)
    return _decode_e8m0(fold.cast(code, UINT8))


def _narrowed(value: Expr) -> Expr:
    """``value`` as float32, rounded to odd where a second rounding follows.

    A value just below halfway must not be rounded up to it on the way.
    """
    is_wide = value.dtype == "float64" or (value.dtype.is_integer and value.dtype.bits >= 32)
    return Call(FLOAT32, "odd_float32", (value,)) if is_wide else fold.cast(value, FLOAT32)


def _nearest_e8m0(value: bool | int | float) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        return math.nan
    number = abs(Fraction(value))
    if number < Fraction(2) ** -126:
        # As the encoding of float32, which has one exponent for all of these.
        return 2.0 ** (-126 if number > Fraction(2) ** -127 else -127)
    power = fold.nearest(number, 1, -126)
    return float(power) if power < Fraction(2) ** 128 else math.nan


# -- 8-bit floats as their bytes, for targets that do not convert them -----------------------------
def _fp8(name: str, function: str) -> Encoding:
    """Converted by the functions ``e4m3_value``, ``e4m3_bits`` and so on, from and to float32."""

    def convert(value: Expr) -> Expr:
        narrow = fold.cast(value, FLOAT32)
        if value.dtype == "float64":  # rounded to odd on the way, so that it is rounded once
            narrow = Call(FLOAT32, "odd_float32", (value,))
        return Call(UINT8, f"{function}_bits", (narrow,))

    def ordinary(value: Expr) -> Expr:
        return Call(FLOAT32, f"{function}_value", (value,))

    return Encoding(DType(name), carrier=UINT8, convert=convert, ordinary=ordinary)


_PACKED: tuple[Encoding, ...] = (
    _integer("int4", -8, 7),
    _integer("uint4", 0, 15),
    Encoding(
        DType("float4_e2m1fn"),
        carrier=FLOAT16,
        convert=_to_fp4,
        decode=_decode_fp4,
        encode=_encode_fp4,
        wide=FLOAT16,
        per_byte=2,
    ),
)
E8M0 = Encoding(
    DType("float8_e8m0fnu"),
    carrier=FLOAT32,
    convert=_to_e8m0,
    decode=_decode_e8m0,
    encode=_encode_e8m0,
    factor=FLOAT32,
)
_FP8 = (_fp8("float8_e4m3fn", "e4m3"), _fp8("float8_e5m2", "e5m2"))


def encodings_of(target: Target, *, in_cpp: bool) -> dict[str, Encoding]:
    """The encoded dtypes of a target, by name; C++ has floats of 8 bits on each."""
    found = _PACKED
    if in_cpp:
        return {str(e.dtype): e for e in found}
    if target.is_gpu:  # no GPU compiler has a scalar of this type
        found += (E8M0,)
    if not target.supports("convert", DType("float8_e4m3fn")):
        found += _FP8
    return {str(e.dtype): e for e in found}


# -- buffers ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Form:
    """How a buffer of an encoded dtype is held.

    ``plain``: one carrier an element. ``coded``: one byte an element. ``packed``: two elements a
    byte along the last dimension.
    """

    kind: str
    encoding: Encoding
    buffer: Buffer


class Forms:
    """The forms of buffers by id; ``even`` are the ids of variables that are always even."""

    def __init__(self, encodings: Mapping[str, Encoding]) -> None:
        self.encodings = encodings
        self.even: set[int] = set()
        self._forms: dict[int, Form] = {}

    def get(self, buffer: Buffer) -> Form | None:
        """The form of a buffer of an encoded dtype."""
        return self._forms.get(buffer.id)

    def kind(self, buffer: Buffer) -> str | None:
        """The kind of its form; None for a buffer of another dtype."""
        form = self.get(buffer)
        return None if form is None else form.kind

    def of_bytes(self, buffer: Buffer) -> Form | None:
        """The form of a coded or packed buffer; None for others."""
        form = self.get(buffer)
        return None if form is None or form.kind == "plain" else form

    def held(self, buffer: Buffer) -> Buffer:
        """The buffer that holds ``buffer``, with its id and name."""
        form = self.get(buffer)
        return buffer if form is None else form.buffer

    def packed(self) -> frozenset[int]:
        """The ids of the packed buffers."""
        return frozenset(n for n, form in self._forms.items() if form.kind == "packed")

    def is_whole_bytes(self, region: Region) -> bool:
        """True if a region of a packed buffer begins and ends between bytes."""
        return all(parity(e, self.even) == 0 for e in (region.starts[-1], region.extents[-1]))

    def add_global(self, buffer: Buffer, loc: Location | None) -> None:
        """Note a tensor or workspace, if its dtype is encoded."""
        encoding = self.encodings.get(str(buffer.dtype))
        if encoding is not None and encoding.per_byte > 1:
            # A call's sizes come from bytes: what counts elements of whole ones is even.
            counts = (buffer.shape[-1], *(buffer.strides or ())[:-1])
            self.even.update(e.id for e in counts if isinstance(e, Var))
        self._add(buffer, loc, shares_storage=False)

    def inside(self, launch: Launch) -> Forms:
        """These forms and those of the tiles and views of ``launch``."""
        out = Forms(self.encodings)
        out.even, out._forms = set(self.even), dict(self._forms)
        roots = walk.view_roots(launch.body)
        names: list[tuple[Buffer, Location | None]] = []
        dtypes: dict[int, set[DType]] = {}
        for stmt in walk.walk(launch.body):
            if isinstance(stmt, (AddressView, Alloc, View)):
                root = roots.get(stmt.buffer.id, stmt.buffer)
                dtypes.setdefault(root.id, {root.dtype}).add(stmt.buffer.dtype)
                names.append((stmt.buffer, stmt.loc))
            elif isinstance(stmt, Bind) and parity(stmt.value, out.even) == 0:
                out.even.add(stmt.var.id)
        for buffer, loc in names:
            root = roots.get(buffer.id, buffer)
            out._add(buffer, loc, shares_storage=len(dtypes[root.id]) > 1)
        return out

    def _add(self, buffer: Buffer, loc: Location | None, *, shares_storage: bool) -> None:
        encoding = self.encodings.get(str(buffer.dtype))
        if encoding is None:
            return
        kind, held = "coded", dataclasses.replace(buffer, dtype=UINT8)
        if encoding.per_byte > 1 and (buffer.scope == "global" or shares_storage):
            kind, held = "packed", self._packed(buffer, loc)
        elif not encoding.is_code and (encoding.per_byte > 1 or buffer.scope == "var"):
            kind, held = "plain", dataclasses.replace(buffer, dtype=encoding.carrier)
        self._forms[buffer.id] = Form(kind, encoding, held)

    def _packed(self, buffer: Buffer, loc: Location | None) -> Buffer:
        """The bytes of a buffer of two elements a byte."""
        if parity(buffer.shape[-1]) == 1:
            raise UnsupportedConstructError(
                f"the last dimension of `{buffer.name}` holds two elements of {buffer.dtype} a "
                "byte",
                expected="an even extent",
                found=str(const_value(buffer.shape[-1])),
                location=loc,
            )
        strides = buffer.strides
        if strides is not None:
            *outer, last = strides
            if const_value(last) != 1 or any(parity(step, self.even) != 0 for step in outer):
                raise UnsupportedConstructError(
                    f"the strides of `{buffer.name}`, which holds two elements of {buffer.dtype} "
                    "a byte along its last dimension",
                    expected="the last 1, the others even for certain",
                    found=f"({', '.join(map(print_expr, strides))})",
                    location=loc,
                )
            strides = (*(half(step, self.even) for step in outer), last)
        shape = (*buffer.shape[:-1], half(buffer.shape[-1]))
        return dataclasses.replace(buffer, dtype=UINT8, shape=shape, strides=strides)

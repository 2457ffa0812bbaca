"""Vectors: a few scalars under one name, with operators and casts lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tileops.dtypes import DType, vector_parts
from tileops.errors import ProgramIndexError, ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Call, Expr
from tileops.language.operands import items_of
from tileops.language.value import (
    Value,
    absolute,
    as_dtype,
    as_int,
    binary,
    describe,
    named,
    operators,
    snapshot,
    to_expr,
    unary,
)

__all__ = ["Shuffle", "abs2", "add2", "fma2", "max2", "min2", "mul2", "sub2"]


class Vector:
    """A vector of scalars; ``v[n]`` is a lane. Operators take vectors of as many lanes, or scalars.

    It lives in expressions: no buffer holds vectors.
    """

    __slots__ = ("lanes",)

    def __init__(self, lanes: Sequence[Value]) -> None:
        self.lanes = tuple(lanes)

    @property
    def dtype(self) -> VectorType:
        """The vector type, such as ``float16x2``."""
        return VectorType(f"{self.lanes[0].expr.dtype}x{len(self.lanes)}")

    def describe(self) -> str:
        """The text in error messages."""
        return f"a vector {self.dtype}"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"

    def __len__(self) -> int:
        return len(self.lanes)

    def __getitem__(self, key: object) -> Value:
        number = as_int(key)
        if number is None:
            raise ProgramIndexError("the lane of a vector is a constant", found=describe(key))
        if not -len(self.lanes) <= number < len(self.lanes):
            raise ProgramIndexError(f"{self.describe()} has no lane {number}")
        return self.lanes[number]

    def snapshot(self, name: str) -> Vector:
        """The lanes as they are now."""
        return Vector([_value(snapshot(f"{name}_{n}", x)) for n, x in enumerate(self.lanes)])

    def astype(self, dtype: object) -> Vector:
        """Every lane converted to a scalar type, or to the element type of a vector type."""
        return convert(self, dtype)

    @staticmethod
    def lanewise(op: str, a: object, b: object) -> Vector:
        """``a op b`` lane by lane; a scalar meets every lane."""
        count = next(len(x) for x in (a, b) if isinstance(x, Vector))
        pairs = zip(_spread(a, count), _spread(b, count), strict=True)
        return Vector([binary(op, x, y) for x, y in pairs])

    # ``binary`` gives them to ``lanewise``.
    __add__, __radd__ = operators("add")
    __sub__, __rsub__ = operators("sub")
    __mul__, __rmul__ = operators("mul")
    __truediv__ = operators("div")[0]
    __and__ = operators("and")[0]
    __or__ = operators("or")[0]
    __xor__ = operators("xor")[0]
    __lshift__ = operators("shl")[0]
    __rshift__ = operators("shr")[0]

    def __neg__(self) -> Vector:
        return Vector([unary("neg", x) for x in self.lanes])


class VectorType(str):
    """A vector type such as ``T.float16x2``: a str equal to its name that makes vectors."""

    __slots__ = ()

    @property
    def element(self) -> DType:
        """The scalar type of a lane."""
        return _parts(self)[0]

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return _parts(self)[1]

    @property
    def bits(self) -> int:
        """The width of all lanes together."""
        return self.element.bits * self.lanes

    def __call__(self, *values: object) -> Vector:
        """A vector of as many values as lanes; one scalar is every lane, a vector is converted."""
        if len(values) == 1:
            return convert(values[0], self)
        if len(values) != self.lanes:
            raise ProgramTypeError(
                f"T.{self!s} takes {self.lanes} values, or one for all lanes",
                found=f"{len(values)} values",
            )
        return Vector([Value(fold.cast(to_expr(v, "a lane"), self.element)) for v in values])


def _parts(kind: str) -> tuple[DType, int]:
    parts = vector_parts(kind)
    if parts is None:
        raise ProgramTypeError("not a vector type", found=repr(kind))
    return parts


def _value(value: object) -> Value:
    return value if isinstance(value, Value) else Value(to_expr(value))


def _spread(value: object, count: int) -> tuple[object, ...]:
    if not isinstance(value, Vector):
        return (value,) * count
    if len(value) != count:
        raise ProgramValueError(
            "an operation on vectors of different lengths",
            expected=f"{count} lanes",
            found=value.describe(),
        )
    return value.lanes


def convert(value: object, dtype: object) -> Vector:
    """``value``, a vector or a scalar for every lane, as a vector of ``dtype``."""
    parts = vector_parts(dtype)
    if parts is None:
        if not isinstance(value, Vector):
            raise ProgramTypeError("not a vector type", found=repr(dtype))
        parts = as_dtype(dtype), len(value)
    kind, count = parts
    lanes = _spread(value, count)
    return Vector([Value(fold.cast(to_expr(x, "a lane"), kind)) for x in lanes])


# -- bits ------------------------------------------------------------------------------------------
def reinterpret_vector(value: object, dtype: object) -> Value | Vector:
    """The bits of a vector or scalar read as another type of the same width, lane 0 lowest."""
    bits = _bits(value)
    parts = vector_parts(dtype)
    kind, count = parts if parts is not None else (as_dtype(dtype), 1)
    if kind.bits * count != bits.dtype.bits:
        raise ProgramTypeError(
            "T.reinterpret needs two types of one width",
            expected=f"{bits.dtype.bits} bits",
            found=f"{dtype}, {kind.bits * count} bits",
        )
    if parts is None:
        return Value(as_type(bits, kind))
    unsigned = DType(f"uint{kind.bits}")
    lanes = []
    for n in range(count):
        moved = fold.binary("shr", bits, fold.const(n * kind.bits, bits.dtype))
        lanes.append(Value(as_type(fold.cast(moved, unsigned), kind)))
    return Vector(lanes)


def as_type(bits: Expr, kind: DType) -> Expr:
    """The bits of an expression as ``kind``, which has the same width."""
    return bits if bits.dtype == kind else Call(kind, "reinterpret", (bits,))


def _bits(value: object) -> Expr:
    """All bits of a value as one unsigned integer; ProgramTypeError beyond 64."""
    lanes = [to_expr(x) for x in (value.lanes if isinstance(value, Vector) else (value,))]
    width = lanes[0].dtype.bits
    total = width * len(lanes)
    if total not in (8, 16, 32, 64):
        raise ProgramTypeError(
            "T.reinterpret of a vector", expected="8, 16, 32 or 64 bits", found=f"{total} bits"
        )  # fmt: skip
    whole = DType(f"uint{total}")
    out: Expr = fold.const(0, whole)
    for n, lane in enumerate(lanes):
        part = fold.cast(as_type(lane, DType(f"uint{width}")), whole)
        out = fold.binary("or", out, fold.binary("shl", part, fold.const(n * width, whole)))
    return out


# -- functions of the language ---------------------------------------------------------------------
def Shuffle(vectors: Sequence[object], indices: Sequence[object]) -> Value | Vector:
    """The lanes ``indices`` of all ``vectors`` in a row: a scalar for one, else a vector."""
    lanes: list[Value] = []
    for vector in items_of("T.Shuffle", "vectors", vectors):
        lanes += vector.lanes if isinstance(vector, Vector) else [_value(vector)]
    chosen = Vector(lanes)
    picked = [chosen[i] for i in items_of("T.Shuffle", "indices", indices)]
    if not picked:
        raise ProgramValueError("T.Shuffle needs an index")
    return picked[0] if len(picked) == 1 else Vector(picked)


def _pairs(construct: str, *values: object) -> list[tuple[Value, ...]]:
    """The lanes of ``values``, which must be vectors of two."""
    for value in values:
        if not isinstance(value, Vector) or len(value) != 2:
            raise ProgramTypeError(
                f"T.{construct} takes vectors of two lanes", found=describe(value)
            )
    return [v.lanes for v in values if isinstance(v, Vector)]


def _pairwise(name: str, op: str, text: str) -> Callable[[object, object], Vector]:
    def function(x: object, y: object) -> Vector:
        return Vector([binary(op, a, b) for a, b in zip(*_pairs(name, x, y), strict=True)])

    return named(name, text, function)


add2 = _pairwise("add2", "add", "``x + y`` of two lanes.")
sub2 = _pairwise("sub2", "sub", "``x - y`` of two lanes.")
mul2 = _pairwise("mul2", "mul", "``x * y`` of two lanes.")
max2 = _pairwise("max2", "max", "The larger of two in both lanes; a number is preferred to NaN.")
min2 = _pairwise("min2", "min", "The smaller of two in both lanes; a number is preferred to NaN.")


def fma2(x: object, y: object, z: object) -> Vector:
    """``x * y + z`` of two lanes, rounded once."""
    lanes = zip(*_pairs("fma2", x, y, z), strict=True)
    return Vector([Value(fold.call("fma", *map(to_expr, lane))) for lane in lanes])


def abs2(x: object) -> Vector:
    """``|x|`` of two lanes."""
    return Vector([absolute(lane) for lane in _pairs("abs2", x)[0]])

"""Owns the expression nodes of the tile IR: typed scalars without side effects."""

from __future__ import annotations

from dataclasses import dataclass

from tileops.dtypes import DType

# Operators of Binary. Division: "div" is true division of floats; floordiv and floormod round
# towards minus infinity; ceildiv, of integers, towards plus infinity; truncdiv and truncmod towards
# zero (C). Comparisons and logic give bool.
ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "div",
    "floordiv",
    "floormod",
    "ceildiv",
    "truncdiv",
    "truncmod",
    "min",
    "max",
)
INTEGER_DIVISIONS = ("floordiv", "floormod", "ceildiv", "truncdiv", "truncmod")
BITWISE = ("and", "or", "xor", "shl", "shr")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("land", "lor")
BINARY_OPS = ARITHMETIC + BITWISE + COMPARISONS + LOGICAL
UNARY_OPS = ("neg", "not", "invert")

# Functions of Call; all take and return the dtype of their first argument unless said otherwise.
MATH_FUNCTIONS = (
    "abs", "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2",
    "sigmoid", "erf", "pow", "floor", "ceil", "trunc", "nearbyint", "round", "fma", "copysign",
    "isnan", "isinf", "isfinite",  # give bool
    "popcount", "clz",  # integers
    # rounded once as the name says: nearest even, to zero, up, down
    "add_rn", "add_rz", "add_ru", "add_rd", "sub_rn", "sub_rz", "sub_ru", "sub_rd",
    "mul_rn", "mul_rz", "mul_ru", "mul_rd", "div_rn", "div_rz", "div_ru", "div_rd",
    "fma_rn", "fma_rz", "fma_ru", "fma_rd", "sqrt_rn", "sqrt_rz", "sqrt_ru", "sqrt_rd", "rsqrt_rn",
    "reinterpret",  # bit cast to Call.dtype
    # what passes make: the half of a byte (the low one where the second argument is even), 8-bit
    # floats as bytes, to the float32 that a byte stands for and back, and a float64 or integer as
    # float32 rounded to odd, nearest to which is what a narrower float makes of it
    "nibble", "e4m3_value", "e4m3_bits", "e5m2_value", "e5m2_bits", "odd_float32",
)  # fmt: skip


@dataclass(frozen=True)
class Expr:
    """Base of all expressions. Equality and hash are structural."""

    dtype: DType


@dataclass(frozen=True)
class Const(Expr):
    """A literal; ``value`` is a Python bool, int or float matching ``dtype``."""

    value: bool | int | float


@dataclass(frozen=True)
class Var(Expr):
    """A named scalar: a loop or block index, a size, a scalar argument or the result of a Bind."""

    id: int
    name: str


@dataclass(frozen=True)
class HostAttr(Expr):
    """A fact of the device at call time, such as ``sm_count``; never a constant of the trace."""

    name: str


@dataclass(frozen=True)
class Binary(Expr):
    """``a op b``; both operands have one dtype (the printer and verifier rely on it)."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True)
class Unary(Expr):
    """``op`` applied to one operand."""

    op: str
    a: Expr


@dataclass(frozen=True)
class Call(Expr):
    """A function of MATH_FUNCTIONS."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Cast(Expr):
    """Value conversion to ``dtype``: floats round to nearest even, float to int truncates."""

    a: Expr


@dataclass(frozen=True)
class Select(Expr):
    """``a if cond else b``. A global load in the branch not taken is never performed."""

    cond: Expr
    a: Expr
    b: Expr


_LEVELS = {"global": 0, "shared": 1}


@dataclass(frozen=True)
class Buffer:
    """A tile or tensor. ``shape`` entries are int32 or int64 expressions, constants where static.

    ``scope``: global, shared, fragment, local, var. ``strides`` is None for row-major contiguous,
    else one expression a dimension, in elements. ``var`` buffers are scalars of shape (1,).
    """

    id: int
    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: str
    strides: tuple[Expr, ...] | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_on_chip(self) -> bool:
        return self.scope != "global"

    @property
    def level(self) -> int:
        """How near to the registers it lies: 0 global, 1 shared, 2 the rest."""
        return _LEVELS.get(self.scope, 2)

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, or None where an extent is not constant."""
        out = []
        for extent in self.shape:
            if not isinstance(extent, Const):
                return None
            out.append(int(extent.value))
        return tuple(out)


@dataclass(frozen=True)
class Load(Expr):
    """One element of ``buffer``. Global reads out of bounds give 0 (or the safe value)."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class Region:
    """A box of a buffer: one start and one extent a dimension. Not an expression."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def static_extents(self) -> tuple[int, ...] | None:
        """The extents as integers, or None where one is not constant."""
        out = []
        for extent in self.extents:
            if not isinstance(extent, Const):
                return None
            out.append(int(extent.value))
        return tuple(out)

    def squeezed(self) -> tuple[int, ...]:
        """The dimensions that remain when those of constant extent 1 are dropped."""
        return tuple(
            d
            for d, e in enumerate(self.extents)
            if not (isinstance(e, Const) and int(e.value) == 1)
        )

    def walked(self) -> tuple[int, ...]:
        """The dimensions that a copy pairs: ``squeezed``, or the last where it leaves none."""
        return self.squeezed() or (len(self.extents) - 1,)

    def is_whole(self) -> bool:
        """True if the region covers its whole buffer from the origin."""
        zero = all(isinstance(s, Const) and s.value == 0 for s in self.starts)
        return zero and self.extents == self.buffer.shape

"""The expression nodes of the tile IR: typed scalars without side effects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tileops.dtypes import DType
from tileops.ir import operators

_SCOPES = ("global", "shared", "fragment", "local", "var", "barrier")
_PREDICATES = ("isnan", "isinf", "isfinite")


@dataclass(frozen=True)
class Expr:
    """Base of all expressions. Equality and hash are structural.

    ``OPERANDS`` are the fields that hold expressions, or tuples of them.
    """

    OPERANDS: ClassVar[tuple[str, ...]] = ()

    dtype: DType

    def text(self) -> str:
        """The canonical text."""
        raise NotImplementedError(type(self).__name__)

    def __str__(self) -> str:
        return self.text()

    def faults(self) -> Iterator[str]:
        """The rules of the node that it breaks; the rules of its operands are their own."""
        return iter(())


def comma_separated(exprs: tuple[Expr, ...]) -> str:
    """The texts of ``exprs``."""
    return ", ".join([e.text() for e in exprs])


def typed(expr: Expr, dtype: str, what: str) -> Iterator[str]:
    """The fault of an expression of another dtype."""
    if expr.dtype != dtype:
        yield f"{what} has dtype {expr.dtype}, expected {dtype}"


def integers(exprs: tuple[Expr, ...], what: str) -> Iterator[str]:
    """The faults of expressions that are neither int32 nor int64."""
    for expr in exprs:
        if expr.dtype not in ("int32", "int64"):
            yield f"{what} has dtype {expr.dtype}, not int32 or int64"


@dataclass(frozen=True)
class Const(Expr):
    """A literal; ``value`` is a Python bool, int or float matching ``dtype``."""

    value: bool | int | float

    def text(self) -> str:
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        text = repr(self.value)
        return text if self.dtype == "int32" else f"{text}{self.dtype.short}"

    def faults(self) -> Iterator[str]:
        kinds = bool if self.dtype.is_bool else float if self.dtype.is_float else int
        if not isinstance(self.value, kinds) or isinstance(self.value, bool) != self.dtype.is_bool:
            yield f"constant {self.value!r} of dtype {self.dtype}"


@dataclass(frozen=True)
class Var(Expr):
    """A named scalar: a loop or block index, a size, a scalar argument or the result of a Bind."""

    id: int
    name: str

    def text(self) -> str:
        return f"{self.name}.{self.id}"


@dataclass(frozen=True)
class HostAttr(Expr):
    """A fact of the device at call time, such as ``sm_count``; never a constant of the trace."""

    name: str

    def text(self) -> str:
        return f"host.{self.name}"


@dataclass(frozen=True)
class Binary(Expr):
    """``a op b``; both operands have one dtype."""

    OPERANDS = ("a", "b")

    op: str
    a: Expr
    b: Expr

    def text(self) -> str:
        symbol = operators.SYMBOLS.get(self.op)
        if symbol is None:
            return f"{self.op}({self.a.text()}, {self.b.text()})"
        return f"({self.a.text()} {symbol} {self.b.text()})"

    def faults(self) -> Iterator[str]:
        op, dtype = self.op, self.a.dtype
        if op not in operators.BINARY_OPS:
            yield f"unknown operator {op!r}"
        if dtype != self.b.dtype:
            yield f"operands of {self.text()} have dtypes {dtype} and {self.b.dtype}"
        result = "bool" if op in operators.COMPARISONS or op in operators.LOGICAL else dtype
        if self.dtype != result:
            yield f"{self.text()} has dtype {self.dtype}, expected {result}"
        if op in operators.LOGICAL and not dtype.is_bool:
            yield f"operands of {self.text()} are not bools"
        if op in operators.BITWISE and dtype.is_float:
            yield f"bit operation on floats: {self.text()}"
        if op == "div" and not dtype.is_float:
            yield f"true division of {dtype}: {self.text()}"
        if op == "ceildiv" and not dtype.is_integer:
            yield f"ceildiv of {dtype}: {self.text()}"


@dataclass(frozen=True)
class Unary(Expr):
    """``op`` applied to one operand."""

    OPERANDS = ("a",)

    op: str
    a: Expr

    def text(self) -> str:
        return f"{self.op}({self.a.text()})"

    def faults(self) -> Iterator[str]:
        if self.op not in operators.UNARY_OPS:
            yield f"unknown operator {self.op!r}"
        yield from typed(self, "bool" if self.op == "not" else self.a.dtype, f"a {self.op}")


@dataclass(frozen=True)
class Call(Expr):
    """A function of MATH_FUNCTIONS."""

    OPERANDS = ("args",)

    name: str
    args: tuple[Expr, ...]

    def text(self) -> str:
        return f"{self.name}:{self.dtype.short}({comma_separated(self.args)})"

    def faults(self) -> Iterator[str]:
        if self.name not in operators.MATH_FUNCTIONS:
            yield f"unknown function {self.name!r}"
        if not self.args:
            yield f"{self.name} has no arguments"
        if self.name in _PREDICATES:
            yield from typed(self, "bool", self.name)
        elif self.name == "reinterpret" and self.dtype.bits != self.args[0].dtype.bits:
            yield "reinterpret changes the width"


@dataclass(frozen=True)
class Cast(Expr):
    """Value conversion to ``dtype``: floats round to nearest even, float to int truncates."""

    OPERANDS = ("a",)

    a: Expr

    def text(self) -> str:
        return f"{self.dtype.short}({self.a.text()})"


@dataclass(frozen=True)
class Select(Expr):
    """``a if cond else b``. A global load in the branch not taken is never performed."""

    OPERANDS = ("cond", "a", "b")

    cond: Expr
    a: Expr
    b: Expr

    def text(self) -> str:
        return f"select({self.cond.text()}, {self.a.text()}, {self.b.text()})"

    def faults(self) -> Iterator[str]:
        yield from typed(self.cond, "bool", "the condition of a select")
        if not self.a.dtype == self.b.dtype == self.dtype:
            yield f"branches of {self.text()} differ in dtype"


_LEVELS = {"global": 0, "shared": 1}


def const_value(expr: Expr) -> int | None:
    """The integer value of a constant expression, or None."""
    value = getattr(expr, "value", None)
    return int(value) if isinstance(value, (int, bool)) else None


def _static(extents: tuple[Expr, ...]) -> tuple[int, ...] | None:
    """``extents`` as integers, or None where one is not constant."""
    found = tuple(value for e in extents if (value := const_value(e)) is not None)
    return found if len(found) == len(extents) else None


@dataclass(frozen=True)
class Buffer:
    """A tile or tensor. ``shape`` entries are int32 or int64 expressions, constants where static.

    ``scope``: global, shared, fragment, local, var, barrier. ``strides`` is None for row-major
    contiguous, else one expression a dimension, in elements. ``var`` buffers are scalars of shape
    (1,).
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
        """How near it is to the registers: 0 global, 1 shared, 2 the rest."""
        return _LEVELS.get(self.scope, 2)

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, or None where an extent is not constant."""
        return _static(self.shape)

    def text(self) -> str:
        """The canonical name, as statements use it."""
        return f"%{self.name}.{self.id}"

    __str__ = text

    @property
    def declaration(self) -> str:
        """The name with dtype, shape, scope and strides."""
        strides = "" if self.strides is None else f" strides [{comma_separated(self.strides)}]"
        shape = comma_separated(self.shape)
        return f"{self.text()}: {self.dtype.short}[{shape}] {self.scope}{strides}"

    def faults(self) -> Iterator[str]:
        """The rules that its declaration breaks."""
        if self.scope not in _SCOPES:
            yield f"buffer {self.name} has scope {self.scope!r}"
        yield from integers(self.shape, f"an extent of {self.name}")
        if self.strides is not None:
            if len(self.strides) != self.ndim:
                yield f"{self.name}: strides and shape differ in rank"
            yield from integers(self.strides, f"a stride of {self.name}")
        if self.scope == "var" and self.static_shape() != (1,):
            yield f"the shape of the var buffer {self.name} is not (1,)"

    def faults_of_indices(self, indices: tuple[Expr, ...]) -> Iterator[str]:
        """The rules that indices of one element, or starts of a region, break."""
        if len(indices) != self.ndim:
            yield f"{self.name} has {self.ndim} dimensions, {len(indices)} indices"
        yield from integers(indices, f"an index of {self.name}")


@dataclass(frozen=True)
class Load(Expr):
    """One element of ``buffer``. Global reads out of bounds give 0 (or the safe value)."""

    OPERANDS = ("indices",)

    buffer: Buffer
    indices: tuple[Expr, ...]

    def text(self) -> str:
        return f"{self.buffer.text()}[{comma_separated(self.indices)}]"

    def faults(self) -> Iterator[str]:
        yield from self.buffer.faults_of_indices(self.indices)
        yield from typed(self, self.buffer.dtype, f"load of {self.buffer.name}")


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
        return _static(self.extents)

    def squeezed(self) -> tuple[int, ...]:
        """The dimensions that remain when those of constant extent 1 are dropped."""
        return tuple(d for d, extent in enumerate(self.extents) if const_value(extent) != 1)

    def squeezed_extents(self) -> tuple[Expr, ...]:
        """The extents but for constants of 1."""
        return tuple(self.extents[d] for d in self.squeezed())

    def walked(self) -> tuple[int, ...]:
        """The dimensions that a copy pairs: ``squeezed``, or the last where it leaves none."""
        return self.squeezed() or (len(self.extents) - 1,)

    def is_whole(self) -> bool:
        """True if the region covers its whole buffer from the origin."""
        return self.extents == self.buffer.shape and all(const_value(s) == 0 for s in self.starts)

    def text(self) -> str:
        """``%A.0[start : +extent, ...]``."""
        sides = zip(self.starts, self.extents, strict=True)
        box = ", ".join([f"{start.text()} : +{extent.text()}" for start, extent in sides])
        return f"{self.buffer.text()}[{box}]"

    __str__ = text

    def faults(self) -> Iterator[str]:
        """The rules that the region breaks."""
        yield from self.buffer.faults_of_indices(self.starts)
        yield from self.buffer.faults_of_indices(self.extents)

"""The statement nodes of operations on whole regions, such as copies and matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tileops.ir.expr import Buffer, Expr, Region, Var, comma_separated, const_value, integers, typed
from tileops.ir.node import Stmt

REDUCE_KINDS = ("sum", "max", "min", "absmax", "abssum", "bitand", "bitor", "bitxor")
SCAN_KINDS = ("sum", "max", "min")
ATOMIC_OPS = ("add", "max", "min", "or", "and", "xor", "load", "store", "exchange")


@dataclass(frozen=True)
class TileOperation(Stmt):
    """Base of the operations on whole regions."""

    @property
    def is_tile_operation(self) -> bool:
        return True

    def undivided(self) -> tuple[tuple[str, int], ...]:
        """The operands and dimensions that the operation needs in one piece."""
        return ()


def _show(extents: tuple[Expr, ...]) -> str:
    return f"[{comma_separated(extents)}]"


def _agree(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """False where ranks or constant extents differ; symbolic extents are taken on trust."""
    pairs = [(const_value(x), const_value(y)) for x, y in zip(a, b, strict=False)]
    return len(a) == len(b) and all(x == y or x is None or y is None for x, y in pairs)


def _same_extents(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> Iterator[str]:
    if not _agree(a, b):
        yield f"extents differ: {_show(a)} and {_show(b)}"


@dataclass(frozen=True)
class Copy(TileOperation):
    """Elementwise ``dst = cast(src)``.

    Dimensions of extent 1 dropped, the extents of both sides are equal. Global elements out of
    bounds read as 0 (or the safe value) and are not written.
    """

    READS = ("src",)
    WRITES = ("dst",)
    TEXT = "copy {0.src} -> {0.dst}"

    src: Region
    dst: Region

    @property
    def lead(self) -> Region:
        """The side nearer to the registers, whose extents are those of the copy."""
        return self.src if self.src.buffer.level > self.dst.buffer.level else self.dst

    def faults(self) -> Iterator[str]:
        return _same_extents(self.src.squeezed_extents(), self.dst.squeezed_extents())


@dataclass(frozen=True)
class Fill(TileOperation):
    """Every element of ``dst`` becomes ``value`` (of dst's dtype)."""

    WRITES = ("dst",)
    DTYPES = {"value": "dst"}
    TEXT = "fill {0.dst} = {0.value}"

    dst: Region
    value: Expr


@dataclass(frozen=True)
class Gemm(TileOperation):
    """``c (+)= op(a) @ op(b)`` on the last two dimensions; leading extents are 1.

    Operands are widened exactly and products and sums are formed in c's dtype. ``clear`` (bool
    expression) true starts from zero. ``policy`` is a hint: square, full_row or full_col.
    """

    WRITES = ("c",)
    DTYPES = {"clear": "bool"}

    a: Region
    b: Region
    c: Region
    transpose_a: bool
    transpose_b: bool
    clear: Expr
    policy: str = "square"

    def reads(self) -> tuple[str, ...]:
        return ("a", "b") if const_value(self.clear) else ("a", "b", "c")

    def text(self) -> str:
        operands = f"{self.a}, {self.b}, {self.c}"
        flags = (" ta" if self.transpose_a else "") + (" tb" if self.transpose_b else "")
        return f"gemm {operands}{flags} clear {self.clear} {self.policy}"

    def faults(self) -> Iterator[str]:
        for region in (self.a, self.b, self.c):
            name = region.buffer.name
            if len(region.extents) < 2:
                yield f"gemm operand {name} has no matrix"
            if any(const_value(e) != 1 for e in region.extents[:-2]):
                yield f"leading extents of {name} are not 1"
            if not region.buffer.is_on_chip:
                yield f"gemm operand {name} is global"
        m, k = self.a.extents[-2:][::-1] if self.transpose_a else self.a.extents[-2:]
        kb, n = self.b.extents[-2:][::-1] if self.transpose_b else self.b.extents[-2:]
        if not _agree((m, n, k), (*self.c.extents[-2:], kb)):
            yield "gemm extents disagree"


@dataclass(frozen=True)
class Reduction(TileOperation):
    """Base of what makes one element of each line of ``src`` along ``dim``.

    dst's shape is src's without ``dim``, or with extent 1 there; a 1-D source reduces to extent 1.
    dst may have more dimensions of extent 1.
    """

    WRITES = ("dst",)

    kind: str
    src: Region
    dst: Region
    dim: int

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The dimensions of src that stay, but for extents of 1, each with dst's own."""
        kept = (d for d in self.src.squeezed() if d != self.dim)
        return tuple(zip(kept, self.dst.squeezed(), strict=True))

    def faults(self) -> Iterator[str]:
        yield from _axis(self.src, self.dim)
        rest = tuple(self.src.extents[d] for d in self.src.squeezed() if d != self.dim)
        out = self.dst.squeezed_extents()
        if not _agree(rest, out):
            yield f"reduction of {_show(self.src.extents)} into {_show(out)}"

    def undivided(self) -> tuple[tuple[str, int], ...]:
        return (("src", self.dim),)

    def of_nothing(self) -> bool | int | float | None:
        """The result for an empty line; None where dst stays as it is."""
        return None


@dataclass(frozen=True)
class Reduce(Reduction):
    """``dst = reduce(src, dim)``, accumulated in dst's dtype.

    Without ``clear``, dst's old value is folded in.
    """

    clear: bool
    nan_propagate: bool = False

    def reads(self) -> tuple[str, ...]:
        return ("src",) if self.clear else ("src", "dst")

    def undivided(self) -> tuple[tuple[str, int], ...]:
        return ()  # later parts are folded into the result of the first

    def text(self) -> str:
        flags = (" clear" if self.clear else "") + (" nan" if self.nan_propagate else "")
        operands = f"{self.src} -> {self.dst}"
        return f"reduce.{self.kind} {operands} dim {self.dim}{flags}"

    def faults(self) -> Iterator[str]:
        if self.kind not in REDUCE_KINDS:
            yield f"unknown reduction {self.kind!r}"
        yield from super().faults()

    def of_nothing(self) -> bool | int | float | None:
        dtype = self.dst.dtype
        if not self.clear:
            return None
        if dtype.is_bool:
            return self.kind in ("min", "bitand")
        if self.kind == "bitand":
            return -1 if dtype.is_signed else dtype.limits[1]
        if self.kind not in ("min", "max"):
            return 0
        if dtype.is_float:
            return math.inf if self.kind == "min" else -math.inf
        return dtype.limits[1 if self.kind == "min" else 0]


def _axis(region: Region, dim: int) -> Iterator[str]:
    if not 0 <= dim < len(region.extents):
        yield f"dimension {dim} of {region.buffer.name}"


@dataclass(frozen=True)
class ArgReduce(Reduction):
    """``dst``, an int32, is the place along ``dim`` of the largest or smallest element of src.

    It is that of the first of equals (-0.0 equals 0.0). A NaN never wins: NaNs alone give 0.
    """

    READS = ("src",)
    TEXT = "reduce.arg{0.kind} {0.src} -> {0.dst} dim {0.dim}"

    def faults(self) -> Iterator[str]:
        if self.kind not in ("max", "min"):
            yield f"unknown reduction arg{self.kind}"
        if self.dst.dtype != "int32":
            yield f"places of {self.dst.dtype}"
        yield from super().faults()

    def of_nothing(self) -> int:
        return 0


@dataclass(frozen=True)
class Scan(TileOperation):
    """Inclusive scan of ``src`` along ``dim`` into ``dst`` of the same extents."""

    READS = ("src",)
    WRITES = ("dst",)

    kind: str
    src: Region
    dst: Region
    dim: int
    reverse: bool

    def undivided(self) -> tuple[tuple[str, int], ...]:
        return ("src", self.dim), ("dst", self.dim)

    def text(self) -> str:
        flags = " reverse" if self.reverse else ""
        return f"scan.{self.kind} {self.src} -> {self.dst} dim {self.dim}{flags}"

    def faults(self) -> Iterator[str]:
        if self.kind not in SCAN_KINDS:
            yield f"unknown scan {self.kind!r}"
        yield from _axis(self.src, self.dim)
        yield from _same_extents(self.src.extents, self.dst.extents)


@dataclass(frozen=True)
class Transpose(TileOperation):
    """``dst[..., j, i] = src[..., i, j]``."""

    READS = ("src",)
    WRITES = ("dst",)
    TEXT = "transpose {0.src} -> {0.dst}"

    src: Region
    dst: Region

    def faults(self) -> Iterator[str]:
        swapped = (*self.src.extents[:-2], *self.src.extents[-2:][::-1])
        if not _agree(swapped, self.dst.extents):
            yield "transpose extents disagree"


@dataclass(frozen=True)
class Im2col(TileOperation):
    """NHWC gather of an implicit-GEMM tile at (``row_step``, ``col_step``), zero padded."""

    READS = ("image",)
    WRITES = ("dst",)

    image: Buffer
    dst: Region
    row_step: Expr
    col_step: Expr
    kernel: int
    stride: int
    dilation: int
    pad: int

    def text(self) -> str:
        steps = f"{self.row_step}, {self.col_step}"
        numbers = f"k{self.kernel} s{self.stride} d{self.dilation} p{self.pad}"
        return f"im2col {self.image} -> {self.dst} at {steps} {numbers}"

    def faults(self) -> Iterator[str]:
        if self.image.ndim != 4:
            yield f"im2col of {self.image.name}, which is not 4-D"
        yield from integers((self.row_step, self.col_step), "a step")


@dataclass(frozen=True)
class Atomic(Stmt):
    """A read-modify-write of ``dst``; elements out of bounds are skipped.

    Scalar form: ``value`` is an expression and dst's extents are 1. Tile form: ``value`` is a
    region. ``result``, if given, is bound to the value before the operation.
    """

    DEFINES = ("result",)
    READS = ("dst", "value")
    DTYPES = {"result": "dst"}

    op: str
    dst: Region
    value: Expr | Region | None
    result: Var | None = None
    order: str = "relaxed"

    def writes(self) -> tuple[str, ...]:
        return () if self.op == "load" else ("dst",)

    @property
    def is_tile_operation(self) -> bool:
        return isinstance(self.value, Region)

    def text(self) -> str:
        result = "" if self.result is None else f"{self.result} = "
        value = "none" if self.value is None else self.value.text()
        return f"{result}atomic.{self.op} {self.dst}, {value} {self.order}"

    def faults(self) -> Iterator[str]:
        if self.op not in ATOMIC_OPS:
            yield f"unknown atomic {self.op!r}"
        if isinstance(self.value, Region):
            yield from _same_extents(self.value.squeezed_extents(), self.dst.squeezed_extents())
            if self.result is not None:
                yield "a tile atomic has no result"
        elif self.value is not None:
            yield from typed(self.value, self.dst.dtype, "the value of an atomic")
        elif self.op != "load":
            yield f"atomic {self.op} without a value"

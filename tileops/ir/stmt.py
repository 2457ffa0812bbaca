"""Owns the statement nodes of the tile IR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.location import Location

LOOP_KINDS = ("serial", "unroll", "vectorized", "pipelined")
REDUCE_KINDS = ("sum", "max", "min", "absmax", "abssum", "bitand", "bitor", "bitxor")
SCAN_KINDS = ("sum", "max", "min")
CHECK_KINDS = ("index", "nan", "assert")
ATOMIC_OPS = ("add", "max", "min", "or", "and", "xor", "load", "store", "exchange")

Body = tuple["Stmt", ...]


class Provenance(TypedDict):
    """Where a statement came from, as keyword arguments of the statement that replaces it."""

    loc: Location | None
    origin: int | None


@dataclass(frozen=True)
class Stmt:
    """Base of all statements.

    ``loc`` is the line of the program. ``origin`` is the number of the traced statement that this
    one is, or was made from: its place in program order, from 0. Neither takes part in equality,
    hashing or the printed text.
    """

    loc: Location | None = field(default=None, compare=False, repr=False, kw_only=True)
    origin: int | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def provenance(self) -> Provenance:
        """What a statement made from this one takes over: ``Store(..., **stmt.provenance)``."""
        return {"loc": self.loc, "origin": self.origin}


@dataclass(frozen=True)
class For(Stmt):
    """``for var in range(start, stop)`` with step 1, executed in order.

    Kinds other than serial are hints.

    ``stages`` is the pipeline depth of a pipelined loop, 0 for none; ``hints`` are (name, value)
    pairs.
    """

    kind: str
    var: Var
    start: Expr
    stop: Expr
    body: Body
    stages: int = 0
    hints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Parallel(Stmt):
    """An elementwise nest: ``body`` runs once per point of the box ``extents``, in no order.

    Each point runs the body as a sequential program; no point reads what another writes.
    """

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: Body


@dataclass(frozen=True)
class While(Stmt):
    """Runs ``body`` while ``cond`` holds."""

    cond: Expr
    body: Body


@dataclass(frozen=True)
class Break(Stmt):
    """Leaves the innermost serial loop."""


@dataclass(frozen=True)
class Continue(Stmt):
    """Goes on with the next iteration of the innermost serial loop."""


@dataclass(frozen=True)
class If(Stmt):
    """Runs ``then`` or ``orelse``."""

    cond: Expr
    then: Body
    orelse: Body = ()


@dataclass(frozen=True)
class Alloc(Stmt):
    """Brings an on-chip buffer to life; ``init`` (var scope only) is stored at this point."""

    buffer: Buffer
    init: Expr | None = None


@dataclass(frozen=True)
class View(Stmt):
    """``buffer`` names the storage of ``source`` with another shape or dtype, row-major."""

    buffer: Buffer
    source: Buffer


@dataclass(frozen=True)
class AddressView(Stmt):
    """``buffer``, a global one, names the memory at ``address``, an int64 expression.

    ``table`` is the tensor that the address was read from: what is written through ``buffer``
    counts as written to it. None where the address comes from no tensor.
    """

    buffer: Buffer
    address: Expr
    table: Buffer | None = None


@dataclass(frozen=True)
class Bind(Stmt):
    """``var`` is the value of ``value`` at this point (a snapshot)."""

    var: Var
    value: Expr


@dataclass(frozen=True)
class Store(Stmt):
    """One element; ``value`` has the buffer's dtype. Global stores out of bounds are dropped."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True)
class Copy(Stmt):
    """Elementwise ``dst = cast(src)``.

    Dimensions of extent 1 dropped, the extents of both sides are equal.

    Out-of-bounds global elements read as 0 (or the safe value) and are not written.
    """

    src: Region
    dst: Region

    @property
    def lead(self) -> Region:
        """The side nearer to the registers, whose extents are those of the copy."""
        return self.src if self.src.buffer.level > self.dst.buffer.level else self.dst


@dataclass(frozen=True)
class Fill(Stmt):
    """Every element of ``dst`` becomes ``value`` (of dst's dtype)."""

    dst: Region
    value: Expr


@dataclass(frozen=True)
class Gemm(Stmt):
    """``c (+)= op(a) @ op(b)`` on the last two dimensions; leading extents are 1.

    Operands are widened exactly and products and sums are formed in c's dtype. ``clear`` (bool
    expression) true starts from zero. ``policy`` is a hint: square, full_row or full_col.
    """

    a: Region
    b: Region
    c: Region
    transpose_a: bool
    transpose_b: bool
    clear: Expr
    policy: str = "square"


@dataclass(frozen=True)
class Reduce(Stmt):
    """``dst = reduce(src, dim)``, accumulated in dst's dtype.

    Not ``clear`` folds dst's old value in.

    dst's shape is src's without ``dim``, or with extent 1 there; a 1-D source reduces to extent 1.
    dst may have more dimensions of extent 1.
    """

    kind: str
    src: Region
    dst: Region
    dim: int
    clear: bool
    nan_propagate: bool = False

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The dimensions of src that stay, but for extents of 1, each with dst's own."""
        kept = (d for d in self.src.squeezed() if d != self.dim)
        return tuple(zip(kept, self.dst.squeezed(), strict=True))


@dataclass(frozen=True)
class Scan(Stmt):
    """Inclusive scan of ``src`` along ``dim`` into ``dst`` of the same extents."""

    kind: str
    src: Region
    dst: Region
    dim: int
    reverse: bool


@dataclass(frozen=True)
class Transpose(Stmt):
    """``dst[..., j, i] = src[..., i, j]``."""

    src: Region
    dst: Region


@dataclass(frozen=True)
class Im2col(Stmt):
    """NHWC gather of an implicit-GEMM tile at (``row_step``, ``col_step``), zero padded."""

    image: Buffer
    dst: Region
    row_step: Expr
    col_step: Expr
    kernel: int
    stride: int
    dilation: int
    pad: int


@dataclass(frozen=True)
class Atomic(Stmt):
    """Scalar form: ``value`` is an expression and dst's extents are 1.

    Tile form: ``value`` is a region.

    ``result``, if given, is bound to the value before the operation. Elements out of bounds are
    skipped.
    """

    op: str
    dst: Region
    value: Expr | Region | None
    result: Var | None = None
    order: str = "relaxed"


@dataclass(frozen=True)
class Print(Stmt):
    """Prints ``message`` and the values of ``args``."""

    message: str
    args: tuple[Expr | Region, ...]


@dataclass(frozen=True)
class Assert(Stmt):
    """``host`` asserts are checked before the launch, the others on the device."""

    cond: Expr
    message: str
    host: bool = False


@dataclass(frozen=True)
class Check(Stmt):
    """A run-time check that a pass inserted; a failure ends the launch and says ``what`` failed.

    ``kind`` "index": ``value`` must lie within ``[0, bound)`` where ``when`` holds. ``kind`` "nan":
    ``value``, a float, must be no NaN; ``bound`` is the place of its element, row-major. ``kind``
    "assert": ``value`` is the condition of a program's assertion, ``bound`` means nothing.
    """

    kind: str
    value: Expr
    bound: Expr
    when: Expr
    what: str


@dataclass(frozen=True)
class Assume(Stmt):
    """Promises that ``cond`` holds."""

    cond: Expr


@dataclass(frozen=True)
class Intrinsic(Stmt):
    """A named construct without a node of its own, such as ``sync_threads``."""

    name: str
    args: tuple[Expr, ...] = ()
    effects: bool = True


@dataclass(frozen=True)
class Placement:
    """Where the elements of a global ``buffer`` lie in its storage, within one launch.

    Element ``vars`` lies at ``indices`` of a row-major box as large as the storage.
    """

    buffer: Buffer
    vars: tuple[Var, ...]
    indices: tuple[Expr, ...]
    loc: Location | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Launch(Stmt):
    """One grid of blocks. ``grid`` has 1 to 3 extents, one block variable each.

    ``threads`` is a count.

    ``attrs`` are (name, value) pairs such as ("swizzle", "10:row"); ``safe_values`` are (buffer,
    value) pairs for reads out of bounds; ``placements`` are of tensors that are not row-major.
    """

    grid: tuple[Expr, ...]
    block_vars: tuple[Var, ...]
    threads: int
    body: Body
    attrs: tuple[tuple[str, str], ...] = ()
    safe_values: tuple[tuple[Buffer, Expr], ...] = ()
    placements: tuple[Placement, ...] = ()

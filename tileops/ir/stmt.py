"""The statement nodes of the tile IR.

A node is declared here, in ``tile_operations`` or in ``explicit``, and nowhere else. Walkers,
printer, verifier and codec follow from the declaration; ``Stmt`` says what a node declares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tileops.ir.expr import Buffer, Expr, Region, Var, comma_separated, integers, typed
from tileops.ir.node import Body as Body
from tileops.ir.node import Provenance as Provenance
from tileops.ir.node import Stmt as Stmt
from tileops.ir.threads import ClusterBarrier as ClusterBarrier
from tileops.ir.threads import Exchange as Exchange
from tileops.ir.threads import ExternCall as ExternCall
from tileops.ir.threads import GridBarrier as GridBarrier
from tileops.ir.threads import ImportSource as ImportSource
from tileops.ir.threads import LoadMatrix as LoadMatrix
from tileops.ir.threads import Mma as Mma
from tileops.ir.threads import RandomNumber as RandomNumber
from tileops.ir.threads import RandomStart as RandomStart
from tileops.ir.threads import Threads as Threads
from tileops.ir.tile_operations import *  # they are statements too
from tileops.location import Location

LOOP_KINDS = ("serial", "unroll", "vectorized", "pipelined")
CHECK_KINDS = ("index", "nan", "assert")


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return "".join(f" {name}={value}" for name, value in pairs)


@dataclass(frozen=True)
class For(Stmt):
    """``for var in range(start, stop)`` with step 1, executed in order.

    Kinds other than serial are hints. ``stages`` is the pipeline depth of a pipelined loop, 0 for
    none; ``hints`` are (name, value) pairs.
    """

    BODIES = ("body",)
    DEFINES = ("var",)
    DTYPES = {"start": "var", "stop": "var"}

    kind: str
    var: Var
    start: Expr
    stop: Expr
    body: Body
    stages: int = 0
    hints: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        span = f"{self.start} .. {self.stop}"
        stages = f" stages {self.stages}" if self.stages else ""
        return (
            f"{self.kind} {self.var}: {self.var.dtype.short} in {span}{stages}{_pairs(self.hints)}:"
        )

    def faults(self) -> Iterator[str]:
        if self.kind not in LOOP_KINDS:
            yield f"unknown loop kind {self.kind!r}"


@dataclass(frozen=True)
class Parallel(Stmt):
    """An elementwise nest: ``body`` runs once per point of the box ``extents``, in no order.

    Each point runs the body as a sequential program; no point reads what another writes.
    """

    BODIES = ("body",)
    DEFINES = ("vars",)

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: Body

    def text(self) -> str:
        return f"parallel {comma_separated(self.vars)} in [{comma_separated(self.extents)}]:"

    def faults(self) -> Iterator[str]:
        if not len(self.vars) == len(self.extents) > 0:
            yield "variables and extents differ in number"
        for var, extent in zip(self.vars, self.extents, strict=False):
            yield from typed(extent, var.dtype, "a parallel extent")

    def flattened(self) -> Parallel:
        """This nest with the nests that are all of its body merged into it."""
        nest = self
        while len(nest.body) == 1 and isinstance(nest.body[0], Parallel):
            inner = nest.body[0]
            vars_, extents = nest.vars + inner.vars, nest.extents + inner.extents
            nest = replace(nest, vars=vars_, extents=extents, body=inner.body)
        return nest


@dataclass(frozen=True)
class While(Stmt):
    """Runs ``body`` while ``cond`` holds."""

    BODIES = ("body",)
    DTYPES = {"cond": "bool"}
    TEXT = "while {0.cond}:"

    cond: Expr
    body: Body


@dataclass(frozen=True)
class Break(Stmt):
    """Leaves the innermost serial loop."""

    TEXT = "break"


@dataclass(frozen=True)
class Continue(Stmt):
    """Goes on with the next iteration of the innermost serial loop."""

    TEXT = "continue"


@dataclass(frozen=True)
class If(Stmt):
    """Runs ``then`` or ``orelse``."""

    BODIES = ("then", "orelse")
    DTYPES = {"cond": "bool"}
    TEXT = "if {0.cond}:"

    cond: Expr
    then: Body
    orelse: Body = ()


@dataclass(frozen=True)
class Alloc(Stmt):
    """Brings an on-chip buffer to life; ``init`` (var scope only) is stored at this point."""

    DEFINES = ("buffer",)
    DTYPES = {"init": "buffer"}

    buffer: Buffer
    init: Expr | None = None

    def writes(self) -> tuple[str, ...]:
        return () if self.init is None else ("buffer",)

    def text(self) -> str:
        init = "" if self.init is None else f" = {self.init}"
        return f"alloc {self.buffer.declaration}{init}"

    def faults(self) -> Iterator[str]:
        buffer = self.buffer
        if not buffer.is_on_chip:
            yield f"allocation of the global buffer {buffer.name}"
        if self.init is not None and buffer.scope != "var":
            yield f"{buffer.name} has an initial value and scope {buffer.scope}"


@dataclass(frozen=True)
class View(Stmt):
    """``buffer`` names the storage of ``source`` with another shape or dtype, row-major."""

    DEFINES = ("buffer",)
    READS = ("source",)
    TEXT = "view {0.buffer.declaration} of {0.source}"

    buffer: Buffer
    source: Buffer

    def faults(self) -> Iterator[str]:
        if self.buffer.scope != self.source.scope:
            yield f"view {self.buffer.name} changes the scope"


@dataclass(frozen=True)
class PeerView(View):
    """A view of a shared buffer in the block of number ``block`` of the same cluster."""

    DTYPES = {"block": "int32"}
    TEXT = "view {0.buffer.declaration} of {0.source} in block {0.block}"

    block: Expr

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if self.source.scope != "shared":
            yield f"{self.source.name} of another block is not shared"


@dataclass(frozen=True)
class AddressView(Stmt):
    """``buffer``, a global one, names the memory at ``address``, an int64 expression.

    ``table`` is the tensor that the address was read from: what is written through ``buffer``
    counts as written to it. None where the address comes from no tensor.
    """

    DEFINES = ("buffer",)
    DTYPES = {"address": "int64"}
    TEXT = "view {0.buffer.declaration} at {0.address}"

    buffer: Buffer
    address: Expr
    table: Buffer | None = None

    def faults(self) -> Iterator[str]:
        if self.buffer.is_on_chip:
            yield f"{self.buffer.name} at an address is on chip"


@dataclass(frozen=True)
class Bind(Stmt):
    """``var`` is the value of ``value`` at this point (a snapshot)."""

    DEFINES = ("var",)
    DTYPES = {"value": "var"}
    TEXT = "let {0.var}: {0.var.dtype.short} = {0.value}"

    var: Var
    value: Expr


@dataclass(frozen=True)
class Store(Stmt):
    """One element; ``value`` has the buffer's dtype. Global stores out of bounds are dropped."""

    WRITES = ("buffer",)
    DTYPES = {"value": "buffer"}

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    def text(self) -> str:
        return f"{self.buffer}[{comma_separated(self.indices)}] = {self.value}"

    def faults(self) -> Iterator[str]:
        return self.buffer.faults_of_indices(self.indices)


@dataclass(frozen=True)
class Print(Stmt):
    """Prints ``message`` and the values of ``args``."""

    READS = ("args",)

    message: str
    args: tuple[Expr | Region, ...]

    def text(self) -> str:
        return f"print {self.message!r} {', '.join([a.text() for a in self.args])}".rstrip()


@dataclass(frozen=True)
class Inspect(Print):
    """Python's ``print`` or ``breakpoint`` in a program, which the interpreter alone runs.

    A print's ``message`` is what it writes, with ``{}`` for each of ``args``. At a breakpoint
    ``names`` are those of ``args``.
    """

    names: tuple[str, ...] | None = None

    def text(self) -> str:
        kind = "print" if self.names is None else f"breakpoint {', '.join(self.names)}"
        return f"inspect.{kind} {super().text()}"


@dataclass(frozen=True)
class Assert(Stmt):
    """``host`` asserts are checked before the launch, the others on the device."""

    DTYPES = {"cond": "bool"}

    cond: Expr
    message: str
    host: bool = False

    def text(self) -> str:
        return f"{'host_assert' if self.host else 'assert'} {self.cond} {self.message!r}"


@dataclass(frozen=True)
class Check(Stmt):
    """A run-time check that a pass inserted; a failure ends the launch and says ``what`` failed.

    ``kind`` "index": ``value`` must be within ``[0, bound)`` where ``when`` holds. ``kind`` "nan":
    ``value``, a float, must not be NaN; ``bound`` is the place of its element, row-major. ``kind``
    "assert": ``value`` is the condition of a program's assertion, ``bound`` means nothing.
    ``number`` is what a failure reports (by default the check's origin).
    """

    DTYPES = {"when": "bool"}
    TEXT = "check.{0.kind} {0.value}, {0.bound} when {0.when} {0.what!r}"

    kind: str
    value: Expr
    bound: Expr
    when: Expr
    what: str
    number: int | None = field(default=None, compare=False, repr=False, kw_only=True)

    def faults(self) -> Iterator[str]:
        if self.kind not in CHECK_KINDS:
            yield f"unknown check {self.kind!r}"


@dataclass(frozen=True)
class Assume(Stmt):
    """Promises that ``cond`` holds."""

    DTYPES = {"cond": "bool"}
    TEXT = "assume {0.cond}"

    cond: Expr


@dataclass(frozen=True)
class Intrinsic(Stmt):
    """A named construct without a node of its own, such as ``sync_threads``."""

    READS = ("args",)

    name: str
    args: tuple[Expr, ...] = ()
    effects: bool = True

    def text(self) -> str:
        return f"intrinsic {self.name}({comma_separated(self.args)})"


@dataclass(frozen=True)
class Placement:
    """Where the elements of a global ``buffer`` are in its storage, within one launch.

    Element ``vars`` is at ``indices`` of a row-major box as large as the storage.
    """

    buffer: Buffer
    vars: tuple[Var, ...]
    indices: tuple[Expr, ...]
    loc: Location | None = field(default=None, compare=False, repr=False, kw_only=True)

    def text(self) -> str:
        """The canonical text within a launch's line."""
        element = f"{self.buffer}[{comma_separated(self.vars)}]"
        return f" place {element} at [{comma_separated(self.indices)}]"

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        name = self.buffer.name
        if self.buffer.is_on_chip:
            yield f"{name} is placed and on chip"
        if len(self.vars) != self.buffer.ndim:
            yield f"{name} is placed by rank"
        for index in self.indices:
            yield from typed(index, "int32", f"the place of {name}")


@dataclass(frozen=True)
class Launch(Stmt):
    """One grid of blocks. ``grid`` has 1 to 3 extents, one block variable each.

    ``threads`` is a count. ``attrs`` are (name, value) pairs such as ("swizzle", "10:row"),
    or ("cluster", "2x1"), the blocks of a cluster along the grid's dimensions;
    ``safe_values`` are (buffer, value) pairs for reads out of bounds; ``placements`` are of tensors
    that are not row-major.
    """

    BODIES = ("body",)
    DEFINES = ("block_vars",)

    grid: tuple[Expr, ...]
    block_vars: tuple[Var, ...]
    threads: int
    body: Body
    attrs: tuple[tuple[str, str], ...] = ()
    safe_values: tuple[tuple[Buffer, Expr], ...] = ()
    placements: tuple[Placement, ...] = ()

    @property
    def cluster(self) -> tuple[int, ...]:
        """The blocks of a cluster along each dimension of the grid."""
        text = dict(self.attrs).get("cluster")
        return tuple(map(int, text.split("x"))) if text else (1,) * len(self.grid)

    def text(self) -> str:
        box = f"{comma_separated(self.block_vars)} in [{comma_separated(self.grid)}]"
        safe = "".join(f" safe {b}={v}" for b, v in self.safe_values)
        placed = "".join(p.text() for p in self.placements)
        return f"launch {box} threads {self.threads}{_pairs(self.attrs)}{safe}{placed}:"

    def faults(self) -> Iterator[str]:
        if not 1 <= len(self.grid) <= 3:
            yield f"a grid of {len(self.grid)} extents"
        if len(self.grid) != len(self.block_vars):
            yield "grid and block variables differ in number"
        if self.threads <= 0:
            yield f"threads {self.threads}"
        yield from integers(self.grid, "a grid extent")
        for buffer, value in self.safe_values:
            yield from typed(value, buffer.dtype, f"the safe value of {buffer.name}")
        for placement in self.placements:
            yield from placement.faults()

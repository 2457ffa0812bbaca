"""The state of a running trace: open regions, live names, the launch and the signature."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from tileops.dtypes import DType
from tileops.errors import NoBuilderError, ProgramError, ProgramTypeError, ProgramValueError
from tileops.ir import fold, walk
from tileops.ir.builder import Builder, active_builder
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.program import Size, TensorParam
from tileops.ir.stmt import AddressView, Body, Parallel, Placement, Stmt, View
from tileops.location import Location

# True while programs are traced for the interpreter, which runs their prints and breakpoints.
for_interpreter: ContextVar[bool] = ContextVar("tileops_for_interpreter", default=False)
_Named = TypeVar("_Named", Var, Buffer)
_REGIONS = {
    "launch": "`with T.Kernel` block",
    "for": "loop",
    "parallel": "T.Parallel loop",
    "while": "`while` loop",
    "then": "`if`",
    "else": "`if`",
}


@dataclass(eq=False)
class OpenRegion:
    """A statement list that is being recorded; its ``names`` end with it.

    ``kind`` is a key of the table above; ``parallel`` are the variables and extents of T.Parallel.
    """

    kind: str
    loc: Location | None = None
    parallel: tuple[tuple[Var, Expr], ...] = ()
    statements: list[Stmt] = field(default_factory=list)
    names: list[Var | Buffer] = field(default_factory=list)

    @property
    def body(self) -> Body:
        return tuple(self.statements)

    def describe(self) -> str:
        """What the user calls this region, with its line."""
        what = _REGIONS[self.kind]
        return what if self.loc is None else f"{what} at line {self.loc.line}"


@dataclass(eq=False)
class DeclaredDType:
    """A dtype variable that a trace has met: what it may be, where, and the parameters with it."""

    dtypes: tuple[DType, ...]
    loc: Location | None
    params: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ThreadIndices:
    """The thread indices that a launch uses, and the threads of its block along each dimension.

    ``lanes`` are the indices by dimension, each with its number of threads.
    """

    extents: tuple[int, ...]
    by_dimension: tuple[tuple[int, Var], ...] = ()

    @property
    def lanes(self) -> tuple[tuple[Var, int], ...]:
        return tuple((var, self.extents[dim]) for dim, var in self.by_dimension)

    @property
    def count(self) -> int:
        """The threads of a block."""
        return math.prod(self.extents)

    def value(self, lane: Var, thread: Var) -> Expr:
        """The index ``lane`` of the block's thread of this number; the first dimension is fast."""
        (dim,) = (dim for dim, var in self.by_dimension if var == lane)
        inner = fold.const(math.prod(self.extents[:dim]))
        rest = fold.binary("floordiv", thread, inner)
        if dim == len(self.extents) - 1:
            return rest
        return fold.binary("floormod", rest, fold.const(self.extents[dim]))


@dataclass(eq=False)
class LaunchState:
    """What the constructs inside a ``with T.Kernel`` block record about their launch.

    ``lanes`` are the thread indices by dimension. ``runs`` are the tensors whose neighbours in
    storage a construct takes, with that construct's name. ``reducers`` are those of the blocks of
    T.attr that are open, ``arrivals`` is the count of T.sync_grid,
    ``cluster`` are the blocks of a cluster along the grid's dimensions.
    """

    block_vars: tuple[Var, ...]
    threads: tuple[int, ...]
    lanes: dict[int, Var] = field(default_factory=dict)
    attrs: dict[str, str] = field(default_factory=dict)
    safe_values: dict[Buffer, Expr] = field(default_factory=dict)
    placements: dict[Buffer, Placement] = field(default_factory=dict)
    runs: dict[Buffer, str] = field(default_factory=dict)
    reducers: list[object] = field(default_factory=list)
    arrivals: Buffer | None = None
    cluster: tuple[int, ...] = ()

    @property
    def thread_count(self) -> int:
        """The threads of a block."""
        return math.prod(self.threads)


class Tracer(Builder):
    """The builder of a trace, with what the language needs to know beyond the recorded IR.

    ``target`` is the target of the trace, if known; messages name it. ``consts`` are the values of
    the size constants, or None in a symbolic trace. ``inline`` runs a macro (the front end provides
    it). ``skip_bodies`` records launches without their statements. ``wide_sizes`` makes run-time
    sizes of 32 bits 64 bits wide: some tensor has 2^31 elements. ``tried`` is the number that
    Python is told for a size constant without a value. ``in_message`` is set while the text of an
    assertion is made, which may show expressions. ``dtypes`` are the values of the dtype variables:
    the first allowed one if a name is missing, and None if no given argument tells it; None instead
    of a mapping means that there may be none. ``lanes`` are, for each launch, its thread indices.
    ``for_interpreter`` records the program's prints and breakpoints. ``leading`` is the product of
    the leading dimensions, once the program has used them. ``extern`` is the open block of
    foreign launches. ``names`` are the user's for what the statement creates. Index arithmetic with
    the variables of the ids ``bounded`` is taken as not wrapping. ``const_locations`` says where
    each size constant was made, by its variable's id.
    """

    def __init__(
        self,
        name: str,
        *,
        consts: Mapping[str, int] | None = None,
        skip_bodies: bool = False,
    ) -> None:
        super().__init__(name)
        self.consts = consts
        self.inline: Callable[..., object] | None = None
        self.skip_bodies = skip_bodies
        self.target: str | None = None
        self.for_interpreter = for_interpreter.get()
        self.wide_sizes = False
        self.tried: int | None = None
        self.in_message = False
        self.dtypes: Mapping[str, DType | None] | None = {}
        self.dtype_variables: dict[str, DeclaredDType] = {}
        self.leading: Var | None = None
        self.launch: LaunchState | None = None
        self.extern: object | None = None
        self.lanes: list[ThreadIndices] = []
        self.regions: list[OpenRegion] = []
        self.const_locations: dict[int, Location | None] = {}
        self.outputs: list[TensorParam] = []
        self.pending_views: list[View | AddressView] = []
        self.lazy_depth = 0
        self.conditional_depth = 0
        self.names: list[str] = []
        self.bounded: set[int] = set()
        self._live: dict[int, Var | Buffer] = {}
        self._dead: dict[int, str] = {}
        self._adopted: dict[Var, Var] = {}

    # -- names ---------------------------------------------------------------------------------
    def take_name(self, default: str) -> str:
        """The user's name for a new buffer, or ``default`` if the statement gives none."""
        return self.names.pop(0) if self.names else default

    def define(self, made: _Named, *, bounded: bool = False, permanent: bool = False) -> _Named:
        """Make a variable or buffer usable until the innermost region closes, if there is one.

        ``permanent`` makes it usable everywhere in the program; ``bounded``: index arithmetic with
        it is taken as not wrapping.
        """
        self._live[made.id] = made
        if bounded:
            self.bounded.add(made.id)
        if self.regions and not permanent:
            self.regions[-1].names.append(made)
        return made

    def emit_view(self, view: View | AddressView) -> None:
        """Record a view and make it usable in the innermost region, or in each launch to come."""
        if self.launch is None:
            self.pending_views.append(view)
            return
        self.define(view.buffer)
        self.emit(view)

    def open_statements(self) -> Body:
        """What the open regions have recorded so far, outer first."""
        return tuple(stmt for body in self._bodies for stmt in body)

    def size(self, name: str, dtype: DType, kind: str) -> Var:
        """A new size variable of the signature."""
        var = self.define(self.new_var(name, dtype), bounded=True, permanent=True)
        self.sizes.append(Size(var, kind))
        if kind == "const":
            self.const_locations[var.id] = self.location
        return var

    def leading_size(self) -> Var:
        """The product of the dimensions that ``...`` stands for, a run-time size."""
        if self.leading is None:
            kind = DType("int64" if self.wide_sizes else "int32")
            self.leading = self.size("leading", kind, "dynamic")
        return self.leading

    def adopt(self, expr: Expr) -> Expr:
        """``expr`` with size variables made outside any trace replaced by this program's own."""
        mapping: dict[int, Expr] = {}
        for e in walk.walk_expr(expr):
            if isinstance(e, Var) and e.id < 0:
                if e not in self._adopted:
                    self._adopted[e] = self.size(e.name, e.dtype, "dynamic")
                mapping[e.id] = self._adopted[e]
        return walk.substitute(expr, mapping) if mapping else expr

    def depends_on_consts_only(self, expr: Expr) -> bool:
        """True if ``expr`` becomes a constant once the size constants are known."""
        return all(
            e.id in self.const_locations if isinstance(e, Var) else not isinstance(e, Load)
            for e in walk.walk_expr(expr)
        )

    # -- regions -------------------------------------------------------------------------------
    def open_region(self, kind: str, parallel: tuple[tuple[Var, Expr], ...] = ()) -> OpenRegion:
        """Start recording a nested statement list."""
        region = OpenRegion(kind, self.location, parallel)
        self._bodies.append(region.statements)
        self.regions.append(region)
        return region

    def close_region(self) -> OpenRegion:
        """Finish the innermost statement list; what it defined can no longer be used."""
        region = self.regions.pop()
        self._bodies.pop()
        for ended in region.names:
            self._live.pop(ended.id, None)
            self._dead[ended.id] = region.describe()
        return region

    @property
    def region(self) -> OpenRegion | None:
        """The innermost open region, None outside launches."""
        return self.regions[-1] if self.regions else None

    @property
    def in_parallel(self) -> bool:
        return any(region.kind == "parallel" for region in self.regions)

    # -- statements ----------------------------------------------------------------------------
    def require_launch(self, construct: str) -> LaunchState:
        """The open launch; NoBuilderError naming ``construct`` outside one."""
        if self.launch is None:
            raise NoBuilderError(f"{construct} was used outside a `with T.Kernel(...)` block")
        return self.launch

    def emit_tile(self, construct: str, stmt: Stmt) -> None:
        """Record a tile operation; it may not be inside T.Parallel."""
        self.require_launch(construct)
        if self.in_parallel:
            raise ProgramValueError(
                f"{construct} is a tile operation and cannot be inside T.Parallel, whose body "
                "handles one element"
            )
        self.emit(stmt)

    def emit(self, stmt: Stmt) -> None:
        """Append a statement after checking that everything it names is still alive."""
        self.check_alive(stmt)
        super().emit(stmt)

    def emit_defining(self, loop: Parallel) -> None:
        """Append a finished T.Parallel whose body was built outside a region."""
        for var in loop.vars:
            self._live[var.id] = var
        for stmt in loop.body:
            self.check_alive(stmt)
        self.emit(loop)
        for var in loop.vars:
            del self._live[var.id]

    def check_alive(self, stmt: Stmt) -> None:
        """ProgramValueError if the statement reads a name whose region has ended."""
        for name in walk.operand_names(stmt):
            if name not in stmt.DEFINES:
                self._check_operand_alive(getattr(stmt, name))

    def _check_operand_alive(self, value: object) -> None:
        if isinstance(value, Expr):
            self.check_expr_alive(value)
        elif isinstance(value, tuple):
            for item in value:
                self._check_operand_alive(item)
        elif isinstance(value, Region):
            self._check_buffer_alive(value.buffer)
            self._check_operand_alive((*value.starts, *value.extents))
        elif isinstance(value, Buffer):
            self._check_buffer_alive(value)

    def check_expr_alive(self, expr: Expr) -> None:
        """ProgramValueError if the expression reads a name whose region has ended."""
        for e in walk.walk_expr(expr):
            if isinstance(e, Var) and self._live.get(e.id) is not e:
                raise self.dead_name(e.name, self._dead.get(e.id))
            if isinstance(e, Load):
                self._check_buffer_alive(e.buffer)

    def _check_buffer_alive(self, buffer: Buffer) -> None:
        if self._live.get(buffer.id) is not buffer:
            raise self.dead_name(buffer.name, self._dead.get(buffer.id))

    def dead_name(self, name: str, region: str | None) -> ProgramError:
        """The error for reading ``name`` after the region that defines it."""
        if region is None:
            return ProgramValueError(f"`{name}` belongs to another program")
        return ProgramValueError(
            f"`{name}` is read outside the {region} that defines it; use T.alloc_var for a value "
            "needed after the block"
        )


def active_tracer() -> Tracer | None:
    """The trace that runs in this thread, or None."""
    builder = active_builder()
    return builder if isinstance(builder, Tracer) else None


def require_tracer(construct: str) -> Tracer:
    """The running trace; NoBuilderError naming the construct outside one."""
    tracer = active_tracer()
    if tracer is None:
        raise NoBuilderError(
            f"{construct} was used outside a program; call it inside a function decorated with "
            "@tileops.jit or @T.prim_func"
        )
    return tracer


def tracer_in_launch(construct: str) -> Tracer:
    """The running trace inside a launch; NoBuilderError naming the construct outside one."""
    tracer = require_tracer(construct)
    tracer.require_launch(construct)
    return tracer


def require_launch(construct: str) -> LaunchState:
    """The open launch of the running trace; NoBuilderError naming the construct without one."""
    return require_tracer(construct).require_launch(construct)


def iter_names(text: object) -> Iterator[str]:
    """The names in ``"M, N K"``, split at commas and blanks; ProgramTypeError for another type."""
    if not isinstance(text, str):
        raise ProgramTypeError(
            "size names are given as one string", expected='such as "M, N"', found=repr(text)
        )
    yield from text.replace(",", " ").split()

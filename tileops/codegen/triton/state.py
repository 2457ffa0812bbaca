"""The state of one kernel being written: names, scopes, tiles, masks and known ranges."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton.liveness import Ids, liveness_of
from tileops.codegen.triton.memory import Memory
from tileops.codegen.triton.params import Params
from tileops.codegen.triton.space import Space, shape_text, subscript
from tileops.codegen.triton.storage import NeedsMemory, Storage, buffer_storage, padding_of
from tileops.codegen.triton.text import Val, call, number, triton_type, typed
from tileops.codegen.triton.writer import Names, Writer
from tileops.dtypes import INT32
from tileops.errors import InternalError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Load, Var
from tileops.ir.program import Program
from tileops.ir.stmt import Body, Launch, Stmt
from tileops.location import Location
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.context import Context


@dataclass(frozen=True)
class Scope:
    """What changes with nesting: the iteration space, the mask of active lanes, known ranges."""

    space: Space = field(default_factory=Space)
    mask: Val | None = None
    ranges: Ranges = field(default_factory=Ranges)
    varying: frozenset[int] = frozenset()  # ids of variables that differ between lanes


class LaunchState:
    """State while one launch is written."""

    # Emitters of statements that only some launches have, by kind.
    steps: Mapping[type[Stmt], Callable[[Any, Any], None]] = {}

    def __init__(
        self,
        program: Program,
        launch: Launch,
        known: Context,
        spec: Specialization,
        load_element: Callable[[LaunchState, Load], Val],
        emit_body: Callable[[LaunchState, Body, Ids], None],
        in_memory: Ids,
    ) -> None:
        self.load_element, self.emit_body = load_element, emit_body
        self.program = program
        self.launch = launch
        self.target = known.target
        self.spec = spec
        self.options = dict(program.options)
        self.writer = Writer()
        self.names = Names()
        self.params = Params(program, spec, self.names)
        self.padding = known.of(padding_of, program, launch)
        self.liveness = known.of(liveness_of, program, launch)
        self.memory = Memory(launch, in_memory, self.liveness, self.names, self.writer)
        for held in self.memory.slices.values():
            self.params.place(held.held, held.name)
        self.scope = Scope(ranges=known.ranges(program, launch))
        self.vars: dict[int, Val] = {}
        self.storages: dict[int, Storage] = {}
        self._sources: dict[int, Buffer] = {}
        self.tile_names: dict[int, str] = {}
        # Of variables that are numbers of four bits: the bytes that hold them.
        self.packed: dict[int, Val] = {}
        self.defined: set[int] = set()
        self.helpers: set[str] = set()
        self.stages: set[int] = set()
        self.loc: Location | None = launch.loc
        self._iotas: dict[tuple[int, int, int], str] = {}
        self._numbers = itertools.count(1)  # of synthetic variables

    # -- scopes --------------------------------------------------------------------------------
    @contextmanager
    def nested(self, **changes: object) -> Iterator[None]:
        """Replace fields of the scope inside the block."""
        before = self.scope
        self.scope = dataclasses.replace(before, **changes)  # type: ignore[arg-type]
        try:
            yield
        finally:
            self.scope = before

    @property
    def space(self) -> Space:
        return self.scope.space

    def synthetic_vars(self, count: int) -> tuple[Var, ...]:
        """New variables for a nest that the program does not spell out."""
        return tuple(Var(INT32, -n, f"axis{n}") for n in itertools.islice(self._numbers, count))

    @contextmanager
    def nest(self, extents: Sequence[int]) -> Iterator[tuple[Var, ...]]:
        """A nest of ``extents`` over new variables, inside the block."""
        vars_ = self.synthetic_vars(len(extents))
        with self.over(vars_, extents):
            yield vars_

    @contextmanager
    def over(self, vars_: Sequence[Var], extents: Sequence[int]) -> Iterator[None]:
        """A nest over ``vars_``, inside the block: lane numbers, or 0 where an extent is 1."""
        axes = {v: e for v, e in zip(vars_, extents, strict=True) if e != 1}
        space = Space(tuple(axes), tuple(axes.values()), tuple(map(self.padding, axes.values())))
        ranges = self.scope.ranges
        for var, extent in zip(vars_, extents, strict=True):
            ranges = ranges.with_span(var, fold.const(0), fold.const(extent))
            self.vars[var.id] = number(0)
        for axis, var in enumerate(space.vars):
            self.vars[var.id] = self.lane(space, axis)
        varying = self.scope.varying | {v.id for v in space.vars}
        with self.nested(space=space, ranges=ranges, varying=varying):
            yield

    # -- lanes ---------------------------------------------------------------------------------
    def lane(self, space: Space, axis: int) -> Val:
        """The lane numbers along one axis of a space."""
        return Val(self.iota(space.padded[axis], axis, space.rank), INT32, frozenset({axis}))

    def quotient(self, a: Val, b: Val) -> Val:
        """A correctly rounded quotient of float32."""
        return call("tl.div_rn", a, b)

    def iota(self, size: int, axis: int = 0, rank: int = 1) -> str:
        """The name of a tile of ``rank`` dimensions that counts from 0 to ``size`` along one."""
        key = (size, axis, rank)
        if key not in self._iotas:
            suffix = ("_col", "_row")[axis] if rank == 2 else f"_{axis}of{rank}" if rank > 2 else ""
            expanded = "" if rank == 1 else subscript(a == axis for a in range(rank))
            name = self.names.fresh(f"iota_{size}{suffix}")
            self.writer.prologue(f"{name} = tl.arange(0, {size}){expanded}")
            self._iotas[key] = name
        return self._iotas[key]

    # -- on-chip buffers -----------------------------------------------------------------------
    def declare(self, buffer: Buffer, storage: Storage | None = None) -> None:
        """Hold an on-chip buffer in a variable, which gets the user's name."""
        self.storages[buffer.id] = storage or buffer_storage(buffer, self.padding, self.loc)
        if buffer.id not in self.tile_names:
            self.tile_names[buffer.id] = self.names.fresh(buffer.name)

    def storage(self, buffer: Buffer) -> Storage:
        """How an on-chip buffer is held."""
        if buffer.id not in self.storages:
            raise InternalError(f"codegen: buffer {buffer.name} is used before its allocation")
        return self.storages[buffer.id]

    def declare_view(self, buffer: Buffer, source: Buffer) -> None:
        """Make ``buffer`` another name, shape or dtype of the storage of ``source``."""
        if not source.is_on_chip or self.memory.holds(source):
            if source.strides is not None:
                raise self.unsupported(f"a view of `{source.name}`, which has strides of its own")
            self.params.alias(buffer, source)
            return
        storage = buffer_storage(buffer, self.padding, self.loc)
        of = self.storage(source)
        exact = storage.padded == storage.extents and of.padded == of.extents
        if storage.dtype.bits != of.dtype.bits or (storage.padded != of.padded and not exact):
            raise self.needs_memory(buffer)
        self.storages[buffer.id] = storage
        self._sources[buffer.id] = source

    def tile_name(self, buffer: Buffer) -> str:
        """Text of the buffer's tile; the variable is given a value first if it has none yet."""
        source = self._sources.get(buffer.id)
        if source is not None:
            return self._recast(self.tile_name(source), source, buffer)
        self._define(buffer.id)
        return self.tile_names[buffer.id]

    def _recast(self, text: str, source: Buffer, target: Buffer) -> str:
        """A tile of one buffer as a tile of another that names the same elements."""
        old, new = self.storages[source.id], self.storages[target.id]
        if old.tile_shape != new.tile_shape and new.tile_shape:
            text = f"tl.reshape({text}, {shape_text(new.tile_shape)})"
        if old.dtype != new.dtype:
            text = f"({text}).to({triton_type(new.dtype)}, bitcast=True)"
        return text

    def in_space(self, tile: Val, storage: Storage, axes: Sequence[int]) -> Val:
        """A tile whose dimensions run along ``axes``, ready for operations of the current nest."""
        return tile

    def from_other_space(self, value: Val) -> Val:
        """A value along all axes of the current nest that another nest computed."""
        return value

    def define_all(self, buffer_ids: Ids) -> None:
        """Give buffers that may be used before they are written a value: zero."""
        for buffer_id in sorted(buffer_ids):
            self._define(buffer_id)

    def _define(self, buffer_id: int) -> None:
        if buffer_id in self.defined or buffer_id not in self.storages:
            return
        storage, name = self.storages[buffer_id], self.tile_names[buffer_id]
        zero = "False" if storage.dtype.is_bool else "0"
        shape, kind = shape_text(storage.tile_shape), triton_type(storage.dtype)
        self.writer.line(f"{name} = tl.full({shape}, {zero}, {kind})")
        self.defined.add(buffer_id)

    def assign(self, buffer: Buffer, text: str) -> None:
        """Write ``name = text`` for a buffer and note that it has a value."""
        source = self._sources.get(buffer.id)
        if source is not None:
            self.assign(source, self._recast(text, buffer, source))
            return
        self.writer.line(f"{self.tile_names[buffer.id]} = {text}")
        self.defined.add(buffer.id)

    @contextmanager
    def fresh_names(self, buffers: Ids) -> Iterator[None]:
        """Give buffers other variables inside the block: a loop then does not carry the outer."""
        before = {b: self.tile_names[b] for b in buffers if b in self.defined}
        defined = set(self.defined)
        for b, name in before.items():
            self.tile_names[b] = self.names.fresh(name)
            self.defined.discard(b)
        try:
            yield
        finally:
            self.tile_names.update(before)
            self.defined = defined

    @property
    def has_assembly(self) -> bool:
        """True if device functions may have inline assembly on tiles."""
        return self.target.kind == "cuda" and self.target.capability >= 80

    def is_on(self, option: str) -> bool:
        """True if a pass config is given as true."""
        return self.options.get(option, "").lower() in ("true", "1")

    # -- values and errors ---------------------------------------------------------------------
    def temporary(self, wanted: str, value: Val) -> Val:
        """Store a value in a variable of its own and return that.

        Triton makes a tensor of a number that a variable is given, of int32, float32 or bool. It is
        no Python number any more: ``//`` rounds it towards zero.
        """
        name = self.names.fresh(wanted)
        kept = value if value.dtype in ("int32", "float32", "bool") else typed(value)
        self.writer.line(f"{name} = {kept.text}")
        return Val(name, value.dtype, value.axes)

    def bind(self, var: Var, value: Val, ranges: Ranges | None = None) -> None:
        """Store ``value`` as ``var`` for the rest of the current scope."""
        self.vars[var.id] = self.temporary(var.name, value)
        varying = self.scope.varying | ({var.id} if value.axes else frozenset())
        ranges = ranges or self.scope.ranges
        self.scope = dataclasses.replace(self.scope, varying=varying, ranges=ranges)

    def helper(self, name: str) -> str:
        """Note that the kernel calls a helper function and return its name in the text."""
        self.helpers.add(name)
        return f"_{name}"

    def needs_memory(self, buffer: Buffer) -> NeedsMemory:
        """The request to hold ``buffer``, or what it is a view of, in memory."""
        return NeedsMemory(self.liveness.root(buffer.id), buffer.name)

    def unsupported(self, message: str, found: str | None = None) -> UnsupportedConstructError:
        """An error for a construct that this path cannot lower, at the current statement."""
        return UnsupportedConstructError(message, location=self.loc, found=found)

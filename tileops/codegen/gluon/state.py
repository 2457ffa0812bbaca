"""The state of one role being written: Triton's, with a layout for every tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tileops.codegen.gluon.layouts import Layouts
from tileops.codegen.gluon.maps import Maps
from tileops.codegen.gluon.steps import STEPS
from tileops.codegen.triton.elements import load_element
from tileops.codegen.triton.space import Space, shape_text, subscript
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.storage import Storage
from tileops.codegen.triton.text import PRODUCT, Val, call, triton_type
from tileops.dtypes import INT32
from tileops.ir import fold
from tileops.ir.expr import Buffer, Load, Var
from tileops.ir.schedule import Ring, Schedule
from tileops.passes.hopper import Unfit


def load_in_role(state: LaunchState, load: Load) -> Val:
    """The value of ``load`` for every lane."""
    assert isinstance(state, RoleState)
    return state.rider(load) if load.buffer.id in state.fed else load_element(state, load)


class RoleState(LaunchState):
    """State while one role of a launch is written.

    Lanes of a nest have the layout of the nest's box. A tile is brought to it where the nest reads
    it, and to its own where it is stored; conversions between equal layouts cost nothing.
    """

    steps = STEPS
    has_assembly = False
    # Whether the text calls ``_divided``.
    shares_divisors = False
    layouts: Layouts
    # Of each buffer that a ring holds, by id.
    fed: Mapping[int, Ring]

    def enter(self, schedule: Schedule, layouts: Layouts, maps: Maps) -> None:
        """Take up a role of ``schedule``."""
        self._lanes: dict[str, str] = {}
        self.schedule, self.layouts, self.maps = schedule, layouts, maps
        self.fed = {b.id: ring for ring in schedule.rings for b in ring.buffers}
        for ring in schedule.rings:
            self.writer.line(f"{self.count(ring)} = 0")
        if schedule.first_row is not None:
            rows, last = schedule.rows, schedule.rows * (schedule.groups - 1)
            self.vars[schedule.first_row.id] = Val(f"group * {rows}", INT32, prec=PRODUCT)
            self.scope = replace(
                self.scope,
                ranges=self.scope.ranges.with_span(
                    schedule.first_row, fold.const(0), fold.const(last + 1)
                ),
            )

    def lane(self, space: Space, axis: int) -> Val:
        """The lane numbers along one axis of a space, in the layout of its box."""
        key = f"{space.padded} {axis}"
        name = self._lanes.get(key)
        if name is None:
            one = space.rank == 1
            laid = (
                self.layouts.tile(space.padded) if one else self.layouts.slice(space.padded, axis)
            )
            name = self.names.fresh(f"lane_{'x'.join(map(str, space.padded))}_{axis}")
            text = f"gl.arange(0, {space.padded[axis]}, layout={laid})"
            expanded = "" if one else subscript(a == axis for a in range(space.rank))
            self.writer.prologue(f"{name} = {text}{expanded}")
            self._lanes[key] = name
        return Val(name, INT32, frozenset({axis}))

    def iota(self, size: int, axis: int = 0, rank: int = 1) -> str:
        """Refused: a count of its own has no layout to agree with."""
        raise Unfit("one element or a part of a tile in registers is accessed", self.loc)

    @contextmanager
    def over(self, vars_: Sequence[Var], extents: Sequence[int]) -> Iterator[None]:
        """A nest over ``vars_``; Unfit where its box is padded or has more than two dimensions."""
        if any(self.padding(e) != e for e in extents):
            raise Unfit(f"a nest of {' x '.join(map(str, extents))} points", self.loc)
        if sum(e != 1 for e in extents) > 2:
            raise Unfit(f"a nest of {len(extents)} dimensions", self.loc)
        with super().over(vars_, extents):
            yield

    def quotient(self, a: Val, b: Val) -> Val:
        """A quotient, correctly rounded above 2^-100; a divisor that lanes share is inverted once.

        64 divisions of a thread, each with branches for rare operands, took as long as two
        iterations of attention.
        """
        if b.axes < a.axes:
            self.shares_divisors = True
            return call("_divided", a, b)
        return super().quotient(a, b)

    def declare(self, buffer: Buffer, storage: Storage | None = None) -> None:
        """Hold an on-chip buffer in a variable; Unfit where the tile would be padded."""
        super().declare(buffer, storage)
        held = self.storages[buffer.id]
        if held.padded != held.extents:
            raise Unfit(f"`{buffer.name}` has an extent that is not a power of two", self.loc)

    def declare_view(self, buffer: Buffer, source: Buffer) -> None:
        """Make ``buffer`` another name of global memory; Unfit for a tile."""
        if source.is_on_chip:
            raise Unfit(f"`{buffer.name}` is a view of a tile", self.loc)
        super().declare_view(buffer, source)

    def in_space(self, tile: Val, storage: Storage, axes: Sequence[int]) -> Val:
        """A tile in the layout of the current nest's box."""
        if list(axes) != sorted(axes):
            raise Unfit("a tile is read transposed", self.loc)
        if len(axes) == self.space.rank:
            laid = self.layouts.tile(self.space.padded)
        else:
            laid = self.layouts.slice(self.space.padded, axes[0])
        if laid == self.layouts.tile(storage.padded):
            return tile
        return Val(f"gl.convert_layout({tile.text}, {laid})", tile.dtype)

    def rider(self, load: Load) -> Val:
        """The elements of a slot: those of the current nest, or of a vector for its columns."""
        if len(load.indices) == 2:
            tile = self.slot_of(load.buffer)
            laid = self.layouts.tile(self.space.padded)
            return Val(f"{tile}.load({laid})", load.dtype, frozenset({0, 1}))
        (index,) = load.indices
        axis = self.space.axis_of(index.id) if isinstance(index, Var) else None
        if axis is None:
            raise Unfit(f"one element of `{load.buffer.name}` is read", self.loc)
        axes = frozenset({axis})
        vector = self.slot_of(load.buffer)
        if self.space.rank == 1:
            return Val(f"{vector}.load({self.layouts.tile(self.space.padded)})", load.dtype, axes)
        laid = self.layouts.slice(self.space.padded, axis)
        expanded = subscript(a in axes for a in range(self.space.rank))
        return Val(f"{vector}.load({laid}){expanded}", load.dtype, axes)

    def from_other_space(self, value: Val) -> Val:
        """A value that another nest computed, in the layout of this one."""
        if not self.space.rank:
            return value
        laid = self.layouts.tile(self.space.padded)
        return Val(f"_laid({value.text}, {laid})", value.dtype, value.axes)

    def assign(self, buffer: Buffer, text: str) -> None:
        """Write ``name = text``, in the layout of the buffer's own shape."""
        shape = self.storages[buffer.id].tile_shape
        super().assign(buffer, f"_laid({text}, {self.layouts.tile(shape)})" if shape else text)

    def _define(self, buffer_id: int) -> None:
        storage = self.storages.get(buffer_id)
        if storage is None or buffer_id in self.defined or not storage.tile_shape:
            super()._define(buffer_id)
            return
        zero = "False" if storage.dtype.is_bool else "0"
        laid = self.layouts.tile(storage.tile_shape)
        self.writer.line(
            f"{self.tile_names[buffer_id]} = gl.full({shape_text(storage.tile_shape)}, {zero}, "
            f"{triton_type(storage.dtype)}, {laid})"
        )
        self.defined.add(buffer_id)

    # -- rings -----------------------------------------------------------------------------------
    def count(self, ring: Ring) -> str:
        """The variable that counts the rounds of a ring in this role."""
        return f"n_{ring}"

    def slot(self, ring: Ring, behind: int = 0) -> str:
        """The number of the slot of this round, or of one ``behind``."""
        if ring.depth == 1:
            return "0"
        round_ = f"({self.count(ring)} + {ring.depth - behind})" if behind else self.count(ring)
        return f"{round_} % {ring.depth}"

    def slot_of(self, buffer: Buffer, behind: int = 0) -> str:
        """The memory of a buffer in a slot, with the dimensions of more than 1."""
        ring = self.fed[buffer.id]
        shape, _ = ring.slots[[b.id for b in ring.buffers].index(buffer.id)]
        text = f"{self.maps.slots(buffer)}.index({self.slot(ring, behind)})"
        kept = [e for e in buffer.static_shape() or () if e != 1]
        return text if len(shape) == len(kept) else f"{text}.reshape({kept})"

    def parity(self, ring: Ring) -> str:
        """Text of the parity of this round."""
        rounds = self.count(ring) if ring.depth == 1 else f"{self.count(ring)} // {ring.depth}"
        return f"{rounds} & 1"

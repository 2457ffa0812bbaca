"""Tensors with a layout: each access goes to the place that the layout gives the element."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import (
    AddressView,
    Atomic,
    Body,
    Copy,
    Fill,
    Im2col,
    Launch,
    Placement,
    Stmt,
    View,
)
from tileops.ir.walk import fresh_ids, map_accesses, regions, sub_bodies, walk, with_bodies
from tileops.location import Location
from tileops.pass_configs import PassConfigKey
from tileops.passes.analyze_index import in_width, needs_guard
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.context import Context
from tileops.passes.expand_tile_ops import expand
from tileops.passes.measure_placement import measure_placement, placed

_OUTSIDE = fold.const(-1)


def place_tensors(program: Program, context: Context) -> Program:
    """``program`` without placements; itself where it has none.

    A view of the storage, with the extents of the layout's box, is accessed at the element's place,
    or outside it where the element itself is outside the tensor. Tile operations on such a tensor
    become nests.

    UnsupportedConstructError, located, for a layout that is not a one-to-one map onto a box, for
    another view of a tensor that has one, and for a construct that takes no such tensor.
    """
    if not any(launch.placements for launch in program.launches):
        return program
    key = str(PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS.value)
    guards = dict(program.options).get(key, "") not in ("1", "True", "true")
    ids = fresh_ids(program)
    launches = tuple(
        _Placing(launch, ids, guards=guards).launch(context.ranges(program, launch))
        if launch.placements
        else launch
        for launch in program.launches
    )
    return dataclasses.replace(program, launches=launches)


class _Placing:
    """One launch. ``_views`` are the views of the tensors that are placed, by the tensor's id."""

    def __init__(self, launch: Launch, ids: Iterator[int], *, guards: bool) -> None:
        self._launch, self._ids, self._guards = launch, ids, guards
        self._views: dict[int, tuple[Placement, Buffer]] = {}
        for placement in launch.placements:
            buffer = placement.buffer
            if any(const_value(e) == 0 for e in buffer.shape):
                continue  # every access is outside, wherever the layout puts elements
            shape = measure_placement(placement)
            view = Buffer(next(ids), buffer.name, shape, buffer.dtype, "global")
            self._views[buffer.id] = (placement, view)

    def launch(self, ranges: Ranges) -> Launch:
        """The launch without placements."""
        body = self._body(self._launch.body, ranges)
        made = {s.buffer.id for s in walk(self._launch.body) if isinstance(s, (View, AddressView))}
        heads = tuple(
            View(view, placement.buffer, **self._launch.provenance)
            for number, (placement, view) in self._views.items()
            if number not in made
        )
        safe = [
            (self._views[b.id][1], value)
            for b, value in self._launch.safe_values
            if b.id in self._views
        ]
        return dataclasses.replace(
            self._launch,
            body=(*heads, *body),
            safe_values=(*self._launch.safe_values, *safe),
            placements=(),
        )

    def _body(self, body: Body, ranges: Ranges) -> Body:
        out: list[Stmt] = []
        for stmt in body:
            new = self._stmt(stmt, ranges)
            out.append(new)
            if isinstance(stmt, View) and stmt.source.id in self._views:
                raise _refused(f"the view `{stmt.buffer.name}`", stmt.source, stmt.loc)
            if isinstance(stmt, (View, AddressView)) and stmt.buffer.id in self._views:
                out.append(View(self._views[stmt.buffer.id][1], stmt.buffer, **stmt.provenance))
            ranges = ranges.after(new)
        return tuple(out)

    def _stmt(self, stmt: Stmt, ranges: Ranges) -> Stmt:
        new = map_accesses(stmt, lambda b, indices: self._element(b, indices, ranges))
        if isinstance(new, Im2col) and new.image.id in self._views:
            raise _refused("T.im2col", new.image, new.loc)
        if any(r.buffer.id in self._views for r in regions(new)):
            return self._tile(new, ranges)
        inside = ranges.inside(new)
        return with_bodies(new, tuple(self._body(b, inside) for b in sub_bodies(new)))

    def _element(
        self, buffer: Buffer, indices: tuple[Expr, ...], ranges: Ranges
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """The view and the place of an element; outside the view if the element is outside."""
        if buffer.id not in self._views:
            return buffer, indices
        placement, view = self._views[buffer.id]
        first, *rest = placed(placement, indices)
        inside: Expr = fold.const(True)
        for index, extent in zip(indices, buffer.shape, strict=True) if self._guards else ():
            lower, upper = needs_guard(index, extent, ranges)
            index = in_width(index, ranges)
            if lower:
                zero = fold.const(0, index.dtype)
                inside = fold.binary("land", inside, fold.binary("ge", index, zero))
            if upper:
                inside = fold.binary("land", inside, fold.binary("lt", index, extent))
        return view, (fold.select(inside, first, fold.cast(_OUTSIDE, first.dtype)), *rest)

    def _tile(self, stmt: Stmt, ranges: Ranges) -> Stmt:
        """A tile operation on placed tensors, element by element."""
        if not isinstance(stmt, Copy | Fill | Atomic):
            region = next(r for r in regions(stmt) if r.buffer.id in self._views)
            raise _refused(f"the tile operation {type(stmt).__name__}", region.buffer, stmt.loc)
        return self._stmt(expand(stmt, self._var), ranges)

    def _var(self, name: str, dtype: DType) -> Var:
        return Var(dtype, next(self._ids), name)


def _refused(what: str, buffer: Buffer, loc: Location | None) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"{what} of the tensor `{buffer.name}`, whose elements a layout places", location=loc
    )

"""Tensors with a layout: each access goes to the place that the layout gives the element."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir import fold, walk
from tileops.ir import stmt as ir
from tileops.ir.expr import Binary, Buffer, Expr, Unary, Var
from tileops.ir.program import Program, const_value
from tileops.location import Location
from tileops.pass_configs import PassConfigKey
from tileops.passes.analyze_index import in_width, needs_guard
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.context import Context
from tileops.passes.expand_tile_ops import expand

_OUTSIDE = fold.const(-1)
_VIEWS = (ir.View, ir.AddressView)
# A map is tried out, point by point, where it has no period that makes it smaller.
_MOST_POINTS = 1 << 18
_MOST_PERIODS = 16


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
    ids = walk.fresh_ids(program)
    launches = tuple(
        _Placing(launch, ids, guards=guards).launch(context.ranges(program, launch))
        if launch.placements
        else launch
        for launch in program.launches
    )
    return dataclasses.replace(program, launches=launches)


class _Placing:
    """One launch. ``_views`` are the views of the tensors that are placed, by the tensor's id."""

    def __init__(self, launch: ir.Launch, ids: Iterator[int], *, guards: bool) -> None:
        self._launch, self._ids, self._guards = launch, ids, guards
        self._views: dict[int, tuple[ir.Placement, Buffer]] = {}
        for placement in launch.placements:
            buffer = placement.buffer
            if any(const_value(e) == 0 for e in buffer.shape):
                continue  # every access is outside, wherever the layout puts elements
            shape = measure_placement(placement)
            view = Buffer(next(ids), buffer.name, shape, buffer.dtype, "global")
            self._views[buffer.id] = (placement, view)

    def launch(self, ranges: Ranges) -> ir.Launch:
        """The launch without placements."""
        body = self._body(self._launch.body, ranges)
        made = {s.buffer.id for s in walk.walk(self._launch.body) if isinstance(s, _VIEWS)}
        heads = tuple(
            ir.View(view, placement.buffer, **self._launch.provenance)
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

    def _body(self, body: ir.Body, ranges: Ranges) -> ir.Body:
        out: list[ir.Stmt] = []
        for stmt in body:
            new = self._stmt(stmt, ranges)
            out.append(new)
            if isinstance(stmt, ir.View) and stmt.source.id in self._views:
                raise _refused(f"the view `{stmt.buffer.name}`", stmt.source, stmt.loc)
            if isinstance(stmt, _VIEWS) and stmt.buffer.id in self._views:
                out.append(ir.View(self._views[stmt.buffer.id][1], stmt.buffer, **stmt.provenance))
            ranges = ranges.after(new)
        return tuple(out)

    def _stmt(self, stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
        new = walk.map_accesses(stmt, lambda b, indices: self._element(b, indices, ranges))
        if isinstance(new, ir.Im2col) and new.image.id in self._views:
            raise _refused("T.im2col", new.image, new.loc)
        if any(r.buffer.id in self._views for r in walk.regions(new)):
            return self._tile(new, ranges)
        inside = ranges.inside(new)
        return walk.map_bodies(new, lambda body: self._body(body, inside))

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

    def _tile(self, stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
        """A tile operation on placed tensors, element by element."""
        if not isinstance(stmt, ir.Copy | ir.Fill | ir.Atomic):
            region = next(r for r in walk.regions(stmt) if r.buffer.id in self._views)
            raise _refused(f"the tile operation {type(stmt).__name__}", region.buffer, stmt.loc)
        return self._stmt(expand(stmt, self._var), ranges)

    def _var(self, name: str, dtype: DType) -> Var:
        return Var(dtype, next(self._ids), name)


def _refused(what: str, buffer: Buffer, loc: Location | None) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"{what} of the tensor `{buffer.name}`, whose elements a layout places", location=loc
    )


# -- the box that a layout fills -------------------------------------------------------------------
class _Unfit(Exception):
    """Why the places of a layout do not fill a box, one element each."""


def measure_placement(placement: ir.Placement) -> tuple[Expr, ...]:
    """The extents of the box in whose row-major order the elements are stored, one an index.

    UnsupportedConstructError where two elements share a place or a place has no element, and where
    that cannot be told: the extent of a dimension that is divided must be a constant.
    """
    try:
        return _extents(placement)
    except _Unfit as why:
        raise UnsupportedConstructError(
            f"T.annotate_layout of the tensor `{placement.buffer.name}` with a layout that does "
            f"not give each element a place of its own and each place an element: {why}",
            location=placement.loc,
        ) from None


def placed(placement: ir.Placement, indices: Iterable[Expr]) -> tuple[Expr, ...]:
    """The place of the element at ``indices``, in 64 bits where one of these is."""
    given = tuple(indices)
    wide = any(i.dtype == fold.INT64 for i in given)
    dtype = fold.INT64 if wide else fold.INT32
    known = {v.id: fold.cast(i, dtype) for v, i in zip(placement.vars, given, strict=True)}
    return tuple(fold.substitute(index, known) for index in placement.indices)


def _extents(placement: ir.Placement) -> tuple[Expr, ...]:
    sizes = {v.id: e for v, e in zip(placement.vars, placement.buffer.shape, strict=True)}
    used = [_variables(index) for index in placement.indices]
    found: dict[int, Expr] = {}
    for variables in _groups(sizes, used):
        outputs = [n for n, others in enumerate(used) if others & variables]
        exprs = [placement.indices[n] for n in outputs]
        if len(variables) == 1 and len(exprs) == 1 and isinstance(exprs[0], Var):
            found[outputs[0]] = sizes[exprs[0].id]
            continue
        counts: dict[int, int] = {}
        for variable in sorted(variables):
            count = const_value(sizes[variable])
            if count is None:
                raise _Unfit("the extent of a dimension that it divides is not a constant")
            counts[variable] = count
        if exprs:
            box = _turned(exprs, counts) or _tried(exprs, counts)
            found |= zip(outputs, map(fold.const, box), strict=True)
        elif any(count != 1 for count in counts.values()):
            raise _Unfit("elements share a place")
    for number, index in enumerate(placement.indices):
        if not used[number]:
            if const_value(index) != 0:
                raise _Unfit("a constant index other than 0 leaves places empty")
            found[number] = fold.const(1)
    return tuple(found[n] for n in range(len(used)))


def _groups(variables: Iterable[int], used: Iterable[set[int]]) -> list[set[int]]:
    """Variables that meet in an index, directly or through others."""
    groups = [{v} for v in variables]
    for met in used:
        joined = [g for g in groups if g & met]
        if joined:
            groups = [g for g in groups if not g & met]
            groups.append(set[int]().union(*joined))
    return groups


def _variables(expr: Expr) -> set[int]:
    return {e.id for e in walk.walk_expr(expr) if isinstance(e, Var)}


def _turned(exprs: list[Expr], sizes: dict[int, int]) -> list[int] | None:
    """The extents from one period of each variable; None where that does not tell them."""
    small, turns = dict(sizes), {}
    for variable, size in sizes.items():
        period = _period(exprs, variable)
        if period is not None and period < size and size % period == 0:
            small[variable], turns[variable] = period, size // period
    try:
        box = _tried(exprs, small) if turns else None
    except _Unfit:
        box = None
    if box is None:
        return None
    for variable, count in turns.items():
        # Each turn of the variable must be a translate that adjoins the one before.
        moved = [_shift(e, variable, small[variable]) for e in exprs]
        along = [n for n, step in enumerate(moved) if step]
        if len(along) != 1 or moved[along[0]] != box[along[0]]:
            return None
        box[along[0]] *= count
    return box


def _tried(exprs: list[Expr], sizes: dict[int, int]) -> list[int]:
    """The extents that the values of ``exprs`` fill, point by point."""
    total = math.prod(sizes.values())
    if total > _MOST_POINTS:
        raise _Unfit(f"{total} elements are too many to be tried one by one")
    seen = set()
    for point in itertools.product(*map(range, sizes.values())):
        known: dict[int, Expr] = {v: fold.const(x) for v, x in zip(sizes, point, strict=True)}
        seen.add(tuple(const_value(fold.substitute(e, known)) or 0 for e in exprs))
    if len(seen) < total:
        raise _Unfit("elements share a place")
    axes = list(zip(*seen, strict=True))
    if any(min(axis) < 0 for axis in axes):
        raise _Unfit("an index is negative")
    box = [max(axis) + 1 for axis in axes]
    if math.prod(box) != total:
        raise _Unfit(f"{total} elements are in {' x '.join(map(str, box))} places")
    return box


def _period(exprs: list[Expr], variable: int) -> int | None:
    """A distance by which ``variable`` moves each of ``exprs`` the same everywhere, or None."""
    divisors = [
        const_value(e.b)
        for expr in exprs
        for e in walk.walk_expr(expr)
        if isinstance(e, Binary) and e.op in ("floordiv", "floormod", "ceildiv")
    ]
    step = math.lcm(*(d for d in divisors if d)) or 1
    for turns in range(_MOST_PERIODS):
        if all(_shift(e, variable, step << turns) is not None for e in exprs):
            return step << turns
    return None


def _shift(expr: Expr, variable: int, step: int) -> int | None:
    """By how much ``expr`` grows where ``variable`` grows by ``step``; None where that varies."""
    if variable not in _variables(expr):
        return 0
    match expr:
        case Var():
            return step
        case Unary(op="neg", a=a):
            moved = _shift(a, variable, step)
            return None if moved is None else -moved
        case Binary(op=op, a=a, b=b):
            left, right = _shift(a, variable, step), _shift(b, variable, step)
            return None if left is None or right is None else _combined(op, a, b, left, right)
        case _:
            return None


def _combined(op: str, a: Expr, b: Expr, left: int, right: int) -> int | None:
    """By how much ``a op b`` grows where its sides grow by ``left`` and ``right``."""
    factor, other = const_value(b), const_value(a)
    match op:
        case "add":
            return left + right
        case "sub":
            return left - right
        case "mul" if factor is not None:
            return left * factor
        case "mul" if other is not None:
            return right * other
        case "floordiv" | "ceildiv" if factor and left % factor == 0:
            return left // factor
        case "floormod" if factor and left % factor == 0:
            return 0
        case _:
            return None

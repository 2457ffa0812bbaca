"""The math role for a group of warps that has some of the rows, where rows do not meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.program import const_value
from tileops.ir.schedule import Issue, Schedule, Settle, Staged
from tileops.ir.stmt import (
    Alloc,
    Body,
    Copy,
    Fill,
    For,
    If,
    Parallel,
    Reduce,
    Scan,
    Stmt,
)
from tileops.ir.walk import (
    accesses,
    map_accesses,
    map_stmt_exprs,
    regions,
    sub_bodies,
    substitute,
    walk,
    with_bodies,
)
from tileops.passes.hopper.effects import require_no_effect
from tileops.passes.hopper.unfit import Unfit


def split_rows(schedule: Schedule, rows: int, groups: int, first_row: Var) -> Body:
    """The math role for one of ``groups`` groups, whose rows start at ``first_row``.

    ``rows`` are those of every product. Unfit where a row of a tile needs another one.
    """
    fed = frozenset(b.id for ring in schedule.rings for b in ring.buffers)
    return _Rows(schedule.math, fed, rows // groups, groups, first_row).body(schedule.math)


class _Rows:
    """The tiles whose first dimension is that of the products' rows, found from the products."""

    def __init__(
        self, math: Body, fed: frozenset[int], own: int, groups: int, first_row: Var
    ) -> None:
        self._fed, self._rows, self._own, self._first = fed, own * groups, own, first_row
        self._tiles: dict[int, Buffer] = {}
        pending = [s.c.buffer for s in walk(math) if isinstance(s, Issue)]
        while pending:
            for buffer in pending:
                self._add(buffer)
            found = [b for s in walk(math) for b in self._partners(s)]
            pending = [b for b in found if b.id not in self._tiles]

    def _add(self, buffer: Buffer) -> None:
        shape = buffer.static_shape()
        if shape is None or shape[0] != self._rows:
            raise Unfit(f"the rows of `{buffer.name}` are not those of the products")
        self._tiles[buffer.id] = replace(buffer, shape=(fold.const(self._own), *buffer.shape[1:]))

    def _is_tile(self, region: Region) -> bool:
        return region.buffer.id in self._tiles

    def _partners(self, stmt: Stmt) -> list[Buffer]:
        """The tiles that share rows with one that is known to have them, in one statement."""
        match stmt:
            case Issue(a=a) if a.buffer.id not in self._fed:
                return [a.buffer]
            case Copy(src=src, dst=dst) if self._is_tile(src) or self._is_tile(dst):
                return [r.buffer for r in (src, dst) if r.buffer.is_on_chip]
            case Reduce(src=src, dst=dst) | Scan(src=src, dst=dst) if self._is_tile(
                src
            ) or self._is_tile(dst):
                return [src.buffer, dst.buffer]
            case Parallel():
                rows = self._row_vars(stmt)
                return [
                    buffer
                    for inner in walk(stmt.body)
                    for buffer, indices in accesses(inner)
                    if buffer.is_on_chip and isinstance(indices[0], Var) and indices[0].id in rows
                ]
        return []

    def _row_vars(self, nest: Parallel) -> dict[int, Var]:
        """The variables of a nest that count rows of a tile."""
        own = {v.id: v for v in nest.flattened().vars}
        found: dict[int, Var] = {}
        for inner in walk(nest.body):
            for buffer, indices in accesses(inner):
                if buffer.id in self._tiles:
                    row = indices[0]
                    if not (isinstance(row, Var) and row.id in own):
                        raise Unfit(f"a nest reads other rows of `{buffer.name}`", nest.loc)
                    found[row.id] = row
        return found

    # -- rewriting -------------------------------------------------------------------------------
    def body(self, body: Body) -> Body:
        """The statements for one group."""
        return tuple(self._of(stmt) for stmt in body)

    def _of(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Alloc(buffer=buffer) if buffer.id in self._tiles:
                return replace(stmt, buffer=self._tiles[buffer.id])
            case For(body=body):
                self._require_no_elements(stmt)
                return replace(stmt, body=self.body(body))
            case If(then=then, orelse=orelse):
                self._require_no_elements(stmt)
                return replace(stmt, then=self.body(then), orelse=self.body(orelse))
            case Parallel():
                return self._nest(stmt)
        return self._of_operation(stmt)

    def _of_operation(self, stmt: Stmt) -> Stmt:
        self._require_no_elements(stmt)
        match stmt:
            case Fill(dst=dst) if self._is_tile(dst):
                return replace(stmt, dst=self._cut(dst))
            case Reduce(src=src, dst=dst, dim=dim) | Scan(src=src, dst=dst, dim=dim) if (
                self._is_tile(src)
            ):
                if dim == 0:
                    raise Unfit("a reduction runs along the rows", stmt.loc)
                return replace(stmt, src=self._cut(src), dst=self._cut(dst))
            case Settle(results=results):
                return replace(stmt, results=tuple(self._tiles[b.id] for b in results))
            case Issue(a=a, c=c):
                first = self._cut(a) if self._is_tile(a) else self._part(a, int(stmt.transpose_a))
                return replace(stmt, a=first, c=self._cut(c))
            case Copy(src=src, dst=dst) if self._is_tile(src) or self._is_tile(dst):
                return self._copy(stmt)
        if stmt.BODIES or any(self._is_tile(region) for region in regions(stmt)):
            raise Unfit(f"`{type(stmt).__name__.lower()}` of a tile of all rows", stmt.loc)
        require_no_effect(stmt, "row")
        return stmt

    def _require_no_elements(self, stmt: Stmt) -> None:
        if any(buffer.id in self._tiles for buffer, _ in accesses(stmt)):
            raise Unfit("one element of a tile is accessed", stmt.loc)

    def _cut(self, region: Region) -> Region:
        if not region.is_whole():
            raise Unfit(f"a part of `{region.buffer.name}` is used", None)
        tile = self._tiles[region.buffer.id]
        return Region(tile, region.starts, (fold.const(self._own), *region.extents[1:]))

    def _part(self, region: Region, dim: int) -> Region:
        """The rows of this group in a region whose rows are dimension ``dim``."""
        starts, extents = list(region.starts), list(region.extents)
        starts[dim] = fold.add(starts[dim], self._first)
        extents[dim] = fold.const(self._own)
        return Region(region.buffer, tuple(starts), tuple(extents))

    def _copy(self, copy: Copy) -> Stmt:
        tile = copy.src if self._is_tile(copy.src) else copy.dst
        other = copy.dst if tile is copy.src else copy.src
        if other.buffer.is_on_chip:
            return replace(copy, src=self._cut(copy.src), dst=self._cut(copy.dst))
        if tile.squeezed()[:1] != (0,):
            raise Unfit(f"the rows of `{tile.buffer.name}` are one", copy.loc)
        part = self._part(other, other.squeezed()[0])
        if tile is copy.dst:
            return replace(copy, src=part, dst=self._cut(tile))
        changed = replace(copy, src=self._cut(tile), dst=part)
        if isinstance(changed, Staged):
            box = tuple(e for e in part.static_extents() or ())
            return replace(changed, descriptor=replace(changed.descriptor, box=box))
        return changed

    def _nest(self, nest: Parallel) -> Stmt:
        rows = self._row_vars(nest)
        if not rows:
            require_no_effect(nest, "row")
            return nest
        if len(rows) > 1:
            raise Unfit("a nest has two variables of rows", nest.loc)
        moved: Mapping[int, Expr] = {n: fold.add(v, self._first) for n, v in rows.items()}
        nest = nest.flattened()
        for var, extent in zip(nest.vars, nest.extents, strict=True):
            if var.id in rows and const_value(extent) != self._rows:
                raise Unfit("a nest is over a part of the rows", nest.loc)
        extents = tuple(
            fold.const(self._own) if v.id in rows else e
            for v, e in zip(nest.vars, nest.extents, strict=True)
        )
        return replace(nest, extents=extents, body=self._moved(nest.body, moved))

    def _moved(self, body: Body, moved: Mapping[int, Expr]) -> Body:
        """The statements of a nest with a row's number in the place of its variable.

        The variable stays the index of this group's tiles.
        """

        def element(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
            tile = self._tiles.get(buffer.id)
            if tile is None:
                return buffer, indices
            (var,) = [n for n, e in moved.items() if e == indices[0]]
            row = next(e for e in _operands(moved[var]) if isinstance(e, Var) and e.id == var)
            return tile, (row, *indices[1:])

        out = []
        for stmt in body:
            changed = map_stmt_exprs(stmt, lambda e: substitute(e, moved))
            changed = map_accesses(changed, element)
            bodies = tuple(self._moved(body, moved) for body in sub_bodies(stmt))
            out.append(with_bodies(changed, bodies))
        return tuple(out)


def _operands(expr: Expr) -> tuple[Expr, ...]:
    return tuple(getattr(expr, name) for name in expr.OPERANDS)

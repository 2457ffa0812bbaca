"""The math role for a group of warps that has some of the rows, where rows do not meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.program import const_value
from tileops.ir.schedule import Deposit, Issue, Schedule, Settle, Staged, swizzle_of
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

_GROUP_ROWS = 64  # of a wgmma instruction, which the four warps of a group run together
_UNIT_COLUMNS = 8  # likewise (PTX ISA, wgmma.mma_async: N is a multiple of 8)


def split_rows(schedule: Schedule, rows: int, groups: int, first_row: Var) -> Body:
    """The math role for one of ``groups`` groups, whose rows start at ``first_row``.

    ``rows`` are those of every product but those of exchanged tiles, which all groups read: of such
    a product a group has some columns where the rows are too few. Unfit where a row of a tile needs
    another one.
    """
    return _Rows(schedule, rows, groups, first_row).body(schedule.math)


class _Rows:
    """The tiles that the groups divide, found from the products: each along one dimension."""

    def __init__(self, schedule: Schedule, rows: int, groups: int, first_row: Var) -> None:
        self._fed = frozenset(b.id for ring in schedule.rings for b in ring.buffers)
        self._shared = {b.id for r in schedule.rings if r.is_exchange for b in r.buffers}
        self._rows, self._own, self._groups, self._first = rows, rows // groups, groups, first_row
        self._tiles: dict[int, Buffer] = {}
        self._dims: dict[int, int] = {}
        math = schedule.math
        pending = [(s.c.buffer, self._dim(s)) for s in walk(math) if isinstance(s, Issue)]
        while pending:
            for buffer, dim in pending:
                self._add(buffer, dim)
            found = [pair for s in walk(math) for pair in self._partners(s)]
            pending = [(b, dim) for b, dim in found if b.id not in self._tiles]

    def _dim(self, issue: Issue) -> int:
        """The dimension along which the groups divide a product."""
        if issue.a.buffer.id not in self._shared:
            return 0
        rows = (issue.c.static_extents() or (0,))[0]
        return int(rows % (_GROUP_ROWS * self._groups) != 0)

    def _add(self, buffer: Buffer, dim: int) -> None:
        shape = list(buffer.static_shape() or ())
        if self._dims.setdefault(buffer.id, dim) != dim or len(shape) <= dim:
            raise Unfit(f"`{buffer.name}` is divided by rows and by columns")
        if shape[dim] % (self._groups * (self._own if dim == 0 else _UNIT_COLUMNS)):
            raise Unfit(f"the rows of `{buffer.name}` are not those of the products")
        shape[dim] //= self._groups
        self._tiles[buffer.id] = replace(buffer, shape=tuple(map(fold.const, shape)))

    def _is_tile(self, region: Region) -> bool:
        return region.buffer.id in self._tiles

    def _partners(self, stmt: Stmt) -> list[tuple[Buffer, int]]:
        """The tiles divided as one that is known to be, in one statement."""
        match stmt:
            case Issue(a=a) if a.buffer.id not in self._fed:
                return [(a.buffer, 0)]
            case Deposit(src=src):
                return [(src.buffer, 0)]
            case Copy(src=src, dst=dst) if self._is_tile(src) or self._is_tile(dst):
                dim = self._dims[src.buffer.id if self._is_tile(src) else dst.buffer.id]
                return [(r.buffer, dim) for r in (src, dst) if r.buffer.is_on_chip]
            case Reduce(src=src, dst=dst) | Scan(src=src, dst=dst) if self._is_tile(
                src
            ) or self._is_tile(dst):
                return [(src.buffer, 0), (dst.buffer, 0)]
            case Parallel():
                own = self._own_vars(stmt)
                return [
                    (buffer, dim)
                    for inner in walk(stmt.body)
                    for buffer, indices in accesses(inner)
                    for dim, index in enumerate(indices)
                    if buffer.is_on_chip and isinstance(index, Var) and index.id in own
                    if self._is_divided(buffer, dim, own[index.id], stmt)
                ]
        return []

    def _is_divided(self, buffer: Buffer, dim: int, divided: int, nest: Parallel) -> bool:
        """True if dimension ``dim`` is what the groups divide; Unfit where it cannot be."""
        if buffer.id in self._fed or dim < divided:
            raise Unfit(f"a nest reads a part of `{buffer.name}`", nest.loc)
        return dim == divided

    def _own_vars(self, nest: Parallel) -> dict[int, int]:
        """The variables of a nest that count what the groups divide, with the dimension."""
        own = {v.id for v in nest.flattened().vars}
        found: dict[int, int] = {}
        for inner in walk(nest.body):
            for buffer, indices in accesses(inner):
                if buffer.id in self._tiles:
                    dim = self._dims[buffer.id]
                    index = indices[dim]
                    if not (isinstance(index, Var) and index.id in own):
                        raise Unfit(f"a nest reads other rows of `{buffer.name}`", nest.loc)
                    found[index.id] = dim
        return found

    def _start(self, own: int) -> Expr:
        """Where the part of this group starts, of a dimension of which it has ``own``."""
        if own == self._own:
            return self._first
        scaled = fold.mul(self._first, fold.const(own))
        return fold.binary("floordiv", scaled, fold.const(self._own))

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
            case Reduce(src=src) | Scan(src=src) if self._dims.get(src.buffer.id, 0):
                raise Unfit("a reduction of divided columns", stmt.loc)
            case Reduce(src=src, dst=dst, dim=dim) | Scan(src=src, dst=dst, dim=dim) if (
                self._is_tile(src)
            ):
                if dim == 0:
                    raise Unfit("a reduction runs along the rows", stmt.loc)
                return replace(stmt, src=self._cut(src), dst=self._cut(dst))
            case Settle(results=results):
                return replace(stmt, results=tuple(self._tiles[b.id] for b in results))
            case Issue():
                return self._issue(stmt)
            case Deposit(src=src, dst=dst):
                return replace(stmt, src=self._cut(src), dst=self._part(dst, 0, self._own))
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
        return Region(tile, region.starts, tile.shape)

    def _part(self, region: Region, dim: int, own: int) -> Region:
        """The part of this group in a region divided along ``dim``: ``own`` of its elements."""
        starts, extents = list(region.starts), list(region.extents)
        starts[dim] = fold.add(starts[dim], self._start(own))
        extents[dim] = fold.const(own)
        return Region(region.buffer, tuple(starts), tuple(extents))

    def _issue(self, issue: Issue) -> Stmt:
        a, b, c = issue.a, issue.b, self._cut(issue.c)
        dim = self._dims[c.buffer.id]
        own = (c.static_extents() or ())[dim]
        if self._is_tile(a):
            return replace(issue, a=self._cut(a), c=c)
        if dim == 0:
            a = self._part(a, int(issue.transpose_a), own)
        else:
            b = self._part(b, int(not issue.transpose_b), own)
        for part in (a, b):
            self._require_patterns(part, issue)
        return replace(issue, a=a, b=b, c=c)

    @staticmethod
    def _require_patterns(part: Region, issue: Issue) -> None:
        """Unfit for a part of a tile whose rows do not begin where a swizzle pattern does."""
        own, whole = part.static_extents() or (), part.buffer.static_shape() or ()
        unit = part.dtype.bytes
        if own[-1] != whole[-1] and own[-1] * unit % swizzle_of(whole[-1] * unit):
            raise Unfit(f"a group has {own[-1]} columns of `{part.buffer.name}`", issue.loc)

    def _copy(self, copy: Copy) -> Stmt:
        tile = copy.src if self._is_tile(copy.src) else copy.dst
        other = copy.dst if tile is copy.src else copy.src
        if other.buffer.is_on_chip:
            return replace(copy, src=self._cut(copy.src), dst=self._cut(copy.dst))
        dim = self._dims[tile.buffer.id]
        if dim not in tile.squeezed():
            raise Unfit(f"the rows of `{tile.buffer.name}` are one", copy.loc)
        own = (self._tiles[tile.buffer.id].static_shape() or ())[dim]
        part = self._part(other, other.squeezed()[tile.squeezed().index(dim)], own)
        if tile is copy.dst:
            return replace(copy, src=part, dst=self._cut(tile))
        changed = replace(copy, src=self._cut(tile), dst=part)
        if isinstance(changed, Staged):
            box = tuple(e for e in part.static_extents() or ())
            return replace(changed, descriptor=replace(changed.descriptor, box=box))
        return changed

    def _nest(self, nest: Parallel) -> Stmt:
        divided = self._own_vars(nest)
        if not divided:
            require_no_effect(nest, "row")
            return nest
        if len(divided) > 1:
            raise Unfit("a nest has two variables of rows", nest.loc)
        nest = nest.flattened()
        owns = self._owns(nest)
        extents: list[Expr] = []
        moved: dict[int, Expr] = {}
        for var, extent in zip(nest.vars, nest.extents, strict=True):
            if var.id not in divided:
                extents.append(extent)
                continue
            if {const_value(extent)} != {own * self._groups for own in owns}:
                raise Unfit("a nest is over a part of the rows", nest.loc)
            (own,) = owns
            extents.append(fold.const(own))
            moved[var.id] = fold.add(var, self._start(own))
        return replace(nest, extents=tuple(extents), body=self._moved(nest.body, moved))

    def _owns(self, nest: Parallel) -> set[int]:
        """How many rows or columns this group has of the tiles of a nest."""
        used = {b.id for s in walk(nest.body) for b, _ in accesses(s)} & self._tiles.keys()
        return {(self._tiles[n].static_shape() or ())[self._dims[n]] for n in used}

    def _moved(self, body: Body, moved: Mapping[int, Expr]) -> Body:
        """The statements of a nest with a row's number in the place of its variable.

        The variable stays the index of this group's tiles.
        """

        def element(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
            tile = self._tiles.get(buffer.id)
            if tile is None:
                return buffer, indices
            dim = self._dims[buffer.id]
            (var,) = [n for n, e in moved.items() if e == indices[dim]]
            row = next(e for e in _operands(moved[var]) if isinstance(e, Var) and e.id == var)
            return tile, (*indices[:dim], row, *indices[dim + 1 :])

        out = []
        for stmt in body:
            changed = map_stmt_exprs(stmt, lambda e: substitute(e, moved))
            changed = map_accesses(changed, element)
            bodies = tuple(self._moved(body, moved) for body in sub_bodies(stmt))
            out.append(with_bodies(changed, bodies))
        return tuple(out)


def _operands(expr: Expr) -> tuple[Expr, ...]:
    return tuple(getattr(expr, name) for name in expr.OPERANDS)

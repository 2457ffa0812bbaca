"""A tile in parts, each with some of the columns: one after the other, or one for each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.schedule import Issue, Settle, Staged
from tileops.ir.stmt import Alloc, Atomic, Body, Copy, Fill, Parallel, Stmt
from tileops.ir.walk import (
    accesses,
    map_accesses,
    map_stmt_exprs,
    read_buffers,
    sub_bodies,
    substitute,
    walk,
    with_bodies,
    written_buffers,
)
from tileops.passes.hopper.effects import SPEAKING, require_no_effect
from tileops.passes.hopper.unfit import Unfit


def split_columns(math: Body, whole: Buffer, columns: int, ids: Iterator[int]) -> Body:
    """The math role with a tile of ``columns`` for each so many columns of the tile ``whole``.

    Unfit where a statement needs them together.
    """
    count = _count(whole, columns)
    starts = [fold.const(n * columns) for n in range(count)]
    parts = [
        replace(_narrow(whole, columns), id=next(ids), name=f"{whole.name}_{n}")
        for n in range(count)
    ]
    return _Columns(whole, parts, starts, columns).body(math)


def own_columns(math: Body, whole: Buffer, columns: int, first: Var) -> Body:
    """The math role for one of the groups that have ``columns`` of the tile ``whole`` each.

    The group's begin at ``first``. What else there is, every group computes. Unfit where a
    statement needs other columns, or has an effect that should be once.
    """
    _count(whole, columns)
    rewriting = _Columns(whole, [_narrow(whole, columns)], [first], columns)
    rewriting.require_effects_once(math)
    return rewriting.body(math)


def _count(whole: Buffer, columns: int) -> int:
    shape = whole.static_shape() or ()
    if len(shape) != 2 or shape[1] % columns:
        raise Unfit(f"`{whole.name}` is not some times {columns} columns wide")
    return shape[1] // columns


def _narrow(whole: Buffer, columns: int) -> Buffer:
    return replace(whole, shape=(whole.shape[0], fold.const(columns)))


class _Columns:
    """The parts of a tile, each with the first of its columns."""

    def __init__(
        self, whole: Buffer, parts: list[Buffer], starts: Sequence[Expr], columns: int
    ) -> None:
        self._whole, self._parts, self._starts = whole, parts, starts
        self._columns = columns

    def body(self, body: Body) -> Body:
        """The statements, those on the whole tile once for each part."""
        return tuple(s for stmt in body for s in self._of(stmt))

    def _of(self, stmt: Stmt) -> Body:
        if isinstance(stmt, Settle) and self._whole in stmt.results:
            others = tuple(b for b in stmt.results if b is not self._whole)
            return (replace(stmt, results=(*others, *self._parts)),)
        if not self.is_on(stmt):
            return (stmt,)
        match stmt:
            case Alloc(init=None):
                return tuple(replace(stmt, buffer=part) for part in self._parts)
            case Fill(dst=dst) if dst.is_whole():
                return tuple(replace(stmt, dst=_all_of(part)) for part in self._parts)
            case Issue(a=a, b=b, c=c) if c.is_whole() and self._whole not in (a.buffer, b.buffer):
                across = len(b.extents) - 2 + int(not stmt.transpose_b)
                return tuple(
                    replace(stmt, b=self._part(b, across, n), c=_all_of(part))
                    for n, part in enumerate(self._parts)
                )
            case Copy(src=src, dst=dst) if src.is_whole() and not dst.buffer.is_on_chip:
                return tuple(self._copy(stmt, n) for n in range(len(self._parts)))
            case Parallel():
                return tuple(self._nest(stmt.flattened(), n) for n in range(len(self._parts)))
        if stmt.BODIES and not isinstance(stmt, Parallel):
            return (with_bodies(stmt, tuple(self.body(inner) for inner in sub_bodies(stmt))),)
        raise Unfit(f"`{self._whole.name}` is needed whole", stmt.loc)

    def require_effects_once(self, body: Body) -> None:
        """Unfit for what each group would do to memory or say to people, and one should."""
        for stmt in body:
            if stmt.BODIES and not isinstance(stmt, Parallel):
                for inner in sub_bodies(stmt):
                    self.require_effects_once(inner)
            elif not self.is_on(stmt):
                require_no_effect(stmt, "column")
            elif any(isinstance(s, (Atomic, *SPEAKING)) for s in walk((stmt,))):
                raise Unfit(f"something is done once for `{self._whole.name}`", stmt.loc)

    def is_on(self, stmt: Stmt) -> bool:
        """True if the statement, or one in it, uses the tile."""
        return any(
            self._whole in (*read_buffers(s), *written_buffers(s)) or
            (isinstance(s, Alloc) and s.buffer == self._whole) or
            (isinstance(s, Settle) and self._whole in s.results)
            for s in walk((stmt,))
        )  # fmt: skip

    def _part(self, region: Region, dim: int, n: int) -> Region:
        starts, extents = list(region.starts), list(region.extents)
        starts[dim] = fold.add(starts[dim], self._starts[n])
        extents[dim] = fold.const(self._columns)
        return Region(region.buffer, tuple(starts), tuple(extents))

    def _copy(self, copy: Copy, n: int) -> Copy:
        dims = copy.dst.squeezed()
        if len(dims) != 2:
            raise Unfit(f"`{self._whole.name}` is copied to less than its columns", copy.loc)
        part = self._part(copy.dst, dims[-1], n)
        changed = replace(copy, src=_all_of(self._parts[n]), dst=part)
        if isinstance(changed, Staged):
            box = part.static_extents() or ()
            return replace(changed, descriptor=replace(changed.descriptor, box=box))
        return changed

    def _nest(self, nest: Parallel, n: int) -> Parallel:
        """The nest over the columns of one part."""
        own = {v.id: v for v in nest.vars}
        found = {
            indices[1].id if isinstance(indices[1], Var) else -1
            for s in walk(nest.body)
            for buffer, indices in accesses(s)
            if buffer == self._whole
        }
        if len(found) != 1 or not found <= set(own):
            raise Unfit(f"a nest reads other columns of `{self._whole.name}`", nest.loc)
        column = own[found.pop()]
        where = nest.vars.index(column)
        if nest.extents[where] != self._whole.shape[1]:
            raise Unfit(f"a nest is over a part of the columns of `{self._whole.name}`", nest.loc)
        for s in walk(nest.body):
            for buffer, indices in accesses(s):
                if buffer != self._whole and buffer.is_on_chip and column in indices:
                    raise Unfit(f"`{buffer.name}` shares columns with a divided tile", nest.loc)
        extents = list(nest.extents)
        extents[where] = fold.const(self._columns)
        moved = {column.id: fold.add(column, self._starts[n])}
        return replace(nest, extents=tuple(extents), body=self._moved(nest.body, moved, column, n))

    def _moved(self, body: Body, moved: dict[int, Expr], column: Var, n: int) -> Body:
        def element(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
            if buffer != self._whole:
                return buffer, indices
            return self._parts[n], (indices[0], column)

        out = []
        for stmt in body:
            changed = map_stmt_exprs(stmt, lambda e: substitute(e, moved))
            changed = map_accesses(changed, element)
            bodies = tuple(self._moved(inner, moved, column, n) for inner in sub_bodies(stmt))
            out.append(with_bodies(changed, bodies))
        return tuple(out)


def _all_of(buffer: Buffer) -> Region:
    return Region(buffer, (fold.const(0),) * buffer.ndim, buffer.shape)

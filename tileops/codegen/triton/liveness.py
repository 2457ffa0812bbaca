"""Liveness of on-chip buffers: what a statement needs, replaces whole and leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileops.ir import stmt as ir
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.program import Program, const_value
from tileops.ir.walk import read_buffers, sub_bodies, view_roots, walk, written_buffers

Ids = frozenset[int]
_NONE: Ids = frozenset()


@dataclass(frozen=True)
class Liveness:
    """Liveness over one launch; buffers that are views of one storage count as one.

    ``roots`` gives the buffer behind each view, ``buffers`` each that is allocated, by id.
    """

    roots: Mapping[int, Buffer]
    buffers: Mapping[int, Buffer]

    def root(self, buffer: int) -> int:
        """The id of the buffer whose storage this one names."""
        found = self.roots.get(buffer)
        return buffer if found is None else found.id

    def _on_chip(self, buffers: tuple[Buffer, ...]) -> Ids:
        return frozenset(self.root(b.id) for b in buffers if b.is_on_chip)

    def written(self, body: ir.Body) -> Ids:
        """Buffers that some statement in ``body``, nested ones included, writes."""
        return _NONE.union(*(self._on_chip(written_buffers(stmt)) for stmt in walk(body)))

    def kills(self, stmt: ir.Stmt) -> Ids:
        """Buffers that the statement certainly replaces whole."""
        match stmt:
            case ir.If(then=then, orelse=orelse):
                return self._kills_of(then) & self._kills_of(orelse)
            case ir.For(start=start, stop=stop, body=body):
                lo, hi = const_value(start), const_value(stop)
                runs = lo is not None and hi is not None and lo < hi
                return self._kills_of(body) if runs else _NONE
            case ir.While():
                return _NONE
            case ir.Alloc(buffer=b, init=init):
                return frozenset({b.id}) if init is not None else _NONE
        inner = list(walk((stmt,)))
        reads = {b.id for s in inner for b in read_buffers(s)}
        killed: set[int] = set()
        for b in {b.id: b for s in inner for b in written_buffers(s)}.values():
            root = self.root(b.id)
            reads_by_other_name = any(r != b.id and self.root(r) == root for r in reads)
            same_width = self.buffers.get(root, b).dtype.bits == b.dtype.bits
            whole = b.is_on_chip and same_width and writes_whole(stmt, b)
            if whole and not reads_by_other_name:
                killed.add(root)
        return frozenset(killed)

    def _kills_of(self, body: ir.Body) -> Ids:
        return _NONE.union(*map(self.kills, body))

    def exposed(self, stmt: ir.Stmt) -> Ids:
        """Buffers whose earlier value the statement may use; a partial write keeps the rest."""
        if isinstance(stmt, ir.View) or (isinstance(stmt, ir.Alloc) and stmt.init is None):
            return _NONE
        read = self._on_chip(read_buffers(stmt)).union(*map(self.exposed_of, sub_bodies(stmt)))
        if isinstance(stmt, ir.Parallel):
            return (read | self.written(stmt.body)) - self.kills(stmt)
        return read | (self._on_chip(written_buffers(stmt)) - self.kills(stmt))

    def exposed_of(self, body: ir.Body) -> Ids:
        """Buffers that a statement list uses before replacing them whole."""
        out: Ids = _NONE
        killed: Ids = _NONE
        for stmt in body:
            out |= self.exposed(stmt) - killed
            killed |= self.kills(stmt)
        return out

    def after(self, body: ir.Body, live: Ids) -> list[Ids]:
        """For each statement of ``body``, the buffers used after it; ``live`` after the last."""
        out: list[Ids] = []
        for stmt in reversed(body):
            out.insert(0, live)
            live = self.exposed(stmt) | (live - self.kills(stmt))
        return out


def liveness_of(program: Program, launch: ir.Launch) -> Liveness:
    """The liveness of the buffers of ``launch``."""
    allocated = {s.buffer.id: s.buffer for s in walk(launch.body) if isinstance(s, ir.Alloc)}
    return Liveness(view_roots(launch.body), allocated)


# -- whole writes ----------------------------------------------------------------------------------
# A tile that every iteration writes whole before reading it must not be carried by the loop: in SSA
# form a carried tile is copied through registers and keeps the loop from being pipelined.
def writes_whole(stmt: ir.Stmt, buffer: Buffer) -> bool:
    """True if the statement writes every element of the buffer and reads none."""
    if isinstance(stmt, ir.Parallel):
        return _nest_writes_whole(stmt, buffer)
    if buffer.id in _ids(read_buffers(stmt)) or isinstance(stmt, ir.Im2col):
        return False
    if isinstance(stmt, ir.Store):
        single = all(const_value(e) == 1 for e in stmt.buffer.shape)
        return stmt.buffer.id == buffer.id and single and all(map(_is_zero, stmt.indices))
    written = [getattr(stmt, name) for name in stmt.writes()]
    return any(isinstance(r, Region) and r.buffer.id == buffer.id and r.is_whole() for r in written)


def _ids(buffers: tuple[Buffer, ...]) -> set[int]:
    return {b.id for b in buffers}


def _is_zero(index: Expr) -> bool:
    return const_value(index) == 0


def _nest_writes_whole(nest: ir.Parallel, buffer: Buffer) -> bool:
    """True if the first statement of the nest that touches the buffer stores each element."""
    for stmt in nest.body:
        inner = list(walk((stmt,)))
        if any(buffer.id in _ids(read_buffers(s)) for s in inner):
            return False
        if any(buffer.id in _ids(written_buffers(s)) for s in inner):
            return isinstance(stmt, ir.Store) and _covers(nest, stmt)
    return False


def _covers(nest: ir.Parallel, store: ir.Store) -> bool:
    """True if the indices are distinct variables of the nest, each over a whole dimension."""
    extents = {v.id: e for v, e in zip(nest.vars, nest.extents, strict=True)}
    seen: set[int] = set()
    for index, shape in zip(store.indices, store.buffer.shape, strict=True):
        if const_value(shape) == 1 and _is_zero(index):
            continue
        if not isinstance(index, Var) or index.id in seen or extents.get(index.id) != shape:
            return False
        seen.add(index.id)
    return True

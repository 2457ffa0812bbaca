"""Liveness of on-chip buffers: what a statement needs, replaces whole and leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileops.ir.expr import Buffer, Load
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Alloc, Body, For, If, Launch, Parallel, Stmt, View, While
from tileops.ir.walk import read_buffers, view_roots, walk, walk_expr, written_buffers
from tileops.passes.detect_overwrite import writes_whole

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

    def written(self, body: Body) -> Ids:
        """Buffers that some statement in ``body``, nested ones included, writes."""
        out: set[int] = set()
        for stmt in walk(body):
            out |= self._on_chip(written_buffers(stmt))
        return frozenset(out)

    def kills(self, stmt: Stmt) -> Ids:
        """Buffers that the statement certainly replaces whole."""
        match stmt:
            case If(then=then, orelse=orelse):
                return self._kills_of(then) & self._kills_of(orelse)
            case For(start=start, stop=stop, body=body):
                lo, hi = const_value(start), const_value(stop)
                runs = lo is not None and hi is not None and lo < hi
                return self._kills_of(body) if runs else _NONE
            case While():
                return _NONE
            case Alloc(buffer=b, init=init):
                return frozenset({b.id}) if init is not None else _NONE
            case Parallel():
                candidates = {b.id: b for s in walk((stmt,)) for b in written_buffers(s)}
            case _:
                candidates = {b.id: b for b in written_buffers(stmt)}
        out = [
            self.root(b.id)
            for b in candidates.values()
            if b.is_on_chip
            and writes_whole(stmt, b)
            and self._same_shape(b)
            and not self._reads_by_other_name(stmt, b)
        ]
        return frozenset(out)

    def _reads_by_other_name(self, stmt: Stmt, buffer: Buffer) -> bool:
        reads = (b for s in walk((stmt,)) for b in read_buffers(s))
        return any(b.id != buffer.id and self.root(b.id) == self.root(buffer.id) for b in reads)

    def _same_shape(self, buffer: Buffer) -> bool:
        root = self.buffers.get(self.root(buffer.id))
        return root is None or root.id == buffer.id or root.dtype.bits == buffer.dtype.bits

    def _kills_of(self, body: Body) -> Ids:
        out: Ids = _NONE
        for stmt in body:
            out |= self.kills(stmt)
        return out

    def exposed(self, stmt: Stmt) -> Ids:
        """Buffers whose earlier value the statement may use; a partial write keeps the rest."""
        if isinstance(stmt, Alloc) and stmt.init is None:
            return _NONE
        own = self._on_chip(read_buffers(stmt)) if not isinstance(stmt, View) else _NONE
        match stmt:
            case For(body=body):
                return own | self.exposed_of(body)
            case While(cond=cond, body=body):
                reads = {e.buffer for e in walk_expr(cond) if isinstance(e, Load)}
                return own | self._on_chip(tuple(reads)) | self.exposed_of(body)
            case If(then=then, orelse=orelse):
                return own | self.exposed_of(then) | self.exposed_of(orelse)
            case Parallel(body=body):
                nested = self.exposed_of(body)
                partial = self.written(body)
                return (own | nested | partial) - self.kills(stmt)
        partial = self._on_chip(written_buffers(stmt)) - self.kills(stmt)
        return own | partial

    def exposed_of(self, body: Body) -> Ids:
        """Buffers that a statement list uses before replacing them whole."""
        out: Ids = _NONE
        killed: Ids = _NONE
        for stmt in body:
            out |= self.exposed(stmt) - killed
            killed |= self.kills(stmt)
        return out

    def after(self, body: Body, live_out: Ids) -> list[Ids]:
        """For each statement of ``body``, the buffers whose value is used after it."""
        out: list[Ids] = []
        live = live_out
        for stmt in reversed(body):
            out.append(live)
            live = self.exposed(stmt) | (live - self.kills(stmt))
        out.reverse()
        return out


def liveness_of(program: Program, launch: Launch) -> Liveness:
    """The liveness of the buffers of ``launch``."""
    allocated = {s.buffer.id: s.buffer for s in walk(launch.body) if isinstance(s, Alloc)}
    return Liveness(view_roots(launch.body), allocated)

"""Whole writes: statements that replace every element of a buffer.

A tile that every iteration writes whole before reading it must not be carried by the loop: in SSA
form a carried tile is copied through registers and keeps the loop from being pipelined.
"""

from __future__ import annotations

from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Im2col, Parallel, Stmt, Store
from tileops.ir.walk import read_buffers, walk, written_buffers


def writes_whole(stmt: Stmt, buffer: Buffer) -> bool:
    """True if the statement writes every element of the buffer and reads none."""
    if isinstance(stmt, Parallel):
        return _nest_writes_whole(stmt, buffer)
    if buffer.id in _ids(read_buffers(stmt)) or isinstance(stmt, Im2col):
        return False
    if isinstance(stmt, Store):
        single = all(const_value(e) == 1 for e in stmt.buffer.shape)
        return stmt.buffer.id == buffer.id and single and all(map(_is_zero, stmt.indices))
    written = [getattr(stmt, name) for name in stmt.writes()]
    return any(isinstance(r, Region) and r.buffer.id == buffer.id and r.is_whole() for r in written)


def _ids(buffers: tuple[Buffer, ...]) -> set[int]:
    return {b.id for b in buffers}


def _is_zero(index: Expr) -> bool:
    return const_value(index) == 0


def _nest_writes_whole(nest: Parallel, buffer: Buffer) -> bool:
    """True if the first statement of the nest that touches the buffer stores each element."""
    for stmt in nest.body:
        inner = list(walk((stmt,)))
        if any(buffer.id in _ids(read_buffers(s)) for s in inner):
            return False
        if any(buffer.id in _ids(written_buffers(s)) for s in inner):
            return isinstance(stmt, Store) and _covers(nest, stmt)
    return False


def _covers(nest: Parallel, store: Store) -> bool:
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

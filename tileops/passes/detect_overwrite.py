"""Owns the search for whole writes: statements that replace every element of a buffer.

A tile that every iteration writes whole before reading it must not be carried by the loop: in SSA
form a carried tile is copied through registers and keeps the loop from being pipelined.
"""

from __future__ import annotations

from tileops.ir.expr import Buffer, Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import (
    Copy,
    Fill,
    Gemm,
    Parallel,
    Reduction,
    Scan,
    Stmt,
    Store,
    Transpose,
)
from tileops.ir.walk import read_buffers, walk, written_buffers


def touches(stmt: Stmt, buffer: int) -> bool:
    """True if the statement or one nested in it reads or writes the buffer."""
    for s in walk((stmt,)):
        if any(b.id == buffer for b in (*read_buffers(s), *written_buffers(s))):
            return True
    return False


def writes_whole(stmt: Stmt, buffer: Buffer) -> bool:
    """True if the statement writes every element of the buffer and reads none."""
    if isinstance(stmt, Parallel):
        return _nest_writes_whole(stmt, buffer)
    if any(b.id == buffer.id for b in read_buffers(stmt)):
        return False
    match stmt:
        case Copy(dst=d) | Fill(dst=d) | Transpose(dst=d) | Scan(dst=d) | Reduction(dst=d):
            return _is_all_of(d, buffer)
        case Gemm(c=c, clear=clear):
            return const_value(clear) == 1 and _is_all_of(c, buffer)
        case Store(buffer=b, indices=indices):
            single = all(const_value(e) == 1 for e in b.shape)
            return b.id == buffer.id and single and all(const_value(i) == 0 for i in indices)
        case _:
            return False


def _is_all_of(region: Region, buffer: Buffer) -> bool:
    return region.buffer.id == buffer.id and region.is_whole()


def _nest_writes_whole(nest: Parallel, buffer: Buffer) -> bool:
    for stmt in nest.body:
        if isinstance(stmt, Parallel) and touches(stmt, buffer.id):
            return False
        if any(b.id == buffer.id for s in walk((stmt,)) for b in read_buffers(s)):
            return False
        if isinstance(stmt, Store) and stmt.buffer.id == buffer.id:
            return _covers(nest, stmt)
        if touches(stmt, buffer.id):
            return False
    return False


def _covers(nest: Parallel, store: Store) -> bool:
    """True if the indices are distinct variables of the nest, each over a whole dimension."""
    extents = {v.id: e for v, e in zip(nest.vars, nest.extents, strict=True)}
    seen: set[int] = set()
    for index, shape in zip(store.indices, store.buffer.shape, strict=True):
        if const_value(shape) == 1 and const_value(index) == 0:
            continue
        if not isinstance(index, Var) or index.id in seen or extents.get(index.id) != shape:
            return False
        seen.add(index.id)
    return True

"""Owns the placement of allocations: each moves to the innermost statement list that can hold it.

A tile that every iteration writes whole before reading it must not be carried by the loop: in SSA
form a carried tile is copied through registers and keeps the loop from being pipelined.
"""

from __future__ import annotations

from dataclasses import dataclass

from tileops.ir.expr import Buffer, Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import (
    Alloc,
    Body,
    Copy,
    Fill,
    Gemm,
    Launch,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
    View,
)
from tileops.ir.walk import read_buffers, sub_bodies, walk, with_bodies, written_buffers


@dataclass(frozen=True)
class Placement:
    """A launch with its allocations placed.

    ``unset`` are buffers whose first access writes them whole.
    """

    launch: Launch
    unset: frozenset[int]


def place_allocs(launch: Launch) -> Placement:
    """Move each plain allocation of ``launch`` as far inward as its uses allow."""
    pinned = {v.source.id for v in walk((launch,)) if isinstance(v, View)}
    allocs = [
        s
        for s in walk(launch.body)
        if isinstance(s, Alloc) and s.init is None and s.buffer.id not in pinned
    ]
    body, unset = launch.body, set()
    for alloc in allocs:
        body = _without(body, alloc)
        body, whole = _insert(body, alloc)
        if whole:
            unset.add(alloc.buffer.id)
    placed = with_bodies(launch, (body,))
    if not isinstance(placed, Launch):
        raise TypeError("a launch stays a launch")
    return Placement(placed, frozenset(unset))


def touches(stmt: Stmt, buffer: int) -> bool:
    """True if the statement or one nested in it reads or writes the buffer."""
    for s in walk((stmt,)):
        if any(b.id == buffer for b in (*read_buffers(s), *written_buffers(s))):
            return True
    return False


def _without(body: Body, alloc: Alloc) -> Body:
    out = []
    for stmt in body:
        if stmt is alloc:
            continue
        inner = sub_bodies(stmt)
        out.append(with_bodies(stmt, tuple(_without(b, alloc) for b in inner)) if inner else stmt)
    return tuple(out)


def _insert(body: Body, alloc: Alloc) -> tuple[Body, bool]:
    """Place ``alloc`` in ``body``.

    Returns the new body and whether the first access writes it whole.
    """
    at = [n for n, stmt in enumerate(body) if touches(stmt, alloc.buffer.id)]
    if not at:
        return body, True
    first = at[0]
    stmt = body[first]
    if len(at) == 1 and not isinstance(stmt, Parallel):
        deeper = _insert_in_child(stmt, alloc)
        if deeper is not None:
            return (*body[:first], deeper, *body[first + 1 :]), True
    whole = writes_whole(stmt, alloc.buffer)
    return (*body[:first], alloc, *body[first:]), whole


def _insert_in_child(stmt: Stmt, alloc: Alloc) -> Stmt | None:
    """``stmt`` with the allocation inside its only nested list that uses it, or None.

    Inside a loop this is right only where the first access writes the tile whole: else its value
    would have to survive from one iteration to the next.
    """
    inner = sub_bodies(stmt)
    users = [n for n, b in enumerate(inner) if any(touches(s, alloc.buffer.id) for s in b)]
    if len(users) != 1 or alloc.buffer.id in {b.id for b in read_buffers(stmt)}:
        return None
    body, whole = _insert(inner[users[0]], alloc)
    if not whole:
        return None
    return with_bodies(stmt, tuple(body if n == users[0] else b for n, b in enumerate(inner)))


def writes_whole(stmt: Stmt, buffer: Buffer) -> bool:
    """True if the statement writes every element of the buffer and reads none."""
    if isinstance(stmt, Parallel):
        return _nest_writes_whole(stmt, buffer)
    if any(b.id == buffer.id for b in read_buffers(stmt)):
        return False
    match stmt:
        case Copy(dst=d) | Fill(dst=d) | Transpose(dst=d) | Scan(dst=d) | Reduce(dst=d):
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

"""Shared buffers that are used in fixed parts of their columns, as a buffer for each part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tileops.ir import fold
from tileops.ir.expr import Buffer, Region
from tileops.ir.node import Body, Stmt
from tileops.ir.program import const_value
from tileops.ir.stmt import Alloc, Copy, Gemm
from tileops.ir.walk import read_buffers, regions, replace_stmts, view_roots, walk, written_buffers

# Where a part begins, and its buffer.
Parts = list[tuple[int, Buffer]]


def with_parts(body: Body, fresh: Iterator[int]) -> Body:
    """``body`` with each such buffer in parts.

    Copies are cut at the bounds of parts, and products that sum over several of them.
    """
    viewed = {b.id for b in view_roots(body).values()}
    for stmt in list(walk(body)):
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "shared":
            buffer = stmt.buffer
            bounds = () if buffer.id in viewed else _bounds(body, buffer)
            if len(bounds) > 2:
                parts = [
                    (low, _part(buffer, low, high, next(fresh))) for low, high in pairwise(bounds)
                ]
                body = _in_parts(body, buffer, parts)
    return body


def _part(buffer: Buffer, low: int, high: int, number: int) -> Buffer:
    shape = (*buffer.shape[:-1], fold.const(high - low))
    return replace(buffer, id=number, name=f"{buffer.name}_{low}", shape=shape)


def _bounds(body: Body, buffer: Buffer) -> tuple[int, ...]:
    """Where the parts of a buffer begin and end; nothing where it is used in another way."""
    size = const_value(buffer.shape[-1])
    if size is None or buffer.ndim < 2:
        return ()
    found = {0, size}
    spans: list[tuple[int, int, Stmt]] = []
    for stmt in walk(body):
        if isinstance(stmt, Alloc) or not _uses(stmt, buffer):
            continue
        if type(stmt) not in (Copy, Gemm):
            return ()
        for region in regions(stmt):
            if region.buffer.id == buffer.id:
                start, extent = const_value(region.starts[-1]), const_value(region.extents[-1])
                if start is None or extent is None:
                    return ()
                spans.append((start, start + extent, stmt))
                found |= {start, start + extent}
    inner = tuple(sorted(found))
    if any(isinstance(s, Gemm) and _inside(inner, low, high) for low, high, s in spans):
        return ()
    return inner


def _inside(bounds: tuple[int, ...], low: int, high: int) -> bool:
    return any(low < bound < high for bound in bounds)


def _uses(stmt: Stmt, buffer: Buffer) -> bool:
    return any(b.id == buffer.id for b in (*read_buffers(stmt), *written_buffers(stmt)))


def _in_parts(body: Body, buffer: Buffer, parts: Parts) -> Body:
    def changed(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case Alloc() if stmt.buffer.id == buffer.id:
                return tuple(replace(stmt, buffer=part) for _, part in parts)
            case Copy() if _uses(stmt, buffer):
                return tuple(_copies(stmt, buffer, parts))
            case Gemm() if _uses(stmt, buffer):
                a, b, c = (_of_one(r, buffer, parts) for r in (stmt.a, stmt.b, stmt.c))
                return (replace(stmt, a=a, b=b, c=c),)
        return None

    return replace_stmts(body, changed)


def _of_one(region: Region, buffer: Buffer, parts: Parts) -> Region:
    """A region of one part, in the buffer of that part."""
    if region.buffer.id != buffer.id:
        return region
    start = const_value(region.starts[-1])
    low, part = next(found for found in reversed(parts) if found[0] <= (start or 0))
    starts = (*region.starts[:-1], fold.const((start or 0) - low))
    return Region(part, starts, region.extents)


def _copies(copy: Copy, buffer: Buffer, parts: Parts) -> Iterator[Copy]:
    """The copy of each part that a copy moves."""
    mine = copy.dst if copy.dst.buffer.id == buffer.id else copy.src
    other = copy.src if mine is copy.dst else copy.dst
    start, extent = const_value(mine.starts[-1]) or 0, const_value(mine.extents[-1]) or 0
    if extent == 1:
        yield _sides(copy, mine, _of_one(mine, buffer, parts), other)
        return
    dim = other.squeezed()[-1]
    for low, part in parts:
        size = const_value(part.shape[-1]) or 0
        if start <= low < start + extent:
            begin, sizes = fold.const(0), fold.const(size)
            own = Region(part, (*mine.starts[:-1], begin), (*mine.extents[:-1], sizes))
            starts, extents = list(other.starts), list(other.extents)
            starts[dim] = fold.add(starts[dim], fold.const(low - start))
            extents[dim] = fold.const(size)
            yield _sides(copy, mine, own, Region(other.buffer, tuple(starts), tuple(extents)))


def _sides(copy: Copy, mine: Region, own: Region, other: Region) -> Copy:
    if mine is copy.dst:
        return replace(copy, src=other, dst=own)
    return replace(copy, src=own, dst=other)

"""What a statement reads and writes of memory that groups share, as boxes of elements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tileops.ir import explicit, fold
from tileops.ir.explicit import CP_ASYNC
from tileops.ir.expr import Buffer, Expr, Load, Region
from tileops.ir.node import Body, Stmt
from tileops.ir.program import const_value
from tileops.ir.stmt import Atomic, Bind, For, Parallel, Store
from tileops.ir.walk import exprs, regions, sub_bodies, walk_expr
from tileops.passes.analyze_ranges import Interval, Ranges
from tileops.passes.explicit.values import Env, World

# The first and the last index along each dimension.
Box = tuple[tuple[float, float], ...]


class Access(NamedTuple):
    """Elements of a buffer that a statement reads or writes; ``later``: by cp.async."""

    buffer: Buffer
    box: Box
    writes: bool
    later: bool = False


def meet(a: Box, b: Box) -> bool:
    """True if two boxes of one buffer have an element in common."""
    return len(a) != len(b) or all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))


def covers(a: Box, b: Box) -> bool:
    """True if the box ``a`` has all of ``b``."""
    return len(a) == len(b) and all(
        x[0] <= y[0] and y[1] <= x[1] for x, y in zip(a, b, strict=True)
    )


def accesses_of(stmt: Stmt, world: World, env: Env) -> list[Access]:
    """What a statement and those in it read and write, but for values of registers."""
    found = list(_accesses((stmt,), world, env, Ranges(), later=False))
    return [a for a in found if a.buffer.scope in ("shared", "global")]


def _accesses(
    body: Body, world: World, env: Env, ranges: Ranges, *, later: bool
) -> Iterator[Access]:
    for stmt in body:
        for expr in exprs(stmt):
            for e in walk_expr(expr):
                if isinstance(e, Load):
                    yield Access(
                        e.buffer, _element(e.indices, world, env, ranges), writes=False, later=later
                    )
        yield from _of_operands(stmt, world, env, ranges, later=later)
        inside = _inside(stmt, world, env, ranges)
        copies = later or (isinstance(stmt, For) and CP_ASYNC in stmt.hints)
        for inner in sub_bodies(stmt):
            yield from _accesses(inner, world, env, inside, later=copies)
        if isinstance(stmt, Bind):
            ranges = ranges.with_value(stmt.var, world.known(stmt.value, env))


def _of_operands(
    stmt: Stmt, world: World, env: Env, ranges: Ranges, *, later: bool
) -> Iterator[Access]:
    reads = {id(getattr(stmt, name)) for name in stmt.reads()}
    writes = {id(getattr(stmt, name)) for name in stmt.writes()}
    if isinstance(stmt, Store):
        yield Access(
            stmt.buffer, _element(stmt.indices, world, env, ranges), writes=True, later=later
        )
        return
    for region in regions(stmt):
        box = _region(region, world, env, ranges)
        atomic = isinstance(stmt, Atomic)
        if id(region) in reads and not atomic:
            yield Access(region.buffer, box, writes=False)
        if id(region) in writes and not atomic:
            yield Access(region.buffer, box, writes=True)


def _inside(stmt: Stmt, world: World, env: Env, ranges: Ranges) -> Ranges:
    match stmt:
        case For():
            start, stop = world.known(stmt.start, env), world.known(stmt.stop, env)
            return ranges.with_span(stmt.var, start, stop)
        case Parallel():
            for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                ranges = ranges.with_span(var, fold.const(0, var.dtype), world.known(extent, env))
    return ranges


def _element(indices: tuple[Expr, ...], world: World, env: Env, ranges: Ranges) -> Box:
    return tuple(_span(index, 1, world, env, ranges) for index in indices)


def _region(region: Region, world: World, env: Env, ranges: Ranges) -> Box:
    return tuple(
        _span(start, const_value(extent), world, env, ranges)
        for start, extent in zip(region.starts, region.extents, strict=True)
    )


def _span(
    start: Expr, extent: int | None, world: World, env: Env, ranges: Ranges
) -> tuple[float, float]:
    known = world.known(start, env)
    value = const_value(known)
    found = Interval(value, value) if value is not None else ranges.of(known)
    return found.lo, math.inf if extent is None else found.hi + extent - 1


def bytes_of(copy: explicit.CopyLater) -> int | None:
    """The bytes that a copy moves; None for run-time extents."""
    extents = copy.dst.static_extents()
    return None if extents is None else math.prod(extents) * copy.dst.dtype.bits // 8

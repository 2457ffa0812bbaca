"""Loops of two products, such as attention's, with the second one an iteration late.

In ``S = Q K; P = f(S); O += P V`` the second product of an iteration runs beside the first of the
next one and beside ``f``: tensor cores and the other units work at the same time (FlashAttention-3,
arXiv 2407.08608, section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.schedule import Advance, Await, Issue, Release, RingStep, Settle
from tileops.ir.stmt import Body, For, If, Stmt
from tileops.ir.walk import (
    map_stmt_exprs,
    read_buffers,
    sub_bodies,
    substitute,
    walk,
    with_bodies,
    written_buffers,
)
from tileops.passes.analyze_ranges import Ranges


def overlap_products(math: Body, ranges: Ranges) -> Body:
    """The math role with every such loop in that order; others stay."""
    out: list[Stmt] = []
    for stmt in math:
        match stmt:
            case For():
                parts = _parts(stmt)
                if parts is None:
                    inner = overlap_products(stmt.body, ranges.inside(stmt))
                    out.append(replace(stmt, body=inner))
                else:
                    out += _rotated(stmt, parts, ranges)
            case If(then=then, orelse=orelse):
                both = overlap_products(then, ranges), overlap_products(orelse, ranges)
                out.append(replace(stmt, then=both[0], orelse=both[1]))
            case _:
                out.append(stmt)
    return tuple(out)


@dataclass(frozen=True)
class _Parts:
    """An iteration: up to its first product, what ends that, what follows, and the second product.

    ``late`` statements change what the second product reads or adds to; they follow it.
    """

    first: Body
    ended: Body
    early: Body
    late: Body
    second: Issue
    awaits: Await
    releases: Body


def _parts(loop: For) -> _Parts | None:
    body = list(loop.body)
    issues = [n for n, s in enumerate(body) if isinstance(s, Issue)]
    if len(issues) != 2:
        return None
    one, two = issues
    second = body[two]
    assert isinstance(second, Issue)
    releases = tuple(body[two + 2 :])
    if [type(s) for s in body[two + 1 :]] != [Settle, Release, Advance]:
        return None
    ring = next(s.ring for s in releases if isinstance(s, Release))
    awaits = [s for s in body[:two] if isinstance(s, Await) and s.ring == ring]
    if len(awaits) != 1 or not isinstance(body[one + 1], Settle):
        return None
    slots = {b.id for s in body if isinstance(s, Await) for b in s.ring.buffers}
    if slots & _read(s for s in body if not isinstance(s, (RingStep, Issue, Settle))):
        return None  # a vector, whose slot is released behind what reads it
    between = [s for s in body[one + 2 : two] if s is not awaits[0]]
    ended = tuple(s for s in between if isinstance(s, (Release, Advance)))
    rest = [s for s in between if not isinstance(s, (Release, Advance))]
    if any(isinstance(s, (RingStep, Issue, Settle)) for s in walk(tuple(rest))):
        return None  # another product, under a condition
    if any(not b.is_on_chip for s in walk(tuple(body)) for b in written_buffers(s)):
        return None  # what is written to memory keeps its order
    before = tuple(s for s in body[: one + 1] if s is not awaits[0])
    delayed = {second.a.buffer.id, second.c.buffer.id}
    if second.a.buffer.scope == "shared" and second.a.buffer.id == second.b.buffer.id:
        return None
    if _touched(before) & delayed or not _written(rest) >= {second.a.buffer.id}:
        return None
    late = _late(rest, delayed)
    if late is None:
        return None
    early = tuple(s for s in rest if all(s is not x for x in late))
    return _Parts(before, ended, early, late, second, awaits[0], releases)


def _late(rest: list[Stmt], delayed: set[int]) -> Body | None:
    """What must follow the second product of the iteration before; None if that cannot move."""
    touched = set(delayed)
    late: list[Stmt] = []
    read: set[int] = set()
    for stmt in rest:
        reads, writes = _read((stmt,)), _written((stmt,))
        if (reads | writes) & touched:
            late.append(stmt)
            touched |= writes
            read |= reads
        elif writes & read:
            return None  # it would change what a statement behind it reads
    return tuple(late)


def _rotated(loop: For, parts: _Parts, ranges: Ranges) -> Body:
    second, where = parts.second, loop.provenance
    first = parts.first[-1]
    assert isinstance(first, Issue)
    whole = _without_second(loop, parts)
    opening = _at(whole, {loop.var.id: loop.start})
    body = (
        *parts.first,
        parts.awaits,
        second,
        Settle(1, (first.c.buffer,), **where),
        *parts.ended,
        *parts.early,
        Settle(0, (second.c.buffer,), **where),
        *parts.releases,
        *parts.late,
    )
    closing = (parts.awaits, second, Settle(0, (second.c.buffer,), **where), *parts.releases)
    rest = replace(loop, start=fold.add(loop.start, fold.const(1)), body=body)
    every: Body = (*opening, rest, *closing)
    if ranges.of(loop.stop).lo > ranges.of(loop.start).hi:
        return every
    return (If(fold.binary("gt", loop.stop, loop.start), every, (), **where),)


def _without_second(loop: For, parts: _Parts) -> Body:
    """An iteration without its second product."""
    first = parts.first[-1]
    assert isinstance(first, Issue)
    return (
        *parts.first,
        Settle(0, (first.c.buffer,), **loop.provenance),
        *parts.ended,
        *parts.early,
        *parts.late,
    )


def _at(body: Body, values: dict[int, Expr]) -> Body:
    """``body`` with variables replaced."""
    out = []
    for stmt in body:
        stmt = map_stmt_exprs(stmt, lambda e: substitute(e, values))
        out.append(with_bodies(stmt, tuple(_at(inner, values) for inner in sub_bodies(stmt))))
    return tuple(out)


def _read(body: Iterable[Stmt]) -> set[int]:
    return {b.id for s in walk(tuple(body)) for b in read_buffers(s)}


def _written(body: Iterable[Stmt]) -> set[int]:
    return {b.id for s in walk(tuple(body)) for b in written_buffers(s)}


def _touched(body: Iterable[Stmt]) -> set[int]:
    return _read(body) | _written(body)

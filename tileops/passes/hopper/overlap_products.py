"""Loops of two products, such as attention's, with the first one an iteration early.

In ``S = Q K; P = f(S); O += P V`` the first product of the next iteration starts with the second
one of this iteration, and one wait ends both: the tensor cores have more to do at a time, and while
one group of warps waits for them, the others compute ``f`` (FlashAttention-3, arXiv 2407.08608,
section 3). The last iteration is a text of its own: in causal attention it is the one with a mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.schedule import Advance, Await, Issue, Release, RingStep, Settle
from tileops.ir.stmt import Body, For, If, Stmt
from tileops.ir.walk import (
    map_stmt_exprs,
    sub_bodies,
    substitute,
    walk,
    with_bodies,
    written_buffers,
)
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.hopper.effects import read_ids, touched_ids, written_ids
from tileops.passes.hopper.every_block import EveryBlock

# A loop of as many iterations has less to gain than the longer text costs: on an H200, attention
# in a window of 128 keys took 406 us as it is written, and 425 us in the other order.
_FEW_TRIPS = fold.const(2)


def overlap_products(math: Body, ranges: Ranges, blocks: EveryBlock) -> Body:
    """The math role with every such loop in that order; others stay."""
    out: list[Stmt] = []
    for stmt in math:
        match stmt:
            case For():
                parts = _parts(stmt)
                end = fold.add(stmt.start, _FEW_TRIPS)
                if parts is None or blocks.at_most(stmt.stop, end, ranges):
                    inner = overlap_products(stmt.body, ranges.inside(stmt), blocks)
                    out.append(replace(stmt, body=inner))
                else:
                    out += _rotated(stmt, parts, ranges)
            case If(then=then, orelse=orelse):
                both = (
                    overlap_products(then, ranges, blocks),
                    overlap_products(orelse, ranges, blocks),
                )
                out.append(replace(stmt, then=both[0], orelse=both[1]))
            case _:
                out.append(stmt)
    return tuple(out)


@dataclass(frozen=True)
class _Parts:
    """An iteration: its first products, what ends them, what follows, and the second products.

    Products that follow one another are one of the two.
    """

    first: Body
    settle: Settle
    ended: Body
    between: Body
    second: Body
    last: Settle
    releases: Body


def _parts(loop: For) -> _Parts | None:
    body = list(loop.body)
    settles = [n for n, s in enumerate(body) if isinstance(s, Settle)]
    if len(settles) != 2:
        return None
    one, two = settles
    first, last = body[one], body[two]
    assert isinstance(first, Settle)
    assert isinstance(last, Settle)
    slots = {b.id for s in body if isinstance(s, Await) for b in s.ring.buffers}
    if slots & read_ids(s for s in body if not isinstance(s, (RingStep, Issue, Settle))):
        return None  # a vector, whose slot is released behind what reads it
    begin = two
    while isinstance(body[begin - 1], Issue):
        begin -= 1
    second, releases = body[begin:two], tuple(body[two + 1 :])
    if not second or not all(isinstance(s, (Release, Advance)) for s in releases):
        return None
    rings = {s.ring for s in releases if isinstance(s, Release)}
    awaits = [s for s in body[:begin] if isinstance(s, Await) and s.ring in rings]
    if {s.ring for s in awaits} != rings or not isinstance(body[one - 1], Issue):
        return None
    rest = [s for s in body[one + 1 : begin] if s not in awaits]
    ended = tuple(s for s in rest if isinstance(s, (Release, Advance)))
    between = tuple(s for s in rest if not isinstance(s, (Release, Advance)))
    if any(isinstance(s, (RingStep, Issue, Settle)) for s in walk(between)):
        return None  # another product, under a condition
    if any(not b.is_on_chip for s in walk(tuple(body)) for b in written_buffers(s)):
        return None  # what is written to memory keeps its order
    before = tuple(s for s in body[:one] if s not in awaits)
    if written_ids(before) & touched_ids(second) or read_ids(before) & written_ids(second):
        return None
    held = {b.id for ring in rings for b in ring.buffers}
    if touched_ids(before) & held:
        return None  # both read a slot of one round
    return _Parts(before, first, ended, between, (*awaits, *second), last, releases)


def _rotated(loop: For, parts: _Parts, ranges: Ranges) -> Body:
    where, one = loop.provenance, fold.const(1)
    opening = (*_at(parts.first, {loop.var.id: loop.start}), parts.settle, *parts.ended)
    both = tuple(dict.fromkeys((*parts.settle.results, *parts.last.results)))
    body = (
        *parts.between,
        *_at(parts.first, {loop.var.id: fold.add(loop.var, one)}),
        *parts.second,
        Settle(0, both, **where),
        *parts.ended,
        *parts.releases,
    )
    last = fold.sub(loop.stop, one)
    closing = (
        *_at(parts.between, {loop.var.id: last}),
        *parts.second,
        parts.last,
        *parts.releases,
    )
    every: Body = (*opening, replace(loop, stop=last, body=body), *closing)
    if ranges.of(loop.stop).lo > ranges.of(loop.start).hi:
        return every
    return (If(fold.binary("gt", loop.stop, loop.start), every, (), **where),)


def _at(body: Body, values: dict[int, Expr]) -> Body:
    """``body`` with variables replaced."""
    out = []
    for stmt in body:
        stmt = map_stmt_exprs(stmt, lambda e: substitute(e, values))
        out.append(with_bodies(stmt, tuple(_at(inner, values) for inner in sub_bodies(stmt))))
    return tuple(out)

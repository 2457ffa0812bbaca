"""Loops of three products or more, such as those of attention backward, with products in flight.

A product waits for its operands only, and what reads its result waits for it. In
``S = K Q; P = f(S); T = V R; dV += P R; D = g(P, T); dK += D Q`` both products of loaded tiles
start together, so that ``T`` runs beside ``f``, and both sums run beside each other, as in the
backward pass of FlashAttention-3 (arXiv 2407.08608).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tileops.ir import fold
from tileops.ir.node import Provenance
from tileops.ir.program import const_value
from tileops.ir.schedule import Acquire, Advance, Await, Issue, Release, Ring, RingStep, Settle
from tileops.ir.stmt import Body, For, If, Stmt
from tileops.ir.walk import sub_bodies, walk
from tileops.passes.hopper.effects import read_ids, touched_ids, written_ids

_LEAST = 3  # products: loops of fewer have an order of their own
_TRUE = fold.const(True, fold.BOOL)


def spread_products(math: Body, rings: Iterable[Ring]) -> Body:
    """The math role with every such loop in that order; others stay."""
    rings = tuple(rings)
    loaded = frozenset(b.id for r in rings if not r.is_exchange for b in r.buffers)
    exchanged = frozenset(b.id for r in rings if r.is_exchange for b in r.buffers)
    out: list[Stmt] = []
    for stmt in math:
        match stmt:
            case For(body=body) if _is_flat(body):
                stmt = replace(stmt, body=_spread(body, loaded, exchanged, stmt.provenance))
            case For(body=body):
                stmt = replace(stmt, body=spread_products(body, rings))
            case If(then=then, orelse=orelse):
                both = spread_products(then, rings), spread_products(orelse, rings)
                stmt = replace(stmt, then=both[0], orelse=both[1])
        out.append(stmt)
    return tuple(out)


def _is_flat(body: Body) -> bool:
    """True for a list of enough products that waits for each of them at once."""
    nested = walk(tuple(s for stmt in body for inner in sub_bodies(stmt) for s in inner))
    if any(isinstance(s, (RingStep, Issue, Settle)) for s in nested):
        return False
    if sum(isinstance(s, Issue) for s in body) < _LEAST:
        return False
    return all(
        s.outstanding == 0 if isinstance(s, Settle) else not isinstance(s, Release) or s.behind == 0
        for s in body
    )


def _spread(
    body: Body, loaded: frozenset[int], exchanged: frozenset[int], where: Provenance
) -> Body:
    order = [s for s in body if not isinstance(s, (Settle, Release, Advance))]
    released = [s.ring for s in body if isinstance(s, Release)]
    return _Waits(_sunk(_together(order, loaded), loaded | exchanged), released, where).body


# -- order ---------------------------------------------------------------------------------------
def _together(order: list[Stmt], loaded: frozenset[int]) -> list[Stmt]:
    """The statements with each product of loaded tiles right behind the product before it."""
    out: list[Stmt] = []
    for stmt in order:
        place = _earliest(out, stmt, loaded) if isinstance(stmt, Issue) else None
        if place is None or not isinstance(stmt, Issue):
            out.append(stmt)
            continue
        awaits = [s for s in out[place:] if isinstance(s, Await) and _reads(stmt, s.ring)]
        rest = [s for s in out[place:] if s not in awaits]
        out[place:] = [*awaits, stmt, *rest]
    return out


def _earliest(before: list[Stmt], issue: Issue, loaded: frozenset[int]) -> int | None:
    """The place behind the product before, if nothing keeps ``issue`` from it."""
    places = [n for n, s in enumerate(before) if isinstance(s, Issue)]
    if (
        not places
        or not {issue.a.buffer.id, issue.b.buffer.id} <= loaded
        or not const_value(issue.clear)
    ):
        return None
    crossed = [s for s in before[places[-1] + 1 :] if not isinstance(s, Await)]
    if any(isinstance(s, RingStep) for s in crossed) or issue.c.buffer.id in touched_ids(crossed):
        return None
    return places[-1] + 1


def _sunk(order: list[Stmt], held: frozenset[int]) -> list[Stmt]:
    """The statements with products of tiles in registers behind what waits for other products.

    One that started before would keep its operands longer, and registers are few. What the groups
    exchange is deposited first, since it may be such an operand. ``held`` are buffers of rings.
    """
    out: list[Stmt] = []
    late: list[Issue] = []
    for stmt in order:
        if isinstance(stmt, Issue) and stmt.a.buffer.id not in held:
            late.append(stmt)
            continue
        touches = read_ids((stmt,)) & written_ids(late) or written_ids((stmt,)) & touched_ids(late)
        meets = isinstance(stmt, RingStep) and not isinstance(stmt, Acquire)
        if isinstance(stmt, Issue) or meets or touches:
            out += late
            late = []
        out.append(stmt)
    return [*out, *late]


def _reads(issue: Issue, ring: Ring) -> bool:
    return issue.a.buffer in ring.buffers or issue.b.buffer in ring.buffers


# -- waits ---------------------------------------------------------------------------------------
@dataclass
class _Waits:
    """The order with a wait before what needs a result, and releases behind the last reader."""

    order: list[Stmt]
    released: list[Ring]
    where: Provenance

    def __post_init__(self) -> None:
        self._out: list[Stmt] = []
        self._flying: list[Issue] = []
        self._left = list(self.released)

    @property
    def body(self) -> Body:
        """The statements of one iteration."""
        for place, stmt in enumerate(self.order):
            self._settle(self._needed(stmt), place)
            self._out.append(stmt)
            if isinstance(stmt, Issue):
                self._flying.append(stmt)
        self._settle(len(self._flying), len(self.order))
        return tuple(self._out)

    def _needed(self, stmt: Stmt) -> int:
        """How many of the products in flight must have ended before a statement."""
        reads, writes = read_ids((stmt,)), written_ids((stmt,))
        touched = reads if isinstance(stmt, Issue) else reads | writes
        if isinstance(stmt, Issue):
            touched = touched - {stmt.c.buffer.id}  # sums of one result follow each other
        ends = [
            n + 1
            for n, s in enumerate(self._flying)
            if s.c.buffer.id in touched or writes & {s.a.buffer.id, s.b.buffer.id}
        ]
        return max(ends, default=0)

    def _settle(self, count: int, place: int) -> None:
        """Wait for the first ``count`` products in flight, and release what nothing reads now."""
        if count:
            ended, self._flying = self._flying[:count], self._flying[count:]
            results = tuple(dict.fromkeys(s.c.buffer for s in ended))
            self._out.append(Settle(len(self._flying), results, **self.where))
        later = [*self._flying, *self.order[place:]]
        read = read_ids(later)
        for ring in [r for r in self._left if read.isdisjoint(b.id for b in r.buffers)]:
            self._left.remove(ring)
            self._out.append(Release(ring, 0, _TRUE, **self.where))
            self._out.append(Advance(ring, **self.where))

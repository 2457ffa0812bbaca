"""Waits for products: none between products into one result, in some loops an iteration late."""

from __future__ import annotations

import itertools
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.program import const_value
from tileops.ir.schedule import Advance, Await, Issue, Release, Settle
from tileops.ir.stmt import Bind, Body, For, Stmt
from tileops.ir.walk import sub_bodies, with_bodies
from tileops.passes.hopper.promote_sums import is_promoted


def joined(body: Body) -> Body:
    """The statements without waits between products that follow each other into one result."""
    out: list[Stmt] = []
    for place, stmt in enumerate(body):
        if isinstance(stmt, Settle):
            after = (s for s in body[place + 1 :] if not isinstance(s, Await))
            following = next(after, None)
            if isinstance(following, Issue) and (following.c.buffer,) == stmt.results:
                continue
        out.append(with_bodies(stmt, tuple(map(joined, sub_bodies(stmt)))))
    return tuple(out)


def lone_products(loop: For, *, promoted: bool = False) -> list[Issue] | None:
    """The products of a loop that reads one ring and does nothing else; None for another loop.

    Those that are ``promoted`` to float32 count if asked for.
    """
    kinds = [type(s) for s in loop.body if not isinstance(s, Bind)]
    awaits, settles = kinds.count(Await), kinds.count(Settle)
    if kinds != [Await, *itertools.chain(*[(Issue, Settle)] * settles), Release, Advance]:
        return None
    if awaits != 1 or not settles:
        return None
    issues = [s for s in loop.body if isinstance(s, Issue)]
    if any(const_value(s.clear) or (is_promoted(s) and not promoted) for s in issues):
        return None
    return issues


def deferred(loop: For, issues: list[Issue]) -> tuple[For, Body]:
    """The loop with ``issues`` of one iteration in flight while the next ones start.

    A slot is then released an iteration later. What follows the loop settles the last ones.
    """
    results = tuple(dict.fromkeys(s.c.buffer for s in issues))
    body: list[Stmt] = []
    for stmt in loop.body:
        match stmt:
            case Settle():
                continue
            case Release(ring=ring):
                body.append(Settle(len(issues), results, **stmt.provenance))
                later = fold.binary("gt", loop.var, loop.start)
                body.append(Release(ring, 1, later, **stmt.provenance))
            case _:
                body.append(stmt)
    ran = fold.binary("gt", loop.stop, loop.start)
    after = (
        Settle(0, results, **loop.provenance),
        Release(ring, 1, ran, **loop.provenance),
    )
    return replace(loop, body=tuple(body)), after

"""Loops of fp8 products alone, two tiles at a time: half as many waits and sums in float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.program import const_value
from tileops.ir.schedule import Advance, Await, Issue, Release, Settle
from tileops.ir.stmt import Bind, Body, For, If, Stmt
from tileops.ir.walk import sub_bodies, with_bodies
from tileops.passes.hopper.promote_sums import is_promoted


def pair_tiles(math: Body, ids: Iterator[int]) -> Body:
    """The math role with every such loop over pairs, and behind it the tile that may be left."""
    out: list[Stmt] = []
    for stmt in math:
        if isinstance(stmt, For) and _is_lone(stmt):
            out += _paired(stmt, ids)
        else:
            inner = tuple(pair_tiles(body, ids) for body in sub_bodies(stmt))
            out.append(with_bodies(stmt, inner))
    return tuple(out)


def _is_lone(loop: For) -> bool:
    steps = [s for s in loop.body if not isinstance(s, Bind)]
    if [type(s) for s in (steps[0], *steps[-2:])] != [Await, Release, Advance]:
        return False
    inner = steps[1:-2]
    issues = [s for s in inner if isinstance(s, Issue)]
    others = [s for s in inner if not isinstance(s, (Issue, Settle))]
    return bool(issues) and not others and all(map(is_promoted, issues))


def _paired(loop: For, ids: Iterator[int]) -> Body:
    trips = fold.sub(loop.stop, loop.start)
    if (const_value(trips) or 2) < 2:
        return (loop,)
    two, pair = fold.const(2), Var(loop.var.dtype, next(ids), "pair")
    steps = tuple(s for s in loop.body if not isinstance(s, Bind))
    first = fold.add(loop.start, fold.mul(pair, two))
    both = (Bind(loop.var, first, **loop.provenance), *_both(steps))
    last = (Bind(loop.var, fold.sub(loop.stop, fold.const(1)), **loop.provenance), *steps)
    every = replace(
        loop, var=pair, start=fold.const(0), stop=fold.binary("floordiv", trips, two), body=both
    )
    return (every, *_last(last, trips, loop))


def _last(body: Body, trips: Expr, loop: For) -> Body:
    """The tile that an odd number of them leaves."""
    odd = fold.binary("eq", fold.floormod(trips, fold.const(2)), fold.const(1))
    left = fold.binary("land", fold.binary("gt", trips, fold.const(0)), odd)
    known = const_value(left)
    if known is not None:
        return body if known else ()
    return (If(left, body, (), **loop.provenance),)


def _both(steps: Body) -> Body:
    """The steps of two iterations: each accumulator's products follow each other."""
    awaits, advance = steps[0], steps[-1]
    issues = [s for s in steps if isinstance(s, Issue)]
    results: list[Buffer] = list(dict.fromkeys(s.c.buffer for s in issues))
    products = [
        replace(s, behind=behind)
        for result in results
        for behind in (1, 0)
        for s in issues
        if s.c.buffer == result
    ]
    (release,) = (s for s in steps if isinstance(s, Release))
    settle = Settle(0, tuple(results), **awaits.provenance)
    return (
        awaits, advance, awaits, *products, settle, replace(release, behind=1), release, advance
    )  # fmt: skip

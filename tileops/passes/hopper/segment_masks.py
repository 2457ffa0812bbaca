"""Loops with a mask, cut where the mask begins and ceases to matter.

A condition that is affine in the loop's variable holds for a whole tile in one range of iterations;
there the mask is left out. Causal attention has one such range, attention in a window one between
two masked ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Binary, Expr, Select, Var
from tileops.ir.program import const_value
from tileops.ir.schedule import Issue
from tileops.ir.stmt import Bind, Body, For, If, Parallel, Stmt, Store
from tileops.ir.walk import substitute, walk
from tileops.passes.analyze_index import affine
from tileops.passes.analyze_ranges import Ranges


def segment_masks(math: Body, ranges: Ranges) -> Body:
    """The math role with every such loop cut; the parts run the same statements."""
    out: list[Stmt] = []
    for stmt in math:
        match stmt:
            case For():
                out += _segments(stmt, ranges) or (
                    replace(stmt, body=segment_masks(stmt.body, ranges.inside(stmt))),
                )
            case If(then=then, orelse=orelse):
                both = segment_masks(then, ranges), segment_masks(orelse, ranges)
                out.append(replace(stmt, then=both[0], orelse=both[1]))
            case _:
                out.append(stmt)
    return tuple(out)


def _segments(loop: For, ranges: Ranges) -> Body:
    """The loops in the place of ``loop``; none where it has no mask of this form."""
    products = {s.c.buffer.id for s in loop.body if isinstance(s, Issue)}
    masks = [s for s in loop.body if isinstance(s, Parallel) and _hides(s, products)]
    if len(masks) != 1:
        return ()
    found = _free_range(masks[0], loop, ranges)
    if found is None:
        return ()
    low, high = found
    free = tuple(s for s in loop.body if s is not masks[0])
    low = loop.start if low is None else _clamped(low, loop.start, loop.stop)
    high = loop.stop if high is None else _clamped(high, low, loop.stop)
    parts = [
        replace(loop, stop=low),
        replace(loop, start=low, stop=high, body=free),
        replace(loop, start=high),
    ]
    return tuple(p for p in parts if p.start != p.stop)


def _clamped(value: Expr, low: Expr, high: Expr) -> Expr:
    return fold.binary("max", low, fold.binary("min", value, high))


def _hides(nest: Parallel, products: set[int]) -> bool:
    """True for a nest that only replaces elements of a product where a condition fails."""
    nest = nest.flattened()
    *binds, store = nest.body
    return (
        isinstance(store, Store)
        and store.buffer.id in products
        and isinstance(store.value, Select)
        and all(isinstance(s, Bind) for s in binds)
        and getattr(store.value.a, "buffer", None) == store.buffer
        and getattr(store.value.a, "indices", None) == store.indices
    )


def _free_range(
    nest: Parallel, loop: For, ranges: Ranges
) -> tuple[Expr | None, Expr | None] | None:
    """The iterations whose tile is visible whole, as bounds; None where they are not a range."""
    nest = nest.flattened()
    *binds, store = nest.body
    assert isinstance(store, Store)
    assert isinstance(store.value, Select)
    known: dict[int, Expr] = {}
    for bind in binds:
        assert isinstance(bind, Bind)
        known[bind.var.id] = substitute(bind.value, known)
    spans: dict[int, int] = {}
    for var, extent in zip(nest.vars, nest.extents, strict=True):
        size = const_value(extent)
        if size is None:
            return None
        spans[var.id] = size - 1
    low: Expr | None = None
    high: Expr | None = None
    for difference in _differences(substitute(store.value.cond, known)):
        parts = None if difference is None else affine(difference, {loop.var.id, *spans})
        if parts is None:
            return None
        step = parts.coefficient(loop.var.id)
        least = sum(min(0, parts.coefficient(n) * most) for n, most in spans.items())
        rest = fold.add(parts.rest, fold.const(least))
        if step < 0:
            end = fold.add(fold.binary("floordiv", rest, fold.const(-step)), fold.const(1))
            high = end if high is None else fold.binary("min", high, end)
        elif step > 0:
            negated = fold.sub(fold.const(0), rest)
            begin = fold.ceildiv(negated, fold.const(step))
            low = begin if low is None else fold.binary("max", low, begin)
        elif ranges.of(rest).lo < 0:
            return None
    if low is None and high is None:
        return None
    return low, high


def _differences(cond: Expr) -> Iterator[Expr | None]:
    """What must be 0 or more for the condition to hold, each part; None for another form."""
    match cond:
        case Binary(op="land", a=a, b=b):
            yield from _differences(a)
            yield from _differences(b)
        case Binary(op="ge" | "gt" as op, a=a, b=b) if a.dtype.is_integer:
            yield fold.sub(fold.sub(a, b), fold.const(int(op == "gt")))
        case Binary(op="le" | "lt" as op, a=a, b=b) if a.dtype.is_integer:
            yield fold.sub(fold.sub(b, a), fold.const(int(op == "lt")))
        case _:
            yield None


def reversed_blocks(math: Body, block_vars: tuple[Var, ...]) -> tuple[Var, ...]:
    """The block variables with which loops grow longer: their last blocks should start first."""
    loops = [s for s in walk(math) if isinstance(s, For)]
    return tuple(v for v in block_vars if any(_grows(s.stop, v) for s in loops))


def _grows(expr: Expr, var: Var) -> bool:
    """True if the value grows with ``var``, and with nothing less than it."""
    match expr:
        case Var(id=n):
            return n == var.id
        case Binary(op="add" | "min" | "max", a=a, b=b):
            return _grows(a, var) or _grows(b, var)
        case Binary(op="sub", a=a):
            return _grows(a, var)
        case Binary(op="mul" | "floordiv" | "ceildiv", a=a, b=b):
            value = const_value(b)
            return value is not None and value > 0 and _grows(a, var)
    return False

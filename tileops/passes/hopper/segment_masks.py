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
from tileops.ir.walk import substitute, walk, walk_expr
from tileops.passes.analyze_index import affine
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.hopper.every_block import EveryBlock


def segment_masks(role: Body, ranges: Ranges, blocks: EveryBlock) -> Body:
    """The math role with every such loop cut; the parts run the same statements.

    A part that runs in none of ``blocks`` is left out if that can be seen.
    """
    out: list[Stmt] = []
    for stmt in role:
        match stmt:
            case For():
                out += _segments(stmt, ranges, blocks) or (
                    replace(stmt, body=segment_masks(stmt.body, ranges.inside(stmt), blocks)),
                )
            case If(then=then, orelse=orelse):
                both = (
                    segment_masks(then, ranges, blocks),
                    segment_masks(orelse, ranges, blocks),
                )
                out.append(replace(stmt, then=both[0], orelse=both[1]))
            case _:
                out.append(stmt)
    return tuple(out)


def _segments(loop: For, ranges: Ranges, blocks: EveryBlock) -> Body:
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
    first = loop.start if low is None or blocks.at_most(low, loop.start, ranges) else low
    last = loop.stop if high is None or blocks.at_most(loop.stop, high, ranges) else high
    begin = first if first is loop.start else _clamped(first, loop.start, loop.stop)
    end = last if last is loop.stop else _clamped(last, begin, loop.stop)
    parts = [
        replace(loop, stop=begin),
        replace(loop, start=begin, stop=end, body=free),
        replace(loop, start=end),
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
    # By step, what must not be negative together for an iteration to be between two bounds.
    rests: dict[int, Expr] = {}
    for difference in _differences(substitute(store.value.cond, known)):
        parts = None if difference is None else affine(difference, {loop.var.id, *spans})
        if parts is None:
            return None
        step = parts.coefficient(loop.var.id)
        least = sum(min(0, parts.coefficient(n) * most) for n, most in spans.items())
        rest = fold.add(parts.rest, fold.const(least))
        if -step in rests and _is_negative(fold.add(rest, rests[-step]), ranges):
            return None  # no iteration is free
        rests[step] = rest
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


def _is_negative(expr: Expr, ranges: Ranges) -> bool:
    parts = affine(expr, {e.id for e in walk_expr(expr) if isinstance(e, Var)})
    return parts is not None and not parts.coefficients and ranges.of(parts.rest).hi < 0


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


def reversed_blocks(body: Body, block_vars: tuple[Var, ...]) -> tuple[Var, ...]:
    """The block variables with which loops grow longer: their last blocks should start first."""
    loops = [s for s in walk(body) if isinstance(s, For)]
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

"""Masks that a product starts from, put after it: ``acc = (c ? 0 : m) + A B``.

``c ? A B : A B + m`` is the same sum, with ``m`` as its last term. For an ``m`` of -inf that is
``c ? A B : -inf`` but where ``A B`` is infinite or NaN: under the mask it then gives -inf, where
the sum is NaN. The product starts from zero and needs no tile for the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Binary, Const, Expr, Load, Select
from tileops.ir.program import const_value
from tileops.ir.stmt import Body, Copy, Fill, For, Gemm, If, Parallel, Stmt, Store
from tileops.ir.walk import read_buffers, walk, written_buffers
from tileops.passes.analyze_ranges import Interval, Ranges

_TRUE = fold.const(True, DType("bool"))
# Whether a comparison holds for every value of two intervals.
_ORDERS: dict[str, Callable[[Interval, Interval], bool]] = {
    "lt": lambda a, b: a.hi < b.lo,
    "le": lambda a, b: a.hi <= b.lo,
    "gt": lambda a, b: a.lo > b.hi,
    "ge": lambda a, b: a.lo >= b.hi,
}


def mask_after(body: Body, ranges: Ranges) -> Body:
    """``body`` with every such mask behind its product, and without those that always hold."""
    out: list[Stmt] = []
    waiting: list[Stmt] = []
    for stmt in body:
        if waiting and not _goes_on(stmt, waiting):
            out += waiting
            waiting = []
        match stmt:
            case For():
                inside = ranges.inside(stmt)
                stmt = replace(stmt, body=mask_after(stmt.body, inside))
            case If():
                stmt = replace(
                    stmt, then=mask_after(stmt.then, ranges), orelse=mask_after(stmt.orelse, ranges)
                )
            case Gemm() if const_value(stmt.clear) == 0:
                place = _start(out, stmt)
                if place is not None:
                    start = out.pop(place)
                    out.append(replace(stmt, clear=_TRUE))
                    waiting = _masks(start, stmt, ranges)
                    continue
        out.append(stmt)
    return (*out, *waiting)


def _goes_on(stmt: Stmt, masks: list[Stmt]) -> bool:
    """True for a statement before which the masks need not be: another term of the product.

    Loads of its operands are between the terms.
    """
    acc = _written_in(masks[-1])
    match stmt:
        case Gemm():
            return stmt.c.buffer in acc and const_value(stmt.clear) == 0
        case Copy():
            return stmt.dst.buffer.scope == "shared" and stmt.src.buffer not in acc
    return False


def _start(before: list[Stmt], gemm: Gemm) -> int | None:
    """The place of the statement that gives the product its start, if nothing else sees it."""
    acc = gemm.c.buffer
    for place in reversed(range(len(before))):
        stmt = before[place]
        if acc in _written_in(stmt):
            later = [b for s in before[place + 1 :] for b in _written_in(s)]
            if any(b in later for s in walk((stmt,)) for b in read_buffers(s)):
                return None
            return place if gemm.c.is_whole() and _is_start(stmt, gemm) else None
        if any(acc in read_buffers(s) for s in walk((stmt,))):
            return None
        if isinstance(stmt, (For, If)):
            return None
    return None


def _written_in(stmt: Stmt) -> list[object]:
    """What a statement and those in it write."""
    return [b for s in walk((stmt,)) for b in written_buffers(s)]


def _is_start(stmt: Stmt, gemm: Gemm) -> bool:
    if isinstance(stmt, Fill):
        return stmt.dst.is_whole() and isinstance(stmt.value, Const) and stmt.value.value == 0
    if not isinstance(stmt, Parallel):
        return False
    nest = stmt.flattened()
    store = nest.body[-1] if nest.body else None
    if not isinstance(store, Store) or store.indices != nest.vars:
        return False
    if nest.extents != gemm.c.extents or not isinstance(store.value, Select):
        return False
    if any(isinstance(s, (Store, If, For)) for s in walk(nest.body[:-1])):
        return False
    if any(b.is_on_chip for s in walk(nest.body) for b in read_buffers(s)):
        return False
    shown, hidden = store.value.a, store.value.b
    return isinstance(hidden, Const) and isinstance(shown, Const) and float(shown.value) == 0


def _masks(start: Stmt, gemm: Gemm, ranges: Ranges) -> list[Stmt]:
    """The nest that hides elements of the product; none where all are visible."""
    if not isinstance(start, Parallel):
        return []
    nest = start.flattened()
    store = nest.body[-1]
    assert isinstance(store, Store)
    assert isinstance(store.value, Select)
    known = ranges
    for var, extent in zip(nest.vars, nest.extents, strict=True):
        known = known.with_span(var, fold.const(0), extent)
    if len(nest.body) == 1 and _holds(store.value.cond, known):
        return []
    own, hidden = Load(gemm.c.dtype, gemm.c.buffer, store.indices), store.value.b
    assert isinstance(hidden, Const)
    if float(hidden.value) != -math.inf:
        hidden = fold.add(own, hidden)
    masked = replace(store, value=replace(store.value, a=own, b=hidden))
    return [replace(nest, body=(*nest.body[:-1], masked))]


def _holds(cond: Expr, ranges: Ranges) -> bool:
    """True if the condition certainly holds."""
    match cond:
        case Const(value=value):
            return bool(value)
        case Binary(op="land", a=a, b=b):
            return _holds(a, ranges) and _holds(b, ranges)
        case Binary(op=op, a=a, b=b) if op in _ORDERS and a.dtype.is_integer:
            return _ORDERS[op](ranges.of(a), ranges.of(b))
    return False

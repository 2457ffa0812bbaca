"""The cheap form of a division that rounds up, where what is known of its operands allows it."""

from __future__ import annotations

from tileops.ir import fold
from tileops.ir.expr import Binary, Expr
from tileops.passes.analyze_ranges import MOST_FACTOR, Ranges


def cheap_ceildiv(expr: Binary, ranges: Ranges) -> Expr | None:
    """``(a + (b - 1)) // b`` for ``ceildiv(a, b)``.

    None where that sum may wrap, or ``b`` may be below 1. A size ends so far below the end of its
    type that a factor can be added to it.
    """
    a, b = ranges.of(expr.a), ranges.of(expr.b)
    if b.lo is None or b.lo < 1:
        return None
    if a.hi is None and (b.hi is None or b.hi > MOST_FACTOR):
        return None
    total = fold.add(expr.a, fold.sub(expr.b, fold.const(1, expr.b.dtype)))
    if isinstance(total, Binary) and total.op == "add" and ranges.wraps(total):
        return None
    return fold.binary("floordiv", total, expr.b)

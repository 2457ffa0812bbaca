"""An estimate of a block's work, by which small grids run without waking other threads."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tileops.ir import stmt as ir
from tileops.ir.expr import Call, Expr
from tileops.ir.program import const_value
from tileops.ir.walk import exprs, walk_expr

# Steps that are worth a task, as torch splits its own loops: some 10 us. Waking a thread costs
# about that on an idle machine, and a time slice on a busy one.
_TASK = 32768
_UNKNOWN = 64  # iterations of a loop whose length only a call knows
_CALL = 8  # steps of a function such as exp


def grain_of(body: ir.Body) -> int:
    """The fewest blocks of a launch that are worth a task of their own."""
    return max(1, math.ceil(_TASK / max(1, work_of(body))))


def work_of(body: ir.Body) -> int:
    """Steps of one block: elements moved or computed, each statement on each counted."""
    return sum(_work(stmt) for stmt in body)


def _work(stmt: ir.Stmt) -> int:
    match stmt:
        case ir.For(start=start, stop=stop, body=body):
            first, last = const_value(start), const_value(stop)
            count = _UNKNOWN if first is None or last is None else max(0, last - first)
            return count * work_of(body)
        case ir.While(body=body):
            return _UNKNOWN * work_of(body)
        case ir.Parallel(extents=extents, body=body):
            return _count(extents) * work_of(body)
        case ir.Threads(count=count, body=body):
            return count * work_of(body)
        case ir.If(then=then, orelse=orelse):
            return max(work_of(then), work_of(orelse))
        case ir.Copy(dst=region) | ir.Fill(dst=region) | ir.Transpose(dst=region):
            return _count(region.extents)
        case ir.Reduction(src=region) | ir.Scan(src=region):
            return _count(region.extents)
        case ir.Gemm(a=a, c=c, transpose_a=is_transposed):
            depth = _extent(a.extents[-2 if is_transposed else -1])
            # A product costs less than a step that goes through memory.
            return _count(c.extents) * max(1, depth // 4)
        case ir.Atomic(dst=dst):
            return _CALL * _count(dst.extents)
        case _:
            return 1 + _CALL * sum(isinstance(e, Call) for x in exprs(stmt) for e in walk_expr(x))


def _extent(expr: Expr) -> int:
    value = const_value(expr)
    return _UNKNOWN if value is None else value


def _count(extents: Iterable[Expr]) -> int:
    return math.prod(_extent(e) for e in extents)

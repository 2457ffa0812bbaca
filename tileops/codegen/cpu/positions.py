"""Owns 64-bit index arithmetic: an index expression of the program as an exact int64 one in C++.

The program's own arithmetic wraps in its dtype; the compiler then cannot see that ``base + j``
walks through memory in order. Where intervals show that nothing wraps, the expression is computed
in int64 from the start. A sum or product of sizes, block and loop variables is taken as not
wrapping: where it would, its index lies outside every tensor that the 32-bit form could address.
"""

from __future__ import annotations

from collections.abc import Callable

from tileops.codegen.cpu.state import LaunchState
from tileops.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tileops.ir.walk import walk_expr
from tileops.passes.analyze_ranges import Interval

_SYMBOL = {"add": "+", "sub": "-", "mul": "*"}
_INT32 = Interval(-(2**31), 2**31 - 1)
_INT64 = Interval(-(2**63), 2**63 - 1)

Emit = Callable[[LaunchState, Expr], str]


def position(state: LaunchState, index: Expr, value: Emit) -> str:
    """``index`` as an int64 C++ expression.

    ``value`` emits expressions in the program's own arithmetic.
    """
    if isinstance(index, Const):
        return f"{int(index.value)}" if index.value >= 0 else f"({int(index.value)})"
    if index.dtype == "int64" or index.dtype != "int32":
        return f"static_cast<i64>({value(state, index)})"
    match index:
        case Var():
            return f"static_cast<i64>({value(state, index)})"
        case Binary(op="add" | "sub" | "mul" as op, a=a, b=b) if _is_exact(state, index):
            return f"({position(state, a, value)} {_SYMBOL[op]} {position(state, b, value)})"
        case Unary(op="neg", a=a):
            return f"(-{position(state, a, value)})"
        case Cast(a=a) if a.dtype.is_integer and a.dtype.bits <= 32 and a.dtype != "uint32":
            return position(state, a, value)
        case _:
            return f"static_cast<i64>({value(state, index)})"


def _is_exact(state: LaunchState, index: Binary) -> bool:
    """True if computing ``index`` in int64 reads and writes the elements that wrapping would."""
    if _is_structural(state, index):
        return True
    if index.op == "mul":
        return fits(state, index)
    # Two int32 terms: a sum outside int32 is outside every 32-bit extent, wrapped or not.
    return all(
        not isinstance(t, Binary) or t.op not in _SYMBOL or fits(state, t)
        for t in (index.a, index.b)
    )


def _is_structural(state: LaunchState, index: Expr) -> bool:
    """True if only constants, sizes, block and loop variables occur, in sums and products."""
    for e in walk_expr(index):
        match e:
            case Const():
                continue
            case Var(id=n) if n in state.structural:
                continue
            case Binary(op="add" | "sub" | "mul") | Unary(op="neg"):
                continue
            case _:
                return False
    return True


def fits(state: LaunchState, expr: Expr) -> bool:
    """True if no operation of ``expr`` can leave the range of its dtype."""
    for e in walk_expr(expr):
        if isinstance(e, (Binary, Unary)) and e.dtype.is_integer:
            interval = state.ranges.of(e)
            limit = _INT64 if e.dtype.bits == 64 else _INT32
            if interval.lo is None or interval.hi is None:
                return False
            if interval.lo < (limit.lo or 0) or interval.hi > (limit.hi or 0):
                return False
    return True


def is_non_negative(state: LaunchState, expr: Expr) -> bool:
    """True if ``expr`` is at least 0 and nothing in it wraps."""
    return state.ranges.is_non_negative(expr) and fits(state, expr)

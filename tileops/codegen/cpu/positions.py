"""Owns 64-bit index arithmetic: an index expression of the program as an exact int64 one in C++.

The sums, products and widening conversions of an index are exact, so they are computed in int64
from the start: the compiler then sees that ``base + j`` walks through memory in order. All other
operations are those of values, which wrap in their dtype.
"""

from __future__ import annotations

from collections.abc import Callable

from tileops.codegen.cpu.state import LaunchState
from tileops.ir.expr import Binary, Cast, Const, Expr, Unary
from tileops.passes.analyze_ranges import is_exact

_SYMBOL = {"add": "+", "sub": "-", "mul": "*"}

Emit = Callable[[LaunchState, Expr], str]


def position(state: LaunchState, index: Expr, value: Emit) -> str:
    """``index`` as an int64 C++ expression.

    ``value`` emits expressions in the program's own arithmetic.
    """
    if isinstance(index, Const):
        return f"{int(index.value)}" if index.value >= 0 else f"({int(index.value)})"
    match index if is_exact(index) else None:
        case Binary(op=op, a=a, b=b):
            return f"({position(state, a, value)} {_SYMBOL[op]} {position(state, b, value)})"
        case Unary(a=a):
            return f"(-{position(state, a, value)})"
        case Cast(a=a):
            return position(state, a, value)
        case _:
            return f"static_cast<i64>({value(state, index)})"

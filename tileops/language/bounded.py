"""Index arithmetic that the language takes as fitting its type.

It is that of sizes, of block and loop variables between such bounds, and of small constants.
"""

from __future__ import annotations

from tileops.ir.expr import Binary, Cast, Const, Expr, HostAttr, Select, Unary, Var
from tileops.language.tracer import Tracer

# A constant up to this size may be added to a size or multiply it.
_SMALL = 1 << 24
_CLOSED = frozenset(
    (
        "add", "sub", "mul", "floordiv", "floormod", "ceildiv", "truncdiv", "truncmod", "min",
        "max", "and", "shr",
    )
)  # fmt: skip


def fits_its_type(tracer: Tracer, *exprs: Expr) -> bool:
    """True for index arithmetic that the language takes as not wrapping."""
    return all(_fits(tracer, e) for e in exprs)


def _fits(tracer: Tracer, expr: Expr) -> bool:
    match expr:
        case Const(value=value):
            return abs(value) <= _SMALL
        case Var(id=n):
            return tracer.is_bounded(n)
        case HostAttr():
            return True
        case Cast(a=a):
            narrow = a.dtype.is_bool or (a.dtype.is_integer and a.dtype.bits <= 16)
            return narrow or (a.dtype.is_integer and _fits(tracer, a))
        case Binary(op="floormod", b=Const(value=value)):
            return 0 < value <= _SMALL
        case Binary(op=op, a=a, b=b):
            return op in _CLOSED and _fits(tracer, a) and _fits(tracer, b)
        case Unary(op="neg", a=a):
            return _fits(tracer, a)
        case Select(a=a, b=b):
            return _fits(tracer, a) and _fits(tracer, b)
        case _:
            return False

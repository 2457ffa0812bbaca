"""Index arithmetic: what is taken as not wrapping, and comparisons that hold for every size."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from tileops.ir import fold
from tileops.ir.expr import Binary, Cast, Const, Expr, HostAttr, Select, Unary, Var
from tileops.language.tracer import Tracer

_ONE = fold.const(1)
# A constant up to this size may be added to a size or multiply it.
_SMALL = 1 << 24
_CLOSED = frozenset(
    (
        "add", "sub", "mul", "floordiv", "floormod", "ceildiv", "truncdiv", "truncmod", "min",
        "max", "and", "shr",
    )
)  # fmt: skip


def fits_its_type(tracer: Tracer, *exprs: Expr) -> bool:
    """True for arithmetic that the language takes as not wrapping.

    It is that of sizes, of block and loop variables between such bounds, and of small constants.
    """
    return all(_fits(tracer, e) for e in exprs)


def _fits(tracer: Tracer, expr: Expr) -> bool:
    match expr:
        case Const(value=value):
            return abs(value) <= _SMALL
        case Var(id=n):
            return n in tracer.bounded
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


def _linear(expr: Expr, scale: int, terms: dict[Expr, int]) -> int:
    """Add ``scale * expr`` to ``terms``; the constant part is returned."""
    match expr:
        case Const(value=value) if isinstance(value, int):
            return scale * value
        case Binary(op="add", a=a, b=b):
            return _linear(a, scale, terms) + _linear(b, scale, terms)
        case Binary(op="sub", a=a, b=b):
            return _linear(a, scale, terms) + _linear(b, -scale, terms)
        case Binary(op="mul", a=a, b=Const(value=value)) if isinstance(value, int):
            return _linear(a, scale * value, terms)
        case Binary(op="mul", a=Const(value=value), b=b) if isinstance(value, int):
            return _linear(b, scale * value, terms)
        case Unary(op="neg", a=a):
            return _linear(a, -scale, terms)
        case _:
            terms[expr] = terms.get(expr, 0) + scale
            return 0


def constant_difference(a: Expr, b: Expr) -> int | None:
    """``a - b`` if it is the same number for all values of the variables, else None."""
    if isinstance(a, Const) and isinstance(b, Const):
        return int(a.value) - int(b.value)
    terms: dict[Expr, int] = {}
    constant = _linear(a, 1, terms) + _linear(b, -1, terms)
    return None if any(terms.values()) else constant


def difference(a: Expr, b: Expr) -> Expr:
    """``a - b``, a constant if it is one."""
    constant = constant_difference(a, b)
    if constant is None:
        return fold.sub(a, b)
    least, most = a.dtype.limits
    return fold.const(constant, a.dtype) if least <= constant <= most else fold.const(constant)


def are_different(a: Expr, b: Expr) -> bool:
    """True if ``a`` and ``b`` differ for all values of the variables."""
    return constant_difference(a, b) not in (None, 0)


def product(extents: Iterable[Expr], first: Expr = _ONE) -> Expr:
    """``first`` times each of ``extents``."""
    return reduce(fold.mul, extents, first)


def is_one(expr: Expr) -> bool:
    """True for the constant 1."""
    return isinstance(expr, Const) and int(expr.value) == 1

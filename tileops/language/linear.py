"""Owns linear forms of index expressions: differences and comparisons that hold for every size."""

from __future__ import annotations

from tileops.ir import fold
from tileops.ir.expr import Binary, Const, Expr, Unary


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
    """``a - b`` where it is the same number for all values of the variables, else None."""
    if isinstance(a, Const) and isinstance(b, Const):
        return int(a.value) - int(b.value)
    terms: dict[Expr, int] = {}
    constant = _linear(a, 1, terms) + _linear(b, -1, terms)
    return None if any(terms.values()) else constant


def difference(a: Expr, b: Expr) -> Expr:
    """``a - b``, a constant where it is one."""
    constant = constant_difference(a, b)
    if constant is None:
        return fold.sub(a, b)
    least, most = a.dtype.limits
    return fold.const(constant, a.dtype) if least <= constant <= most else fold.const(constant)


def are_equal(a: Expr, b: Expr) -> bool:
    """True if ``a`` and ``b`` are equal for all values of the variables."""
    return constant_difference(a, b) == 0


def are_different(a: Expr, b: Expr) -> bool:
    """True if ``a`` and ``b`` differ for all values of the variables."""
    return constant_difference(a, b) not in (None, 0)


def is_one(expr: Expr) -> bool:
    """True for the constant 1."""
    return isinstance(expr, Const) and int(expr.value) == 1

"""Index maps: an index as an affine function of loop variables, and the bounds it may break."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Binary, Cast, Const, Expr, Region, Select, Unary, Var
from tileops.ir.program import INDEX32_LIMIT, const_value
from tileops.ir.walk import children, walk_expr
from tileops.passes.analyze_ranges import (
    MOST_FACTOR,
    Ranges,
    fits,
    is_exact,
    is_index_type,
    is_unlimited_product,
    widens,
)

_ZERO = Const(DType("int32"), 0)


@dataclass(frozen=True)
class Affine:
    """``sum(coefficient * variable) + rest``; ``rest`` holds none of the variables."""

    coefficients: tuple[tuple[int, int], ...]  # (variable id, factor), factor not 0, by id
    rest: Expr

    def coefficient(self, var: int) -> int:
        """The factor of the variable with id ``var``, 0 if it does not occur."""
        return dict(self.coefficients).get(var, 0)


def uses(expr: Expr, variables: Collection[int]) -> bool:
    """True if any of the variables occurs in the expression."""
    return any(isinstance(e, Var) and e.id in variables for e in walk_expr(expr))


def affine(expr: Expr, variables: Collection[int]) -> Affine | None:
    """``expr`` as an affine map of ``variables``; None for a product, ``//``, a load or such."""
    if not uses(expr, variables):
        return Affine((), expr)
    match expr:
        case Var(id=n):
            return Affine(((n, 1),), _ZERO)
        case Cast(a=a, dtype=dtype) if widens(dtype, a.dtype):
            return affine(a, variables)
        case Unary() | Binary() if not is_index_type(expr.dtype):
            return None  # it wraps
        case Unary(op="neg", a=a):
            return _scaled(affine(a, variables), -1)
        case Binary(op="add" | "sub" as op, a=a, b=b):
            right = affine(b, variables)
            return _sum(affine(a, variables), _scaled(right, -1) if op == "sub" else right)
        case Binary(op="mul", a=a, b=b):
            if (value := const_value(b)) is not None:
                return _scaled(affine(a, variables), value)
            if (value := const_value(a)) is not None:
                return _scaled(affine(b, variables), value)
    return None


def _sum(left: Affine | None, right: Affine | None) -> Affine | None:
    if left is None or right is None:
        return None
    found = {v for v, _ in (*left.coefficients, *right.coefficients)}
    sums = ((v, left.coefficient(v) + right.coefficient(v)) for v in sorted(found))
    return Affine(tuple((v, c) for v, c in sums if c), _exact("add", left.rest, right.rest))


def _scaled(form: Affine | None, factor: int) -> Affine | None:
    if form is None:
        return None
    scaled = tuple((v, c * factor) for v, c in form.coefficients) if factor else ()
    return Affine(scaled, _exact("mul", form.rest, fold.const(factor)))


def _exact(op: str, a: Expr, b: Expr) -> Expr:
    """``a op b`` of parts of an index: constants do not wrap either."""
    if isinstance(a, Const) and isinstance(b, Const):
        a, b = fold.cast(a, fold.INT64), fold.cast(b, fold.INT64)
        out = fold.binary(op, a, b)
        return fold.const(out.value) if isinstance(out, Const) else out
    return fold.binary(op, a, b)


# How far beyond int32 a sum may end so that, wrapped, it is still outside every tensor.
_MARGIN = 2**31 - INDEX32_LIMIT


def in_width(index: Expr, ranges: Ranges) -> Expr:
    """``index``, in int64 from its terms on where its own arithmetic could wrap into a tensor.

    A sum of int32 terms is left alone where wrapping gives a negative index, which is outside as
    the exact one is.
    """
    if not is_index_type(index.dtype) or not _can_wrap_inside(index, ranges):
        return index
    return _in_int64(index)


def _can_wrap_inside(index: Expr, ranges: Ranges) -> bool:
    if any(_is_unlimited(e, ranges) for e in _linear_parts(index)):
        return True
    if index.dtype == fold.INT64:
        return any(
            isinstance(e, Cast) and not fits(ranges.exact(e.a), e.a.dtype)
            for e in _linear_parts(index)
        )
    found, (least, most) = ranges.exact(index), index.dtype.limits
    if fits(found, index.dtype):
        return False
    lo, hi = found.lo, found.hi
    if not found.is_bounded or lo >= 0:
        return True
    if lo < least and (lo < least - _MARGIN or hi < most - _MARGIN):
        return True
    return hi > most + (1 << 31)


def _linear_parts(index: Expr) -> Iterator[Expr]:
    """The operations at the top of an index that are exact."""
    if is_exact(index):
        yield index
        for part in children(index):
            yield from _linear_parts(part)


def _is_unlimited(expr: Expr, ranges: Ranges) -> bool:
    is_product = isinstance(expr, Binary) and expr.op == "mul"
    return is_product and is_unlimited_product(*map(ranges.exact, children(expr)))


def _in_int64(index: Expr) -> Expr:
    match index if is_exact(index) else None:
        case Binary(op=op, a=a, b=b):
            return fold.binary(op, _in_int64(a), _in_int64(b))
        case Unary(op=op, a=a):
            return fold.unary(op, _in_int64(a))
        case Cast(a=a):
            return _in_int64(a)
        case _:
            return fold.cast(index, fold.INT64)


def needs_guard(index: Expr, extent: Expr, ranges: Ranges) -> tuple[bool, bool]:
    """Whether ``index`` may be below 0, and whether it may reach ``extent``."""
    return not ranges.starts_inside(index), not ranges.is_below(index, extent)


def region_guards(region: Region, ranges: Ranges) -> tuple[tuple[bool, bool], ...]:
    """For each dimension of a region: may it start below 0, may it end beyond its buffer."""
    out = []
    for start, extent, shape in zip(
        region.starts, region.extents, region.buffer.shape, strict=True
    ):
        lower = not ranges.starts_inside(start)
        whole = const_value(start) == 0 and extent == shape
        last = fold.sub(fold.add(start, extent), fold.const(1))
        single = const_value(extent) == 1
        fits = whole or ranges.is_below(start if single else last, shape)
        out.append((lower, not fits))
    return tuple(out)


def cheap_ceildiv(expr: Binary, ranges: Ranges) -> Expr | None:
    """``(a + (b - 1)) // b`` for ``ceildiv(a, b)``.

    None where that sum may wrap, or ``b`` may be below 1. A size ends so far below the end of its
    type that a factor can be added to it.
    """
    a, b = ranges.of(expr.a), ranges.of(expr.b)
    if b.lo < 1 or (a.hi == math.inf and b.hi > MOST_FACTOR):
        return None
    total = fold.add(expr.a, fold.sub(expr.b, fold.const(1, expr.b.dtype)))
    if isinstance(total, Binary) and total.op == "add" and ranges.wraps(total):
        return None
    return fold.binary("floordiv", total, expr.b)


# -- halves of an index, for elements that share a byte --------------------------------------------
def parity(expr: Expr, even: Collection[int] = ()) -> int | None:
    """0 for an even and 1 for an odd expression, None where neither is known.

    ``even`` are the ids of variables that are always even.
    """
    match expr:
        case Const(value=value):
            return int(value) & 1
        case Var(id=n):
            return 0 if n in even else None
        case Cast(a=a) if a.dtype.is_integer and expr.dtype.is_integer:
            return parity(a, even)
        case Unary(op="neg", a=a):
            return parity(a, even)
        case Select(a=a, b=b):
            left, right = parity(a, even), parity(b, even)
            return left if left == right else None
        case Binary():
            return _binary_parity(expr, even)
        case _:
            return None


def _binary_parity(expr: Binary, even: Collection[int]) -> int | None:
    a, b = parity(expr.a, even), parity(expr.b, even)
    if expr.op in ("add", "sub"):
        return None if a is None or b is None else a ^ b
    if expr.op == "mul":
        if a == 0 or b == 0:
            return 0
        return 1 if a == b == 1 else None
    if expr.op in ("min", "max"):
        return a if a == b else None
    if expr.op in ("floormod", "truncmod"):
        return a if b == 0 else None
    if expr.op == "shl":
        amount = const_value(expr.b)
        return 0 if amount is not None and amount > 0 else None
    return None


def half(expr: Expr, even: Collection[int] = ()) -> Expr:
    """``expr // 2``, rounded down; terms that are even are halved by themselves."""
    two = fold.const(2, expr.dtype)
    match expr:
        case Const(value=value):
            return fold.const(int(value) // 2, expr.dtype)
        case Binary(op="mul", a=a, b=Const(value=value)) if int(value) % 2 == 0:
            return fold.mul(a, fold.const(int(value) // 2, expr.dtype))
        case Binary(op="mul", a=Const(value=value), b=b) if int(value) % 2 == 0:
            return fold.mul(b, fold.const(int(value) // 2, expr.dtype))
        case Binary(op="add" | "sub" as op, a=a, b=b) if parity(b, even) == 0:
            return fold.binary(op, half(a, even), half(b, even))
        case Binary(op="add", a=a, b=b) if parity(a, even) == 0:
            return fold.add(half(a, even), half(b, even))
        case _:
            return fold.binary("floordiv", expr, two)

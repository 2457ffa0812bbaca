"""Owns index maps: an index as an affine function of loop variables, and bounds it may break."""

from __future__ import annotations

from collections.abc import Collection

from tileops.dtypes import DType
from tileops.frozen import frozen
from tileops.ir import fold
from tileops.ir.expr import Binary, Cast, Const, Expr, Region, Unary, Var
from tileops.ir.program import const_value
from tileops.ir.walk import walk_expr
from tileops.passes.analyze_ranges import Ranges, holds, is_index_type

_ZERO = Const(DType("int32"), 0)


@frozen
class Affine:
    """``sum(coefficient * variable) + rest``; ``rest`` holds none of the variables."""

    coefficients: tuple[tuple[int, int], ...]  # (variable id, factor), factor not 0, by id
    rest: Expr

    def coefficient(self, var: int) -> int:
        """The factor of the variable with id ``var``, 0 if it does not occur."""
        return dict(self.coefficients).get(var, 0)

    @property
    def variables(self) -> tuple[int, ...]:
        return tuple(v for v, _ in self.coefficients)

    def is_variable(self, var: int) -> bool:
        """True if the map is that variable alone, with nothing added."""
        return self.coefficients == ((var, 1),) and const_value(self.rest) == 0

    def single(self) -> int | None:
        """The variable of a map ``1 * v + rest``, or None."""
        if len(self.coefficients) == 1 and self.coefficients[0][1] == 1:
            return self.coefficients[0][0]
        return None


def uses(expr: Expr, variables: Collection[int]) -> bool:
    """True if any of the variables occurs in the expression."""
    return any(isinstance(e, Var) and e.id in variables for e in walk_expr(expr))


def affine(expr: Expr, variables: Collection[int]) -> Affine | None:
    """``expr`` as an affine map of ``variables``; None for a product, ``//``, a load or such."""
    parts = _affine(expr, variables)
    if parts is None:
        return None
    factors, rest = parts
    return Affine(tuple(sorted((v, c) for v, c in factors.items() if c)), rest)


def _affine(expr: Expr, variables: Collection[int]) -> tuple[dict[int, int], Expr] | None:
    if not uses(expr, variables):
        return {}, expr
    match expr:
        case Var(id=n):
            return {n: 1}, _ZERO
        case Cast(a=a, dtype=dtype) if (
            dtype.is_integer and a.dtype.is_integer and holds(dtype, a.dtype)
        ):
            return _affine(a, variables)
        case Unary() | Binary() if not is_index_type(expr.dtype):
            return None  # it wraps
        case Unary(op="neg", a=a):
            return _scaled(_affine(a, variables), -1)
        case Binary(op="add" | "sub" as op, a=a, b=b):
            right = _affine(b, variables)
            return _sum(_affine(a, variables), _scaled(right, -1) if op == "sub" else right)
        case Binary(op="mul", a=a, b=b):
            if (value := const_value(b)) is not None:
                return _scaled(_affine(a, variables), value)
            if (value := const_value(a)) is not None:
                return _scaled(_affine(b, variables), value)
            return None
        case _:
            return None


def _sum(
    left: tuple[dict[int, int], Expr] | None, right: tuple[dict[int, int], Expr] | None
) -> tuple[dict[int, int], Expr] | None:
    if left is None or right is None:
        return None
    factors = dict(left[0])
    for v, c in right[0].items():
        factors[v] = factors.get(v, 0) + c
    return factors, fold.add(left[1], right[1])


def _scaled(
    parts: tuple[dict[int, int], Expr] | None, factor: int
) -> tuple[dict[int, int], Expr] | None:
    if parts is None:
        return None
    factors, rest = parts
    return {v: c * factor for v, c in factors.items()}, fold.mul(
        rest, fold.const(factor, rest.dtype)
    )


def needs_guard(index: Expr, extent: Expr, ranges: Ranges) -> tuple[bool, bool]:
    """Whether ``index`` may be below 0, and whether it may reach ``extent``."""
    return not ranges.is_non_negative(index), not ranges.is_below(index, extent)


def region_guards(region: Region, ranges: Ranges) -> tuple[tuple[bool, bool], ...]:
    """For each dimension of a region: may it start below 0, may it end beyond its buffer."""
    out = []
    for start, extent, shape in zip(
        region.starts, region.extents, region.buffer.shape, strict=True
    ):
        lower = not ranges.is_non_negative(start)
        whole = const_value(start) == 0 and extent == shape
        last = fold.sub(fold.add(start, extent), fold.const(1))
        single = const_value(extent) == 1
        fits = whole or ranges.is_below(start if single else last, shape)
        out.append((lower, not fits))
    return tuple(out)

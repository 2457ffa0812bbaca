"""Owns the analysis of a tensor's layout: the box that its places fill, one element each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from tileops.errors import UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Binary, Expr, Unary, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Placement
from tileops.ir.walk import walk_expr

# A map is tried out, point by point, where it has no period that makes it smaller.
_MOST_POINTS = 1 << 18
_MOST_PERIODS = 16


def measure_placement(placement: Placement) -> tuple[Expr, ...]:
    """The extents of the box in whose row-major order the elements lie, one an index.

    UnsupportedConstructError where two elements share a place or a place has no element, and where
    that cannot be told: the extent of a dimension that is divided must be a constant.
    """
    return _Measure(placement).extents()


def placed(placement: Placement, indices: Iterable[Expr]) -> tuple[Expr, ...]:
    """The place of the element at ``indices``, in 64 bits where one of these is."""
    given = tuple(indices)
    wide = any(i.dtype == fold.INT64 for i in given)
    dtype = fold.INT64 if wide else fold.INT32
    known = {v.id: fold.cast(i, dtype) for v, i in zip(placement.vars, given, strict=True)}
    return tuple(fold.substitute(index, known) for index in placement.indices)


class _Measure:
    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._sizes = {v.id: e for v, e in zip(placement.vars, placement.buffer.shape, strict=True)}
        self._used = [_variables(i) for i in placement.indices]

    def extents(self) -> tuple[Expr, ...]:
        found: dict[int, Expr] = {}
        for variables, outputs in self._groups():
            found.update(self._group(variables, outputs))
        for number, used in enumerate(self._used):
            if not used:
                if const_value(self._placement.indices[number]) != 0:
                    raise self._refused("a constant index other than 0 leaves places empty")
                found[number] = fold.const(1)
        return tuple(found[n] for n in range(len(self._used)))

    def _groups(self) -> list[tuple[list[int], list[int]]]:
        """Variables that meet in an index, with the indices that they have to themselves."""
        groups = [({v.id}, set[int]()) for v in self._placement.vars]
        for number, used in enumerate(self._used):
            met = [g for g in groups if g[0] & used]
            if met:
                groups = [g for g in groups if not g[0] & used]
                variables = set[int]().union(*(g[0] for g in met))
                groups.append((variables, {number}.union(*(g[1] for g in met))))
        return [(sorted(variables), sorted(outputs)) for variables, outputs in groups]

    def _group(self, variables: list[int], outputs: list[int]) -> dict[int, Expr]:
        """The extents of the indices ``outputs``, which nothing but ``variables`` moves."""
        exprs = [self._placement.indices[n] for n in outputs]
        if len(variables) == 1 and len(exprs) == 1 and isinstance(exprs[0], Var):
            return {outputs[0]: self._sizes[variables[0]]}
        sizes: dict[int, int] = {}
        for variable in variables:
            size = const_value(self._sizes[variable])
            if size is None:
                raise self._refused("the extent of a dimension that it divides is no constant")
            sizes[variable] = size
        if not exprs:
            if any(size != 1 for size in sizes.values()):
                raise self._refused("elements share a place")
            return {}
        return dict(zip(outputs, map(fold.const, self._box(exprs, sizes)), strict=True))

    def _box(self, exprs: list[Expr], sizes: dict[int, int]) -> list[int]:
        """The extents that the values of ``exprs`` fill."""
        found = _turned(exprs, sizes) or _tried(exprs, sizes)
        if isinstance(found, str):
            raise self._refused(found)
        return found

    def _refused(self, why: str) -> UnsupportedConstructError:
        name = self._placement.buffer.name
        return UnsupportedConstructError(
            f"T.annotate_layout of the tensor `{name}` with a layout that does not give each "
            f"element a place of its own and each place an element: {why}",
            location=self._placement.loc,
        )


def _variables(expr: Expr) -> set[int]:
    return {e.id for e in walk_expr(expr) if isinstance(e, Var)}


def _turned(exprs: list[Expr], sizes: dict[int, int]) -> list[int] | None:
    """The extents from one period of each variable; None where that does not tell them."""
    small, turns = dict(sizes), {}
    for variable, size in sizes.items():
        period = _period(exprs, variable)
        if period is not None and period < size and size % period == 0:
            small[variable], turns[variable] = period, size // period
    box = _tried(exprs, small) if turns else ""
    if isinstance(box, str):
        return None
    for variable, count in turns.items():
        # Each turn of the variable must be a translate that adjoins the one before.
        moved = [_shift(e, variable, small[variable]) for e in exprs]
        along = [n for n, step in enumerate(moved) if step]
        if len(along) != 1 or moved[along[0]] != box[along[0]]:
            return None
        box[along[0]] *= count
    return box


def _tried(exprs: list[Expr], sizes: dict[int, int]) -> list[int] | str:
    """The extents that the values of ``exprs`` fill, or why they fill no box."""
    total = math.prod(sizes.values())
    if total > _MOST_POINTS:
        return f"{total} elements are too many to be tried one by one"
    seen = set()
    for point in itertools.product(*map(range, sizes.values())):
        known: dict[int, Expr] = {v: fold.const(x) for v, x in zip(sizes, point, strict=True)}
        seen.add(tuple(const_value(fold.substitute(e, known)) or 0 for e in exprs))
    if len(seen) < total:
        return "elements share a place"
    axes = list(zip(*seen, strict=True))
    if any(min(axis) < 0 for axis in axes):
        return "an index is negative"
    box = [max(axis) + 1 for axis in axes]
    if math.prod(box) != total:
        return f"{total} elements lie in {' x '.join(map(str, box))} places"
    return box


def _period(exprs: list[Expr], variable: int) -> int | None:
    """A distance by which ``variable`` moves each of ``exprs`` the same everywhere, or None."""
    divisors = [
        const_value(e.b)
        for expr in exprs
        for e in walk_expr(expr)
        if isinstance(e, Binary) and e.op in ("floordiv", "floormod", "ceildiv")
    ]
    step = math.lcm(*(d for d in divisors if d)) or 1
    for turns in range(_MOST_PERIODS):
        if all(_shift(e, variable, step << turns) is not None for e in exprs):
            return step << turns
    return None


def _shift(expr: Expr, variable: int, step: int) -> int | None:
    """By how much ``expr`` grows where ``variable`` grows by ``step``; None where that varies."""
    if variable not in _variables(expr):
        return 0
    match expr:
        case Var():
            return step
        case Unary(op="neg", a=a):
            moved = _shift(a, variable, step)
            return None if moved is None else -moved
        case Binary(op=op, a=a, b=b):
            return _shift_of(op, b, _shift(a, variable, step), _shift(b, variable, step), a)
        case _:
            return None


def _shift_of(op: str, b: Expr, left: int | None, right: int | None, a: Expr) -> int | None:
    if left is None or right is None:
        return None
    factor, other = const_value(b), const_value(a)
    match op:
        case "add":
            return left + right
        case "sub":
            return left - right
        case "mul" if factor is not None:
            return left * factor
        case "mul" if other is not None:
            return right * other
        case "floordiv" | "ceildiv" if factor and left % factor == 0:
            return left // factor
        case "floormod" if factor and left % factor == 0:
            return 0
        case _:
            return None

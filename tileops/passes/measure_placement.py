"""The box that the places of a tensor with a layout fill, one element each."""

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


class _Unfit(Exception):
    """Why the places of a layout do not fill a box, one element each."""


def measure_placement(placement: Placement) -> tuple[Expr, ...]:
    """The extents of the box in whose row-major order the elements are stored, one an index.

    UnsupportedConstructError where two elements share a place or a place has no element, and where
    that cannot be told: the extent of a dimension that is divided must be a constant.
    """
    try:
        return _extents(placement)
    except _Unfit as why:
        raise UnsupportedConstructError(
            f"T.annotate_layout of the tensor `{placement.buffer.name}` with a layout that does "
            f"not give each element a place of its own and each place an element: {why}",
            location=placement.loc,
        ) from None


def placed(placement: Placement, indices: Iterable[Expr]) -> tuple[Expr, ...]:
    """The place of the element at ``indices``, in 64 bits where one of these is."""
    given = tuple(indices)
    wide = any(i.dtype == fold.INT64 for i in given)
    dtype = fold.INT64 if wide else fold.INT32
    known = {v.id: fold.cast(i, dtype) for v, i in zip(placement.vars, given, strict=True)}
    return tuple(fold.substitute(index, known) for index in placement.indices)


def _extents(placement: Placement) -> tuple[Expr, ...]:
    sizes = {v.id: e for v, e in zip(placement.vars, placement.buffer.shape, strict=True)}
    used = [_variables(index) for index in placement.indices]
    found: dict[int, Expr] = {}
    for variables in _groups(sizes, used):
        outputs = [n for n, others in enumerate(used) if others & variables]
        exprs = [placement.indices[n] for n in outputs]
        if len(variables) == 1 and len(exprs) == 1 and isinstance(exprs[0], Var):
            found[outputs[0]] = sizes[exprs[0].id]
            continue
        counts: dict[int, int] = {}
        for variable in sorted(variables):
            count = const_value(sizes[variable])
            if count is None:
                raise _Unfit("the extent of a dimension that it divides is not a constant")
            counts[variable] = count
        if exprs:
            box = _turned(exprs, counts) or _tried(exprs, counts)
            found |= zip(outputs, map(fold.const, box), strict=True)
        elif any(count != 1 for count in counts.values()):
            raise _Unfit("elements share a place")
    for number, index in enumerate(placement.indices):
        if not used[number]:
            if const_value(index) != 0:
                raise _Unfit("a constant index other than 0 leaves places empty")
            found[number] = fold.const(1)
    return tuple(found[n] for n in range(len(used)))


def _groups(variables: Iterable[int], used: Iterable[set[int]]) -> list[set[int]]:
    """Variables that meet in an index, directly or through others."""
    groups = [{v} for v in variables]
    for met in used:
        joined = [g for g in groups if g & met]
        if joined:
            groups = [g for g in groups if not g & met]
            groups.append(set[int]().union(*joined))
    return groups


def _variables(expr: Expr) -> set[int]:
    return {e.id for e in walk_expr(expr) if isinstance(e, Var)}


def _turned(exprs: list[Expr], sizes: dict[int, int]) -> list[int] | None:
    """The extents from one period of each variable; None where that does not tell them."""
    small, turns = dict(sizes), {}
    for variable, size in sizes.items():
        period = _period(exprs, variable)
        if period is not None and period < size and size % period == 0:
            small[variable], turns[variable] = period, size // period
    try:
        box = _tried(exprs, small) if turns else None
    except _Unfit:
        box = None
    if box is None:
        return None
    for variable, count in turns.items():
        # Each turn of the variable must be a translate that adjoins the one before.
        moved = [_shift(e, variable, small[variable]) for e in exprs]
        along = [n for n, step in enumerate(moved) if step]
        if len(along) != 1 or moved[along[0]] != box[along[0]]:
            return None
        box[along[0]] *= count
    return box


def _tried(exprs: list[Expr], sizes: dict[int, int]) -> list[int]:
    """The extents that the values of ``exprs`` fill, point by point."""
    total = math.prod(sizes.values())
    if total > _MOST_POINTS:
        raise _Unfit(f"{total} elements are too many to be tried one by one")
    seen = set()
    for point in itertools.product(*map(range, sizes.values())):
        known: dict[int, Expr] = {v: fold.const(x) for v, x in zip(sizes, point, strict=True)}
        seen.add(tuple(const_value(fold.substitute(e, known)) or 0 for e in exprs))
    if len(seen) < total:
        raise _Unfit("elements share a place")
    axes = list(zip(*seen, strict=True))
    if any(min(axis) < 0 for axis in axes):
        raise _Unfit("an index is negative")
    box = [max(axis) + 1 for axis in axes]
    if math.prod(box) != total:
        raise _Unfit(f"{total} elements are in {' x '.join(map(str, box))} places")
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
            left, right = _shift(a, variable, step), _shift(b, variable, step)
            return None if left is None or right is None else _combined(op, a, b, left, right)
        case _:
            return None


def _combined(op: str, a: Expr, b: Expr, left: int, right: int) -> int | None:
    """By how much ``a op b`` grows where its sides grow by ``left`` and ``right``."""
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

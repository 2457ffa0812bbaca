"""Insertion of run-time checks: indices of on-chip buffers, and NaNs among results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tileops.dtypes import INT64
from tileops.ir import fold, walk
from tileops.ir import stmt as ir
from tileops.ir.expr import Binary, Buffer, Const, Expr, Load, Region, Select, Var
from tileops.ir.program import Program
from tileops.pass_configs import CHECKS
from tileops.passes.analyze_index import needs_guard
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.context import Context

_TRUE, _ZERO = fold.const(True), fold.const(0)


def insert_checks(program: Program, context: Context) -> Program:
    """``program`` with the checks that its options ask for; itself where they ask for none.

    Afterwards a ``Check`` of its indices comes before each access to an on-chip buffer. It is
    evaluated where the access itself would be: under the conditions of its choice and before each
    turn of its loop. An index outside a global tensor is legal (it reads 0, or writes nothing) and
    is not checked.
    """
    asked = dict(program.options).get(CHECKS, "").split(",")
    bounds, nans = "bounds" in asked, "nans" in asked
    if not (bounds or nans):
        return program
    inserter = _Inserter(bounds, nans, walk.fresh_ids(program))
    return walk.map_launches(
        program, lambda launch: inserter.body(launch.body, context.ranges(program, launch), ())
    )


class _Inserter:
    """Rewrites statement lists; the variables that it makes get ``ids``."""

    def __init__(self, bounds: bool, nans: bool, ids: Iterator[int]) -> None:
        self._bounds, self._nans = bounds, nans
        self._ids = ids

    def body(self, body: ir.Body, ranges: Ranges, turn: tuple[ir.Stmt, ...]) -> ir.Body:
        """``turn`` are the checks of the innermost while loop's condition, due before each turn."""
        out: list[ir.Stmt] = []
        for stmt in body:
            before = turn if isinstance(stmt, ir.Continue) else tuple(self._before(stmt, ranges))
            again = turn if isinstance(stmt, ir.If) else ()
            if isinstance(stmt, ir.While):
                again = before
            inner = tuple(self.body(b, ranges.inside(stmt), again) for b in walk.sub_bodies(stmt))
            if isinstance(stmt, ir.While):
                inner = ((*inner[0], *before),)
            out += [*before, walk.with_bodies(stmt, inner), *self._after(stmt)]
            ranges = ranges.after(stmt)
        return tuple(out)

    def _before(self, stmt: ir.Stmt, ranges: Ranges) -> Iterator[ir.Check]:
        if self._bounds and not isinstance(stmt, ir.Assume):
            for check in dict.fromkeys(_index_checks(stmt)):
                if needs_guard(check.value, check.bound, ranges) != (False, False):
                    yield dataclasses.replace(check, **stmt.provenance)
        match stmt:
            case ir.Store(buffer=buffer, indices=indices, value=value) if self._nans:
                yield from _nan_checks(value, buffer, indices, stmt)
            case ir.Alloc(buffer=buffer, init=Expr() as value) if self._nans:
                yield from _nan_checks(value, buffer, (_ZERO,), stmt)

    def _after(self, stmt: ir.Stmt) -> Iterator[ir.Stmt]:
        for name in stmt.writes() if self._nans else ():
            region = getattr(stmt, name)
            if isinstance(region, Region) and region.static_extents() is not None:
                at = range(len(region.extents))
                vars_ = tuple(Var(fold.INT32, next(self._ids), f"at{d}") for d in at)
                indices = fold.region_indices(region, at, vars_)
                value = Load(region.dtype, region.buffer, indices)
                checks = tuple(_nan_checks(value, region.buffer, indices, stmt))
                if checks:
                    yield ir.Parallel(vars_, region.extents, checks, **stmt.provenance)


# -- indices ---------------------------------------------------------------------------------------
def _index_checks(stmt: ir.Stmt) -> Iterator[ir.Check]:
    for expr in walk.exprs(stmt):
        yield from _of_expr(expr, _TRUE)
    if isinstance(stmt, ir.Store):
        yield from _of_access(stmt.buffer, stmt.indices, _TRUE)
    for region in walk.regions(stmt):
        yield from _of_access(region.buffer, region.starts, _TRUE)
        sides = list(zip(region.starts, region.extents, strict=True))
        if all(start.dtype == extent.dtype for start, extent in sides):
            last = tuple(fold.sub(fold.add(s, e), fold.const(1, s.dtype)) for s, e in sides)
            yield from _of_access(region.buffer, last, _TRUE)


def _of_expr(expr: Expr, when: Expr) -> Iterator[ir.Check]:
    """The checks of the loads in ``expr``, which is evaluated where ``when`` holds."""
    match expr:
        case Select(cond=cond, a=a, b=b):
            yield from _of_expr(cond, when)
            yield from _of_expr(a, _both(when, cond))
            yield from _of_expr(b, _both(when, fold.unary("not", cond)))
        case Binary(op="land", a=a, b=b):
            yield from _of_expr(a, when)
            yield from _of_expr(b, _both(when, a))
        case Binary(op="lor", a=a, b=b):
            yield from _of_expr(a, when)
            yield from _of_expr(b, _both(when, fold.unary("not", a)))
        case _:
            for child in walk.children(expr):
                yield from _of_expr(child, when)
            if isinstance(expr, Load):
                yield from _of_access(expr.buffer, expr.indices, when)


def _of_access(buffer: Buffer, indices: tuple[Expr, ...], when: Expr) -> Iterator[ir.Check]:
    if not buffer.is_on_chip:
        return
    for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
        what = f"buffer '{buffer.name}'"
        if buffer.ndim > 1:
            what += f", dimension {dim}"
        yield ir.Check("index", index, extent, when, what)


def _both(a: Expr, b: Expr) -> Expr:
    return b if a == _TRUE else fold.binary("land", a, b)


# -- NaNs ------------------------------------------------------------------------------------------
def _nan_checks(
    value: Expr, buffer: Buffer, indices: tuple[Expr, ...], stmt: ir.Stmt
) -> Iterator[ir.Check]:
    """The check of what ``stmt`` writes to an element of ``buffer``, if that may be a NaN."""
    if value.dtype.is_float and not isinstance(value, Const):
        place: Expr = fold.const(0, INT64)
        for index, extent in zip(indices, buffer.shape, strict=True):
            place = fold.add(fold.mul(place, fold.cast(extent, INT64)), fold.cast(index, INT64))
        what = f"buffer '{buffer.name}': a NaN at element"
        yield ir.Check("nan", value, place, _TRUE, what, **stmt.provenance)

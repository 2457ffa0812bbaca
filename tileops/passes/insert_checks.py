"""Insertion of run-time checks: indices of on-chip buffers, and NaNs among results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Const, Expr, Load, Region, Select, Var
from tileops.ir.program import Program
from tileops.ir.stmt import (
    Alloc,
    Assert,
    Assume,
    Bind,
    Body,
    Check,
    Continue,
    For,
    If,
    Launch,
    Parallel,
    Stmt,
    Store,
    While,
)
from tileops.ir.walk import (
    children,
    exprs,
    fresh_ids,
    map_launches,
    regions,
    sub_bodies,
    with_bodies,
    written_buffers,
)
from tileops.pass_configs import CHECKS
from tileops.passes.analyze_index import needs_guard
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.context import Context

_TRUE = fold.const(True)


def insert_checks(program: Program, context: Context) -> Program:
    """``program`` with the checks that its options ask for; itself where they ask for none.

    Afterwards a ``Check`` of its indices stands before each access to an on-chip buffer. It is
    evaluated where the access itself would be: under the conditions of its choice and before each
    turn of its loop. An index outside a global tensor is legal (it reads 0, or writes nothing) and
    is not checked.
    """
    asked = dict(program.options).get(CHECKS, "").split(",")
    bounds, nans = "bounds" in asked, "nans" in asked
    if not (bounds or nans):
        return program
    inserter = _Inserter(bounds, nans, fresh_ids(program))
    return map_launches(
        program, lambda launch: inserter.body(launch.body, context.ranges(program, launch), ())
    )


class _Inserter:
    """Rewrites statement lists; the variables that it makes get ``ids``."""

    def __init__(self, bounds: bool, nans: bool, ids: Iterator[int]) -> None:
        self._bounds, self._nans = bounds, nans
        self._ids = ids

    def body(self, body: Body, ranges: Ranges, turn: tuple[Stmt, ...]) -> Body:
        """``turn`` are the checks of the innermost while loop's condition, due before each turn."""
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Continue):
                out += [*turn, stmt]
                continue
            before = self._before(stmt, ranges)
            out += [*before, self._inside(stmt, ranges, turn, tuple(before)), *self._after(stmt)]
            if isinstance(stmt, Bind) and stmt.var.dtype.is_integer:
                ranges = ranges.with_value(stmt.var, stmt.value)
        return tuple(out)

    def _inside(
        self, stmt: Stmt, ranges: Ranges, turn: tuple[Stmt, ...], before: tuple[Stmt, ...]
    ) -> Stmt:
        """``stmt`` with checks in its nested statements."""
        match stmt:
            case While(body=body):
                again = (*self.body(body, ranges, before), *before)
                return dataclasses.replace(stmt, body=again)
            case For(body=body):
                return with_bodies(stmt, (self.body(body, ranges.inside_loop(stmt), ()),))
            case Parallel(body=body):
                return with_bodies(stmt, (self.body(body, ranges.inside_parallel(stmt), ()),))
            case If():
                inner = tuple(self.body(b, ranges, turn) for b in sub_bodies(stmt))
                return with_bodies(stmt, inner)
            case _:
                return stmt

    def _before(self, stmt: Stmt, ranges: Ranges) -> list[Stmt]:
        found: list[Stmt] = []
        if self._bounds and not isinstance(stmt, Assume):
            checks = [c for c in dict.fromkeys(_index_checks(stmt)) if _is_needed(c, ranges)]
            found += [dataclasses.replace(c, **stmt.provenance) for c in checks]
        if self._nans and isinstance(stmt, (Store, Alloc)):
            found += _stored_nan(stmt)
        return found

    def _after(self, stmt: Stmt) -> list[Stmt]:
        if not self._nans or isinstance(stmt, (If, For, While, Parallel, Store, Alloc, Assert)):
            return []
        written = {b.id for b in written_buffers(stmt) if b.dtype.is_float}
        return [
            self._region_nan(r, stmt)
            for r in _written_regions(stmt)
            if r.buffer.id in written and r.static_extents() is not None
        ]

    def _region_nan(self, region: Region, stmt: Stmt) -> Stmt:
        vars_ = tuple(self._var(d) for d in range(len(region.extents)))
        at = fold.region_indices(region, range(len(vars_)), vars_)
        place: Expr = fold.const(0, fold.INT64)
        for index, extent in zip(at, region.buffer.shape, strict=True):
            place = fold.add(fold.mul(place, _wide(extent)), _wide(index))
        check = _nan_check(Load(region.dtype, region.buffer, at), place, region.buffer, stmt)
        return Parallel(vars_, region.extents, (check,), **stmt.provenance)

    def _var(self, dim: int) -> Var:
        return Var(fold.INT32, next(self._ids), f"at{dim}")


# -- indices ---------------------------------------------------------------------------------------
def _index_checks(stmt: Stmt) -> Iterator[Check]:
    for expr in _evaluated(stmt):
        yield from _of_expr(expr, _TRUE)
    if isinstance(stmt, Store):
        yield from _of_access(stmt.buffer, stmt.indices, _TRUE)
    for region in regions(stmt):
        if region.buffer.is_on_chip:
            yield from _of_access(region.buffer, region.starts, _TRUE)
            last = [
                fold.sub(fold.add(s, e), fold.const(1, s.dtype))
                for s, e in zip(region.starts, region.extents, strict=True)
                if s.dtype == e.dtype
            ]
            if len(last) == len(region.starts):
                yield from _of_access(region.buffer, tuple(last), _TRUE)


def _evaluated(stmt: Stmt) -> Iterable[Expr]:
    # The body of a loop or launch has statements of its own; a launch's grid is the host's.
    return () if isinstance(stmt, Launch) else exprs(stmt)


def _of_expr(expr: Expr, when: Expr) -> Iterator[Check]:
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
            for child in children(expr):
                yield from _of_expr(child, when)
            if isinstance(expr, Load):
                yield from _of_access(expr.buffer, expr.indices, when)


def _of_access(buffer: Buffer, indices: tuple[Expr, ...], when: Expr) -> Iterator[Check]:
    if not buffer.is_on_chip:
        return
    for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
        what = f"buffer '{buffer.name}'"
        if buffer.ndim > 1:
            what += f", dimension {dim}"
        yield Check("index", index, extent, when, what)


def _is_needed(check: Check, ranges: Ranges) -> bool:
    return needs_guard(check.value, check.bound, ranges) != (False, False)


def _both(a: Expr, b: Expr) -> Expr:
    return b if a == _TRUE else fold.binary("land", a, b)


# -- NaNs ------------------------------------------------------------------------------------------
def _stored_nan(stmt: Store | Alloc) -> list[Stmt]:
    value = stmt.value if isinstance(stmt, Store) else stmt.init
    if value is None or not value.dtype.is_float or isinstance(value, Const):
        return []
    place: Expr = fold.const(0, fold.INT64)
    if isinstance(stmt, Store):
        for index, extent in zip(stmt.indices, stmt.buffer.shape, strict=True):
            place = fold.add(fold.mul(place, _wide(extent)), _wide(index))
    return [_nan_check(value, place, stmt.buffer, stmt)]


def _nan_check(value: Expr, place: Expr, buffer: Buffer, stmt: Stmt) -> Check:
    what = f"buffer '{buffer.name}': a NaN at element"
    return Check("nan", value, place, _TRUE, what, **stmt.provenance)


def _wide(expr: Expr) -> Expr:
    return fold.cast(expr, fold.INT64)


def _written_regions(stmt: Stmt) -> Iterator[Region]:
    for name in ("dst", "c"):
        found = getattr(stmt, name, None)
        if isinstance(found, Region):
            yield found

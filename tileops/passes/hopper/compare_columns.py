"""Masks that compare a column with a number of its row, whatever the program compares.

``row0 + i >= k * 128 + j`` becomes ``j <= row0 + i - k * 128``. A thread then has one number for
each of its rows and one comparison for each element: else compilers compute both sides for every
element, and keep the bits of a mask across loops.
"""

from __future__ import annotations

from tileops.ir import fold
from tileops.ir.expr import Binary, Expr, Var
from tileops.ir.stmt import Body, Parallel, Stmt
from tileops.ir.walk import map_children, map_stmt_exprs, sub_bodies, walk_expr, with_bodies
from tileops.passes.analyze_index import affine
from tileops.passes.analyze_ranges import Ranges

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def compare_columns(math: Body, ranges: Ranges) -> Body:
    """The math role with such conditions in all nests of two dimensions."""
    out: list[Stmt] = []
    for stmt in math:
        if isinstance(stmt, Parallel):
            out.append(_nest(stmt, ranges))
            continue
        inside = ranges.inside(stmt) if stmt.BODIES else ranges
        bodies = tuple(compare_columns(body, inside) for body in sub_bodies(stmt))
        out.append(with_bodies(stmt, bodies))
    return tuple(out)


def _nest(nest: Parallel, ranges: Ranges) -> Parallel:
    flat = nest.flattened()
    if len(flat.vars) != 2:
        return nest
    known = ranges
    for var, extent in zip(flat.vars, flat.extents, strict=True):
        known = known.with_span(var, fold.const(0), extent)
    return with_bodies(flat, (_body(flat.body, flat.vars[1], known),))


def _body(body: Body, column: Var, known: Ranges) -> Body:
    out = []
    for stmt in body:
        stmt = map_stmt_exprs(stmt, lambda e: _compared(e, column, known))
        bodies = tuple(_body(inner, column, known) for inner in sub_bodies(stmt))
        out.append(with_bodies(stmt, bodies))
    return tuple(out)


def _compared(expr: Expr, column: Var, known: Ranges) -> Expr:
    expr = map_children(expr, lambda e: _compared(e, column, known))
    if not (isinstance(expr, Binary) and expr.op in _MIRRORED and expr.a.dtype == "int32"):
        return expr
    if not any(isinstance(e, Var) and e.id == column.id for e in walk_expr(expr)):
        return expr
    parts = affine(fold.sub(expr.a, expr.b), {column.id})
    if parts is None or abs(parts.coefficient(column.id)) != 1:
        return expr
    if parts.coefficient(column.id) > 0:
        op, bound = expr.op, fold.sub(fold.const(0), parts.rest)
    else:
        op, bound = _MIRRORED[expr.op], parts.rest
    span = known.of(bound)
    if span.lo <= -(2**31) or span.hi >= 2**31 - 1:
        return expr
    return fold.binary(op, column, bound)

"""Owns the hoisting of arrays: those that each point of an elementwise nest has for itself.

An array allocated inside T.Parallel becomes a tile in front of the nest, with one dimension more
for each loop variable. Every point still sees its own elements alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Alloc, Atomic, Body, Parallel, Stmt, Store, View
from tileops.ir.walk import (
    map_children,
    map_launches,
    map_stmt_exprs,
    sub_bodies,
    walk,
    with_bodies,
)
from tileops.passes.context import Context

_ONE = fold.const(1)


def hoist_arrays(program: Program, context: Context) -> Program:
    """``program`` with no array allocated in a nest of constant extents.

    Arrays that have a view stay where they are.
    """
    return map_launches(program, lambda launch: _hoisted(launch.body))


def _hoisted(body: Body) -> Body:
    out: list[Stmt] = []
    changed = False
    for stmt in body:
        if isinstance(stmt, Parallel):
            new = _of_nest(stmt)
        else:
            inner = sub_bodies(stmt)
            made = tuple(map(_hoisted, inner))
            same = all(a is b for a, b in zip(inner, made, strict=True))
            new = [stmt] if same else [with_bodies(stmt, made)]
        changed |= len(new) != 1 or new[0] is not stmt
        out += new
    return tuple(out) if changed else body


def _of_nest(nest: Parallel) -> list[Stmt]:
    vars_, extents, inner = nest.vars, nest.extents, nest.body
    while len(inner) == 1 and isinstance(inner[0], Parallel):
        vars_, extents, inner = vars_ + inner[0].vars, extents + inner[0].extents, inner[0].body
    if any(const_value(e) is None for e in extents):
        return [nest]
    viewed = {s.source.id for s in walk(inner) if isinstance(s, View)}
    moved = {
        s.buffer.id: dataclasses.replace(s.buffer, shape=(*extents, *s.buffer.shape))
        for s in walk(inner)
        if isinstance(s, Alloc) and s.buffer.id not in viewed and _is_array(s.buffer)
    }
    if not moved:
        return [nest]
    allocs = [Alloc(b, **nest.provenance) for b in moved.values()]
    body = _rewritten(inner, moved, vars_)
    return [*allocs, Parallel(vars_, extents, body, **nest.provenance)]


def _is_array(buffer: Buffer) -> bool:
    return any(const_value(e) != 1 for e in buffer.shape)


def _rewritten(body: Body, moved: Mapping[int, Buffer], vars_: tuple[Var, ...]) -> Body:
    def element(expr: Expr) -> Expr:
        expr = map_children(expr, element)
        if isinstance(expr, Load) and expr.buffer.id in moved:
            return Load(expr.dtype, moved[expr.buffer.id], (*vars_, *expr.indices))
        return expr

    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Alloc) and stmt.buffer.id in moved:
            continue
        new = map_stmt_exprs(stmt, element)
        if inner := sub_bodies(new):
            new = with_bodies(new, tuple(_rewritten(b, moved, vars_) for b in inner))
        if isinstance(new, Store) and new.buffer.id in moved:
            place = (*vars_, *new.indices)
            new = dataclasses.replace(new, buffer=moved[new.buffer.id], indices=place)
        elif isinstance(new, Atomic) and new.dst.buffer.id in moved:
            ones = (_ONE,) * len(vars_)
            dst = new.dst
            new = dataclasses.replace(
                new,
                dst=Region(moved[dst.buffer.id], (*vars_, *dst.starts), (*ones, *dst.extents)),
            )
        out.append(new)
    return tuple(out)

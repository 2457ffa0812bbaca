"""Hoisting of arrays: those that each point of an elementwise nest has for itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tileops.ir.expr import Buffer, Expr
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Alloc, Parallel, Stmt, View
from tileops.ir.walk import map_accesses, map_bodies, map_launches, replace_stmts, walk
from tileops.passes.context import Context


def hoist_arrays(program: Program, context: Context) -> Program:
    """``program`` with no array allocated in a nest of constant extents.

    An array allocated inside T.Parallel becomes a tile in front of the nest, with one dimension
    more for each loop variable. Every point still sees its own elements alone. Arrays that have a
    view stay where they are.
    """
    return map_launches(program, lambda launch: replace_stmts(launch.body, _hoisted))


def _hoisted(stmt: Stmt) -> Iterable[Stmt] | None:
    if not isinstance(stmt, Parallel):
        return None
    nest = stmt.flattened()
    if any(const_value(e) is None for e in nest.extents):
        return (stmt,)
    viewed = {s.source.id for s in walk(nest.body) if isinstance(s, View)}
    moved = {
        s.buffer.id: dataclasses.replace(s.buffer, shape=(*nest.extents, *s.buffer.shape))
        for s in walk(nest.body)
        if isinstance(s, Alloc)
        and s.buffer.id not in viewed
        and any(const_value(e) != 1 for e in s.buffer.shape)
    }
    if not moved:
        return (stmt,)

    def element(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        if buffer.id not in moved:
            return buffer, indices
        return moved[buffer.id], (*nest.vars, *indices)

    def rewritten(inner: Stmt) -> tuple[Stmt, ...]:
        if isinstance(inner, Alloc) and inner.buffer.id in moved:
            return ()
        new = map_accesses(inner, element)
        return (map_bodies(new, lambda body: replace_stmts(body, rewritten)),)

    allocs = [Alloc(b, **stmt.provenance) for b in moved.values()]
    return [*allocs, dataclasses.replace(nest, body=replace_stmts(nest.body, rewritten))]

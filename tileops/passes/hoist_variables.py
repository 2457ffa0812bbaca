"""Hoisting of variables: those without an initial value, out of loops."""

from __future__ import annotations

from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, For, Parallel, Stmt, While
from tileops.ir.walk import map_bodies, map_launches, replace_stmts
from tileops.passes.context import Context


def hoist_variables(program: Program, context: Context) -> Program:
    """``program`` with no variable without a value allocated in a loop.

    Such a variable is 0 once, where a launch or a point of a nest begins, and keeps its value from
    one iteration to the next. Afterwards it is allocated in front of the outermost loop around it.
    One with an initial value is stored to at each turn and stays.
    """
    return map_launches(program, lambda launch: replace_stmts(launch.body, _hoisted))


def _hoisted(stmt: Stmt) -> tuple[Stmt, ...] | None:
    """A statement in no loop, or in none but a nest, whose points have a variable each."""
    if not isinstance(stmt, (For, While)):
        return None
    found: list[Stmt] = []

    def taken(inner: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(inner, Alloc) and inner.buffer.scope == "var" and inner.init is None:
            found.append(inner)
            return ()
        if isinstance(inner, Parallel):
            return (map_bodies(inner, lambda body: replace_stmts(body, _hoisted)),)
        return None

    loop = map_bodies(stmt, lambda body: replace_stmts(body, taken))
    return (*found, loop)

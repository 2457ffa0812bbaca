"""Owns the hoisting of variables: those without an initial value, out of loops.

Such a variable is 0 once, where a launch or a point of a nest begins, and keeps its value from one
iteration to the next. After the pass it is allocated in front of the outermost loop around it; one
with an initial value is stored to at each turn and stays.
"""

from __future__ import annotations

from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, Body, For, If, Parallel, Stmt, While
from tileops.ir.walk import map_launches, sub_bodies, with_bodies
from tileops.passes.context import Context


def hoist_variables(program: Program, context: Context) -> Program:
    """``program`` with no variable without a value allocated in a loop."""
    return map_launches(program, lambda launch: _outside(launch.body))


def _outside(body: Body) -> Body:
    """A list in no loop, but that of a nest's points."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, (For, While)):
            found: list[Stmt] = []
            new = _rebuilt(stmt, tuple(_taken(b, found) for b in sub_bodies(stmt)))
            out += [*found, new]
        elif isinstance(stmt, (If, Parallel)):
            out.append(_rebuilt(stmt, tuple(map(_outside, sub_bodies(stmt)))))
        else:
            out.append(stmt)
    return _unless_same(body, out)


def _taken(body: Body, found: list[Stmt]) -> Body:
    """A list in a loop, without the allocations that go to ``found``."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "var" and stmt.init is None:
            found.append(stmt)
        elif isinstance(stmt, Parallel):
            # The points of a nest have a variable each; it cannot leave the nest.
            out.append(_rebuilt(stmt, (_outside(stmt.body),)))
        elif inner := sub_bodies(stmt):
            out.append(_rebuilt(stmt, tuple(_taken(b, found) for b in inner)))
        else:
            out.append(stmt)
    return _unless_same(body, out)


def _rebuilt(stmt: Stmt, bodies: tuple[Body, ...]) -> Stmt:
    if all(a is b for a, b in zip(sub_bodies(stmt), bodies, strict=True)):
        return stmt
    return with_bodies(stmt, bodies)


def _unless_same(body: Body, made: list[Stmt]) -> Body:
    same = len(body) == len(made) and all(a is b for a, b in zip(body, made, strict=True))
    return body if same else tuple(made)

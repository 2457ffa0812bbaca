"""The groups of threads of a launch, and what each of them runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tileops.ir import explicit
from tileops.ir.node import Body, Stmt
from tileops.ir.walk import sub_bodies, walk


class Group(NamedTuple):
    """Threads that run the same statements: the smallest part of a block with a role."""

    number: int
    first: int
    size: int

    def __str__(self) -> str:
        return f"threads {self.first} to {self.first + self.size - 1}"


def groups_of(body: Body, threads: int) -> list[Group]:
    """The groups of a launch, in order."""
    edges = {0, threads}
    for stmt in walk(body):
        if isinstance(stmt, explicit.Role):
            edges |= {stmt.first, stmt.first + stmt.count}
    marks = sorted(edges)
    return [Group(n, a, b - a) for n, (a, b) in enumerate(itertools.pairwise(marks))]


def run_by(body: Body, group: Group) -> Iterator[Stmt]:
    """The statements of one level that a group runs, roles resolved."""
    for stmt in body:
        if not isinstance(stmt, explicit.Role):
            yield stmt
        elif stmt.first <= group.first < stmt.first + stmt.count:
            yield from run_by(stmt.body, group)


def is_ordered_inside(stmt: Stmt) -> bool:
    """True for a statement with steps or roles in it: groups may meet there."""
    inside = (s for body in sub_bodies(stmt) for s in walk(body))
    return any(isinstance(s, (*explicit.STEPS, explicit.Role)) for s in inside)

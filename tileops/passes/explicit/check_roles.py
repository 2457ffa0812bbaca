"""A checker of programs with roles: the groups run in many orders that the barriers allow.

What it finds: a deadlock, arrivals that no phase takes, a result of a product in flight that is
used, and elements that groups read and write in no order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tileops.errors import ProgramValueError
from tileops.ir import explicit, fold
from tileops.ir.node import Body, Stmt
from tileops.ir.stmt import For, If, Launch
from tileops.ir.walk import sub_bodies, walk
from tileops.passes.explicit.machine import Conflict, Machine
from tileops.passes.explicit.threads import Group, is_ordered_inside
from tileops.passes.explicit.values import World
from tileops.passes.machine.events import Fault

# How often another group gets ahead of the others.
_CHANGE = 0.1


@dataclass
class _Process:
    """One group: its statements one after another, and the one that it is at."""

    group: Group
    steps: Iterator[tuple[Stmt, tuple[int, ...]]]
    at: tuple[Stmt, tuple[int, ...]] | None = None

    def go_on(self) -> None:
        self.at = next(self.steps, None)


def check_roles(
    launch: Launch, groups: Sequence[Group], world: World, rng: random.Random
) -> tuple[list[Conflict], int]:
    """The accesses in no order whose write is the only one, and how many steps were run.

    ProgramValueError for other faults.
    """
    machine = Machine(groups, world, launch.body, rng)
    try:
        _run(machine, launch, rng)
    except ProgramValueError:
        _require_order(machine)
        raise
    except Fault as fault:
        _require_order(machine)
        loc = None if fault.where is None else fault.where.stmt.loc
        raise ProgramValueError(str(fault), location=loc or launch.loc) from None
    for key, barrier in machine.left_half_way():
        name = _names(launch.body).get(key[0], "named barrier")
        raise ProgramValueError(
            f"barrier {key[1]} of `{name}` is left half way when the block ends: {barrier}",
            location=launch.loc,
        )
    _require_order(machine)
    return list(machine.conflicts.values()), machine.performed


def _require_order(machine: Machine) -> None:
    """ProgramValueError for accesses in no order, which may be what leads to another fault."""
    for conflict in machine.conflicts.values():
        if not machine.is_written_once(conflict):
            raise _unordered(conflict)


def _names(body: Body) -> dict[int, str]:
    return {s.buffer.id: s.buffer.name for s in walk(body) if isinstance(s, explicit.AllocBarriers)}


def _unordered(conflict: Conflict) -> ProgramValueError:
    first, second = conflict.first, conflict.second
    lines = ["?" if s.loc is None else str(s.loc.line) for s in (first, second)]
    return ProgramValueError(
        f"`{conflict.buffer.name}` is written and read in no order: no barrier is between lines "
        f"{lines[0]} and {lines[1]}",
        expected="a wait for a barrier at which the others arrive, or for the copy or product",
        found=f"`{first.text()}` and `{second.text()}`",
        location=second.loc,
    )


def _run(machine: Machine, launch: Launch, rng: random.Random) -> None:
    every = tuple(g.number for g in machine.groups)
    processes = [_Process(g, _steps(machine, launch.body, g, every)) for g in machine.groups]
    for process in processes:
        process.go_on()
    order = list(range(len(processes) + 1))
    rng.shuffle(order)
    while True:
        if rng.random() < _CHANGE:
            rng.shuffle(order)
        if not any(_advance(machine, processes, agent) for agent in order):
            break
    waiting = [p for p in processes if p.at is not None]
    if waiting:
        raise _deadlock(machine, waiting, launch)


def _advance(machine: Machine, processes: list[_Process], agent: int) -> bool:
    """Let one group, or the copies in flight, do something; False if they cannot."""
    if agent == len(processes):
        return machine.land()
    process = processes[agent]
    if process.at is None:
        return False
    stmt, by = process.at
    if len(by) > 1 and not isinstance(stmt, explicit.OWN_STEPS):
        others = [processes[g] for g in by]
        if any(p.at is None or p.at[0] is not stmt for p in others):
            return False
        machine.perform(stmt, by)
        for other in others:
            other.go_on()
        return True
    if isinstance(stmt, explicit.CopyLater) and agent != by[0]:
        process.go_on()
        return True
    if not machine.perform(stmt, (agent,)):
        return False
    process.go_on()
    return True


def _deadlock(machine: Machine, waiting: list[_Process], launch: Launch) -> ProgramValueError:
    states = []
    for process in waiting:
        assert process.at is not None
        stmt, _ = process.at
        line = "" if stmt.loc is None else f" at line {stmt.loc.line}"
        told = ""
        if isinstance(stmt, explicit.BarrierStep):
            _, barrier = machine.barrier(stmt, process.group.number)
            told = f" ({barrier})"
        states.append(f"{process.group} wait{line} in `{stmt.text()}`{told}")
    first = waiting[0].at
    assert first is not None
    return ProgramValueError(
        "the barriers of this launch end in a deadlock",
        found="; ".join(states),
        location=first[0].loc or launch.loc,
    )


def _steps(
    machine: Machine, body: Body, group: Group, by: tuple[int, ...]
) -> Iterator[tuple[Stmt, tuple[int, ...]]]:
    """What a group runs, each statement with the groups that run it."""
    n = group.number
    for stmt, those in with_groups(body, machine.groups, by):
        if n not in those:
            continue
        if not is_ordered_inside(stmt):
            yield stmt, those
            continue
        match stmt:
            case For(var=var):
                start, stop = machine.value(n, stmt.start), machine.value(n, stmt.stop)
                for number in range(start, stop):
                    machine.envs[n][var.id] = fold.const(number, var.dtype)
                    yield from _steps(machine, stmt.body, group, those)
            case If():
                branch = stmt.then if machine.value(n, stmt.cond) else stmt.orelse
                yield from _steps(machine, branch, group, those)
            case _:
                raise unsupported(stmt)


def unsupported(stmt: Stmt) -> ProgramValueError:
    """The error for a statement that barriers may not be in."""
    from tileops.errors import UnsupportedConstructError

    kind = type(stmt).__name__.lower()
    return UnsupportedConstructError(  # type: ignore[return-value]
        f"barriers or roles in a {kind}", expected="a loop with a range, or `if`", location=stmt.loc
    )


def with_groups(
    body: Body, groups: Sequence[Group], by: tuple[int, ...]
) -> Iterator[tuple[Stmt, tuple[int, ...]]]:
    """The statements of one level, roles resolved, each with those of ``by`` that run it."""
    for stmt in body:
        if isinstance(stmt, explicit.Role):
            own = tuple(n for n in by if stmt.first <= groups[n].first < stmt.first + stmt.count)
            yield from with_groups(stmt.body, groups, own)
        elif by:
            yield stmt, by


def all_with_groups(
    body: Body, groups: Sequence[Group], by: tuple[int, ...]
) -> Iterator[tuple[Stmt, tuple[int, ...]]]:
    """The statements of all levels, each with the groups that run it."""
    for stmt, those in with_groups(body, groups, by):
        yield stmt, those
        for inner in sub_bodies(stmt):
            yield from all_with_groups(inner, groups, those)

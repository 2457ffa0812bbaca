"""Launches with roles, barriers and asynchronous steps: checked, then put in one order.

A program without a race means the same in every order that its barriers allow. So one such order,
without its barriers, is an ordinary launch with the same results. What follows, the automatic roles
of Hopper among them, takes it like any other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.ir import explicit
from tileops.ir.program import Program
from tileops.ir.stmt import Launch, Threads
from tileops.ir.walk import fresh_ids, loads, walk, written_buffers
from tileops.log import warn_once
from tileops.passes.context import Context
from tileops.passes.explicit.check_roles import all_with_groups, check_roles
from tileops.passes.explicit.machine import Conflict, Machine
from tileops.passes.explicit.one_order import Orderer, Steps, Stuck, in_order, plain
from tileops.passes.explicit.parts import with_parts
from tileops.passes.explicit.pieces import with_whole_operations
from tileops.passes.explicit.registers import with_own_registers
from tileops.passes.explicit.slots import with_one_slot
from tileops.passes.explicit.threads import Group, groups_of
from tileops.passes.explicit.values import World, worlds

# Choices of sizes and blocks, and how often groups run in each, in another order each time.
_WORLDS = 6
_ORDERS = 2
_ORDERS_OF_ONE = 4
_MOST_STEPS = 5000  # about a fifth of a second; then each choice is run once


def order_roles(program: Program, context: Context) -> Program:
    """``program`` with no launch that has barriers, roles or asynchronous steps.

    ProgramValueError for one whose barriers are wrong, UnsupportedConstructError where no order is
    found.
    """
    if not any(map(_has_steps, program.launches)):
        return program
    launches = tuple(
        _ordered(program, launch) if _has_steps(launch) else launch for launch in program.launches
    )
    return replace(program, launches=launches)


def _has_steps(launch: Launch) -> bool:
    """True for a launch with steps of groups; those of single threads stay as they are."""
    if any(isinstance(s, Threads) for s in launch.body):
        return False
    return any(isinstance(s, explicit.STEPS) for s in walk(launch.body))


def _ordered(program: Program, launch: Launch) -> Launch:
    _require_use(launch)
    fresh = fresh_ids(program)
    groups = groups_of(launch.body, launch.threads)
    launch = replace(launch, body=with_own_registers(launch.body, groups, fresh))
    rng = random.Random(0)
    tried = list(islice(worlds(program, launch, rng), _WORLDS))
    conflicts: dict[tuple[int, int], Conflict] = {}
    done = 0
    for world in tried:
        for number in range(_ORDERS if len(tried) > 1 else _ORDERS_OF_ONE):
            if number and done > _MOST_STEPS:
                break
            found, ran = check_roles(launch, groups, world, rng)
            conflicts |= {(id(c.first), id(c.second)): c for c in found}
            done += ran
    for conflict in conflicts.values():
        _warn(program, conflict)
    steps = _found(launch, groups, tried, list(conflicts.values()))
    body = with_whole_operations(tuple(plain(steps)))
    body = with_parts(with_one_slot(body, fresh), fresh)
    return replace(launch, body=body, threads=_threads(launch, groups))


def _require_use(launch: Launch) -> None:
    """ProgramValueError for threads that there are not, and for the value of a barrier."""
    for stmt in walk(launch.body):
        if isinstance(stmt, explicit.Role) and stmt.first + stmt.count > launch.threads:
            last = stmt.first + stmt.count - 1
            raise ProgramValueError(
                f"a role of threads {stmt.first} to {last}, and the block has {launch.threads}",
                location=stmt.loc,
            )
        for load in loads(stmt):
            if load.buffer.scope == "barrier":
                raise ProgramValueError(
                    f"the barrier `{load.buffer.name}` has no value",
                    expected="T.mbarrier_arrive, T.mbarrier_wait_parity, or barrier= of a copy",
                    location=stmt.loc,
                )


def _warn(program: Program, conflict: Conflict) -> None:
    """Say that a value is taken as its only write gives it, though no barrier waits for that."""
    first, second = (
        "?" if s.loc is None else f"{s.loc.file}:{s.loc.line}"
        for s in (conflict.first, conflict.second)
    )
    warn_once(
        f"{program.name} {first} {second}",
        f"{program.name}: no barrier orders the accesses of `{conflict.buffer.name}` at {first} "
        f"and {second}; the write, the only one, comes first",
    )


def _threads(launch: Launch, groups: Sequence[Group]) -> int:
    """The threads of the groups that do more than move tiles."""
    every = tuple(g.number for g in groups)
    busy = {n for stmt, by in all_with_groups(launch.body, groups, every) for n in by
            if by != every and any(b.level == 2 for b in written_buffers(stmt))}  # fmt: skip
    return sum(groups[n].size for n in busy) or launch.threads


def _found(
    launch: Launch, groups: Sequence[Group], tried: Sequence[World], conflicts: Sequence[Conflict]
) -> Steps:
    try:
        steps = in_order(Machine(groups, tried[0], launch.body), launch.body, conflicts)
    except Stuck as stuck:
        raise _no_order(launch, stuck) from None
    for world in tried[1:]:
        if not Orderer(Machine(groups, world, launch.body), {}).replay(steps):
            raise _no_order(launch, Stuck(None))
    return steps


def _no_order(launch: Launch, stuck: Stuck) -> UnsupportedConstructError:
    loc = launch.loc if stuck.stmt is None else stuck.stmt.loc
    return UnsupportedConstructError(
        "roles that cannot be put in one order, the same in every iteration of their loops",
        expected="loops with the same range in the roles that wait for each other",
        location=loc or launch.loc,
    )

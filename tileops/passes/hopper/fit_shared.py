"""Schedules made to fit the shared memory of a multiprocessor."""

from __future__ import annotations

from dataclasses import replace

from tileops.ir.schedule import Added, Release, Ring, Schedule, Staged
from tileops.ir.stmt import Body, Copy, Launch, Stmt
from tileops.ir.walk import sub_bodies, walk, with_bodies
from tileops.passes.hopper.unfit import Unfit

# A slot more than a role works on, so that loads and products overlap.
LEAST_DEPTH = 2


def deepened(schedule: Schedule) -> Schedule:
    """The schedule with a slot more for each that is released a round late."""
    late: dict[Ring, int] = dict.fromkeys(schedule.rings, 0)
    for stmt in walk(schedule.math):
        if isinstance(stmt, Release):
            late[stmt.ring] = max(late[stmt.ring], stmt.behind)
    return _with_depths(schedule, {ring: ring.depth + more for ring, more in late.items()})


def fitted(schedule: Schedule, limit: int, launch: Launch) -> Schedule:
    """The schedule with rings as deep as asked for where they fit, else shallower."""
    if schedule.staged and _least(schedule).shared_bytes > limit:
        schedule = unstaged(schedule)
    while schedule.shared_bytes > limit:
        deepest = max(ring.depth for ring in schedule.rings)
        if deepest <= LEAST_DEPTH:
            raise Unfit(
                f"its rings need {schedule.shared_bytes} bytes of shared memory, and there are "
                f"{limit}",
                launch.loc,
            )
        depths = {ring: min(ring.depth, deepest - 1) for ring in schedule.rings}
        schedule = _with_depths(schedule, depths)
    return schedule


def _with_depths(schedule: Schedule, depths: dict[Ring, int]) -> Schedule:
    rings = {ring: replace(ring, depth=depth) for ring, depth in depths.items()}
    return replace(
        schedule,
        rings=tuple(rings.values()),
        load=_with_rings(schedule.load, rings),
        math=_with_rings(schedule.math, rings),
    )


def _least(schedule: Schedule) -> Schedule:
    """The schedule with its rings as shallow as they may be."""
    rings = tuple(replace(r, depth=min(r.depth, LEAST_DEPTH)) for r in schedule.rings)
    return replace(schedule, rings=rings)


def unstaged(schedule: Schedule) -> Schedule:
    """The schedule with tiles that leave from registers."""
    return with_math(schedule, _unstaged(schedule.math))


def _unstaged(body: Body) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Staged) and not isinstance(stmt, Added):
            stmt = Copy(stmt.src, stmt.dst, **stmt.provenance)
        out.append(with_bodies(stmt, tuple(_unstaged(inner) for inner in sub_bodies(stmt))))
    return tuple(out)


def _with_rings(body: Body, rings: dict[Ring, Ring]) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        ring = getattr(stmt, "ring", None)
        if ring is not None:
            stmt = replace(stmt, ring=rings[ring])  # type: ignore[call-arg]
        bodies = tuple(_with_rings(inner, rings) for inner in sub_bodies(stmt))
        out.append(with_bodies(stmt, bodies))
    return tuple(out)


def with_math(schedule: Schedule, math: Body) -> Schedule:
    """The schedule with another math role, whose tiles may leave as other boxes."""
    staged = tuple(dict.fromkeys(s.descriptor for s in walk(math) if isinstance(s, Staged)))
    return replace(schedule, math=math, staged=staged)

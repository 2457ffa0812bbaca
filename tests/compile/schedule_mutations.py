"""Schedules with one step wrong, and which of them run as the right one does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.kit.schedules import Scheduled
from tileops.ir import fold
from tileops.ir.expr import Var
from tileops.ir.program import const_value
from tileops.ir.schedule import (
    Acquire,
    Advance,
    Await,
    Deposit,
    Fetch,
    Issue,
    Publish,
    Release,
    Ring,
    RingStep,
    Schedule,
    Settle,
    Share,
)
from tileops.ir.stmt import Body, For, Parallel, Stmt
from tileops.ir.walk import read_buffers, sub_bodies, walk, walk_expr, with_bodies

FALSE = fold.const(False, fold.BOOL)
STEPS = (RingStep, Fetch, Deposit, Issue, Settle)
Edit = Callable[[list[Stmt], int], Body]


@dataclass(frozen=True)
class Mutation:
    """A changed schedule. ``harmless`` says why it runs as the right one does, or is empty."""

    kind: str
    site: str
    schedule: Schedule
    harmless: str = ""


@dataclass(frozen=True)
class Site:
    """A statement of a role: its list, its place there, and the loops around it."""

    role: str
    body: Body
    at: int
    path: tuple[tuple[int, int], ...]
    loops: tuple[For, ...]

    @property
    def stmt(self) -> Stmt:
        return self.body[self.at]

    def edited(self, schedule: Schedule, edit: Edit) -> Schedule:
        """The schedule with what ``edit`` makes of the statement's list."""
        body = _edited(getattr(schedule, self.role), self.path, self.at, edit)
        changes: dict[str, Any] = {self.role: body}
        return replace(schedule, **changes)


def sites(schedule: Schedule) -> Iterator[Site]:
    """All statements of both roles."""
    for role in ("load", "math"):
        yield from _sites(role, getattr(schedule, role), (), ())


def _sites(
    role: str, body: Body, path: tuple[tuple[int, int], ...], loops: tuple[For, ...]
) -> Iterator[Site]:
    for at, stmt in enumerate(body):
        yield Site(role, body, at, path, loops)
        inside = (*loops, stmt) if isinstance(stmt, For) else loops
        for number, inner in enumerate(sub_bodies(stmt)):
            yield from _sites(role, inner, (*path, (at, number)), inside)


def _edited(body: Body, path: tuple[tuple[int, int], ...], at: int, edit: Edit) -> Body:
    if not path:
        return edit(list(body), at)
    (place, number), *rest = path
    inner = list(sub_bodies(body[place]))
    inner[number] = _edited(inner[number], tuple(rest), at, edit)
    return (*body[:place], with_bodies(body[place], tuple(inner)), *body[place + 1 :])


# -- edits ---------------------------------------------------------------------------------------
def _drop(body: list[Stmt], at: int) -> Body:
    return (*body[:at], *body[at + 1 :])


def _double(body: list[Stmt], at: int) -> Body:
    return (*body[: at + 1], *body[at:])


def _put(stmt: Stmt) -> Edit:
    return lambda body, at: (*body[:at], stmt, *body[at + 1 :])


def _move(to: int) -> Edit:
    """The statement moves to place ``to`` of its list."""

    def edit(body: list[Stmt], at: int) -> Body:
        rest = list(_drop(body, at))
        return (*rest[:to], body[at], *rest[to:])

    return edit


def _swap(other: int) -> Edit:
    def edit(body: list[Stmt], at: int) -> Body:
        out = list(body)
        out[at], out[other] = body[other], body[at]
        return tuple(out)

    return edit


# -- mutations -----------------------------------------------------------------------------------
def mutations(scheduled: Scheduled) -> Iterator[Mutation]:
    """Every kind of mutation at every site of a schedule."""
    schedule = scheduled.schedule
    for site in sites(schedule):
        idle = any(_trips(loop, scheduled) == {0} for loop in site.loops)
        unreached = "in a loop that never runs" if idle else ""
        for kind, edit, harmless in _of(site, unreached):
            text = f"{site.role}: {site.stmt.text()} in {len(site.loops)} loops, place {site.at}"
            yield Mutation(kind, text, site.edited(schedule, edit), harmless)
    for role in ("load", "math"):
        for ring in schedule.rings:
            if ring not in [getattr(s, "ring", None) for s in walk(getattr(schedule, role))]:
                continue  # an exchange: the load role has no step of it
            for depth in {ring.depth + 1, max(1, ring.depth - 1)} - {ring.depth}:
                body = _with_ring(getattr(schedule, role), ring, replace(ring, depth=depth))
                changes: dict[str, Any] = {role: body}
                yield Mutation(
                    "ring depth in one role",
                    f"{role}: {ring} {depth}",
                    replace(schedule, **changes),
                )


def _with_ring(body: Body, old: Ring, new: Ring) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, (RingStep, Fetch)) and stmt.ring == old:
            stmt = replace(stmt, ring=new)
        out.append(with_bodies(stmt, tuple(_with_ring(b, old, new) for b in sub_bodies(stmt))))
    return tuple(out)


def _of(site: Site, unreached: str) -> Iterator[tuple[str, Edit, str]]:
    """The mutations at one site: kind, edit, and why it is harmless or nothing."""
    stmt = site.stmt
    if isinstance(stmt, (Await, Acquire, Fetch, Deposit, Publish, Share)):
        yield f"dropped {type(stmt).__name__}", _drop, unreached
    match stmt:
        case Await() | Acquire():
            other = _next_wait(site)
            if other is not None:
                yield "swapped waits", _swap(other), unreached or _waits_only(site, other)
        case Advance():
            yield f"dropped Advance ({site.role})", _drop, unreached
            yield f"doubled Advance ({site.role})", _double, unreached
        case Fetch():
            yield "doubled Fetch", _double, unreached
            acquire = next(n for n in reversed(range(site.at)) if isinstance(site.body[n], Acquire))
            yield "Fetch before its Acquire", _move(acquire), unreached
        case Deposit():
            acquire = next(n for n in reversed(range(site.at)) if isinstance(site.body[n], Acquire))
            yield "Deposit before its Acquire", _move(acquire), unreached
        case Publish():
            deposit = next(n for n in reversed(range(site.at)) if isinstance(site.body[n], Deposit))
            yield "Publish before its Deposit", _move(deposit), unreached
            yield "doubled Publish", _double, unreached
        case Share():
            issue = next(n for n, s in enumerate(site.body[site.at :]) if isinstance(s, Issue))
            yield "Share behind its Issue", _move(site.at + issue), unreached
        case Settle():
            more = replace(stmt, outstanding=stmt.outstanding + 1)
            yield "Settle of one less", _put(more), unreached or _runs_once(site)
            if stmt.results:
                yield "Settle without results", _put(replace(stmt, results=())), unreached
        case Release():
            yield from _of_release(site, stmt, unreached)


def _of_release(site: Site, stmt: Release, unreached: str) -> Iterator[tuple[str, Edit, str]]:
    certain = const_value(stmt.when) == 1
    never = unreached or ("" if certain else _runs_once(site))
    closing = stmt.behind and not site.loops
    yield ("missing closing Release" if closing else "dropped Release"), _drop, never
    yield "doubled Release", _double, never
    turned = FALSE if certain else fold.unary("not", stmt.when)
    yield "turned `when`", _put(replace(stmt, when=turned)), unreached
    for behind in {stmt.behind + 1, max(0, stmt.behind - 1)} - {stmt.behind}:
        yield "wrong `behind`", _put(replace(stmt, behind=behind)), never
    held = {b.id for b in stmt.ring.buffers}
    nests = [n for n in range(site.at) if isinstance(site.body[n], Parallel)]
    readers = [n for n in nests if held & _read(site.body[n])]
    if readers:
        yield "Release before a nest", _move(readers[-1]), unreached
    before = [n for n in range(site.at) if isinstance(site.body[n], Settle)]
    if before:
        why = never or _read_before(site, stmt, before[-1])
        yield "Release before its Settle", _move(before[-1]), why


def _read(stmt: Stmt) -> set[int]:
    return {b.id for s in walk((stmt,)) for b in read_buffers(s)}


def _next_wait(site: Site) -> int | None:
    """The next wait of the list, if it is of another ring."""
    for place in range(site.at + 1, len(site.body)):
        other = site.body[place]
        if type(other) is type(site.stmt):
            assert isinstance(other, RingStep)
            return place if other.ring != getattr(site.stmt, "ring", None) else None
    return None


# -- why some are harmless -----------------------------------------------------------------------
def _trips(loop: For, scheduled: Scheduled) -> set[int]:
    """How often a loop runs, of all blocks and groups; empty where that is known at run time only.

    What is in a loop of no trips is not run: the bounds of a mask's segments may meet.
    """
    launch, first = scheduled.launch, scheduled.schedule.first_row
    spans = {v.id: const_value(e) for v, e in zip(launch.block_vars, launch.grid, strict=True)}
    steps = dict.fromkeys(spans, 1)
    if first is not None:
        rows = scheduled.schedule.rows
        spans[first.id], steps[first.id] = rows * scheduled.schedule.groups, rows
    used = {e.id for x in (loop.start, loop.stop) for e in walk_expr(x) if isinstance(e, Var)}
    if any(spans.get(n) is None for n in used):
        return set()
    found = set()
    for numbers in itertools.product(*(range(0, spans[n] or 0, steps[n]) for n in used)):
        known = {n: fold.const(value) for n, value in zip(used, numbers, strict=True)}
        start, stop = (const_value(fold.substitute(e, known)) for e in (loop.start, loop.stop))
        if start is None or stop is None:
            return set()
        found.add(max(0, stop - start))
    return found


def _runs_once(site: Site) -> str:
    """The deferred release of a loop of one trip.

    ``when`` is false in the first trip, so its release never runs. The loop then has one product in
    flight at most, for which Settle(1) does not wait, nor Settle(2); the settle after the loop
    ends and names it.
    """
    loop = site.loops[-1] if site.loops else None
    if loop is None or const_value(fold.sub(loop.stop, loop.start)) != 1:
        return ""
    deferred = any(isinstance(s, Release) and s.behind for s in site.body)
    return "in a deferred loop of one trip" if deferred else ""


def _waits_only(site: Site, other: int) -> str:
    """Two awaits without another step between them.

    An await changes nothing, so both orders pass when both slots are full. Neither can hinder the
    load role: it waits for releases only, and there is none between the two.
    """
    between = walk(site.body[site.at + 1 : other])
    if not isinstance(site.stmt, Await) or any(isinstance(s, STEPS) for s in between):
        return ""
    return "no step between the awaits"


def _read_before(site: Site, stmt: Release, settle: int) -> str:
    """A settle that ends no product on this ring's slot: an earlier one did.

    The products in flight before the settle are those of the list so far; none may start between
    the settle and the release, and no nest may read the slot there. A deferred release is of a
    product of the iteration before, which is in flight.
    """
    held = {b.id for b in stmt.ring.buffers}
    between = site.body[settle : site.at]
    later = [s for s in between if isinstance(s, Issue) or _read(s) & held]
    if stmt.behind or later:
        return ""
    flying = _flying(site.body[:settle], [])
    reads = any(b.id in held for s in flying for b in (s.a.buffer, s.b.buffer))
    return "" if reads else "the settle ends no product on the slot"


def _flying(body: Body, flying: list[Issue]) -> list[Issue]:
    """The products in flight after a list, a loop as if it ran once."""
    for stmt in body:
        match stmt:
            case Issue():
                flying = [*flying, stmt]
            case Settle(outstanding=outstanding):
                flying = flying[max(0, len(flying) - outstanding) :]
            case _:
                for inner in sub_bodies(stmt):
                    flying = _flying(inner, flying)
    return flying

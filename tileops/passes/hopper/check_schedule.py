"""A checker of schedules: the roles run on an abstract multiprocessor, in many orders.

The model of the barriers is in ``passes/machine/barriers.py``, with its source. A schedule is
taken as it is printed: nothing here knows how it was made. What the checker finds:

- a deadlock, or a barrier that is left half way;
- a product that starts on a slot that is not full with the fetch of its own round;
- a fetch into a slot that a product may still read, or that another fetch may still write;
- a result or a register operand of a product in flight that another statement touches;
- roles that disagree on rounds, rings or values, and slots that are never released;
- registers, shared memory and transaction counts beyond those of the hardware.

Products of a group read their slots from ``Issue`` until a ``Settle`` has ended them (PTX ISA,
"Asynchronous warpgroup level matrix instructions": wgmma.wait_group). What an agent knows of the
others is what it has learnt through barriers, so an order that happens to go well does not hide a
missing wait.

Not modelled: what tiles hold, fences between proxies, and stores of staged tiles, which wait for
the one before.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Buffer
from tileops.ir.node import Stmt
from tileops.ir.schedule import Deposit, Fetch, Ring, RingStep, Schedule
from tileops.ir.stmt import Launch
from tileops.ir.walk import read_buffers, view_roots, walk, written_buffers
from tileops.passes.analyze_ranges import Ranges
from tileops.passes.machine.events import Fault, Key
from tileops.passes.machine.roles import Facts, role_events
from tileops.passes.machine.runs import Run
from tileops.passes.machine.worlds import Unusable, worlds

# Of one multiprocessor of capability 9.0, and of setmaxnreg (PTX ISA).
_REGISTERS = 1 << 16
_LEAST_REGISTERS, _MOST_REGISTERS, _UNIT = 24, 240, 8
_LANES = 32
_LOAD_THREADS = 128  # a warp group: registers are given to four warps at a time
_MOST_BYTES = (1 << 20) - 1  # of the tx-count of a phase
_BARRIER_BYTES = 8
# Worlds tried beyond those asked for, where some cannot be or some steps were not met.
_MORE = 12


@dataclass(frozen=True)
class Effort:
    """How much is tried: worlds, orders of events in each, and events of a role in one world.

    More worlds are tried where a step has not been met: loops may be empty in most blocks.
    """

    worlds: int
    orders: int
    events: int


QUICK = Effort(worlds=4, orders=2, events=400)
THOROUGH = Effort(worlds=25, orders=8, events=2000)


def check_schedule(
    schedule: Schedule,
    launch: Launch,
    ranges: Ranges,
    shared_limit: int,
    name: str = "",
    effort: Effort = QUICK,
    seed: int = 0,
) -> int:
    """How many runs of a schedule went well; InternalError for one that does not.

    ``ranges`` are known at the head of the launch's body, ``shared_limit`` is in bytes, and
    ``name`` is that of the launch in errors. Which worlds and orders are tried follows from
    ``seed``.
    """
    try:
        for fault in _static_faults(schedule, shared_limit):
            raise Fault(fault)
        return _runs(schedule, launch, ranges, effort, random.Random(seed))
    except Fault as fault:
        raise InternalError(f"the schedule of launch {name} is wrong: {fault}") from None


def _runs(
    schedule: Schedule, launch: Launch, ranges: Ranges, effort: Effort, rng: random.Random
) -> int:
    facts, arrivals = Facts(schedule), _arrivals(schedule)
    usable, unseen = 0, facts.steps()
    tried = worlds(schedule, launch, _known(schedule, ranges), rng)
    for world in islice(tried, effort.worlds + _MORE):
        if usable >= effort.worlds and not unseen:
            break
        try:
            roles = role_events(facts, world, effort.events)
        except Unusable:
            continue
        usable += 1
        unseen -= set().union(*(role.seen for role in roles))
        for _ in range(effort.orders):
            Run([role.events for role in roles], arrivals, rng).run()
    return usable * effort.orders


def _known(schedule: Schedule, ranges: Ranges) -> Ranges:
    """``ranges`` with the rows at which the groups begin."""
    if schedule.first_row is None:
        return ranges
    stop = fold.const(schedule.rows * (schedule.groups - 1) + 1)
    return ranges.with_span(schedule.first_row, fold.const(0), stop)


def _arrivals(schedule: Schedule) -> dict[Key, int]:
    """The arrivals that a phase of each barrier takes."""
    groups = schedule.groups
    return {
        (f"{ring}.{side}", slot): count
        for ring in schedule.rings
        for side, count in (("full", groups if ring.is_exchange else 1), ("empty", groups))
        for slot in range(ring.depth)
    }


# -- rules that need no run ----------------------------------------------------------------------
def _static_faults(schedule: Schedule, shared_limit: int) -> Iterator[str]:
    rings = {ring.name: ring for ring in schedule.rings}
    if not rings or len(rings) != len(schedule.rings):
        yield "rings have different names, and there is one at least"
    for ring in schedule.rings:
        yield from _ring_faults(ring)
    for role, body in (("load", schedule.load), ("math", schedule.math)):
        for stmt in walk(body):
            if isinstance(stmt, (RingStep, Fetch, Deposit)):
                yield from _step_faults(stmt, stmt.ring, rings.get(stmt.ring.name), role)
    for buffer in _raced(schedule):
        yield f"the load role reads `{buffer}`, which the math role writes"
    yield from _register_faults(schedule)
    slots = sum(ring.depth * (ring.bytes + 2 * _BARRIER_BYTES) for ring in schedule.rings)
    tiles = sum(math.prod(b.static_shape() or ()) * b.dtype.bytes for b in schedule.shared)
    forms = {(box.tensor.dtype, box.box, box.swizzle): box.bytes for box in schedule.staged}
    total = slots + tiles + schedule.groups * sum(forms.values())
    if total > shared_limit:
        yield f"{total} bytes of shared memory, and there are {shared_limit}"


def _raced(schedule: Schedule) -> set[Buffer]:
    """The tensors that one role reads and the other writes, at no order."""
    roots = view_roots((*schedule.load, *schedule.math))
    read = {roots.get(b.id, b) for s in walk(schedule.load) for b in read_buffers(s)}
    written = {roots.get(b.id, b) for s in walk(schedule.math) for b in written_buffers(s)}
    return {b for b in read & written if not b.is_on_chip}


def _ring_faults(ring: Ring) -> Iterator[str]:
    if ring.depth < 1:
        yield f"{ring} has no slot"
    if not 0 < ring.bytes <= _MOST_BYTES:
        yield f"a phase of {ring} counts {ring.bytes} bytes"
    if ring.descriptors and len(ring.buffers) != len(ring.descriptors):
        yield f"{ring} has {len(ring.buffers)} buffers and {len(ring.descriptors)} boxes"
    for buffer, box in zip(ring.buffers, ring.descriptors, strict=False):
        size = buffer.dtype.bytes
        for extent in buffer.static_shape() or ():
            size *= extent
        if size != box.bytes:
            yield f"{buffer} has {size} bytes, its box {box.bytes}"


def _step_faults(stmt: Stmt, ring: Ring, own: Ring | None, role: str) -> Iterator[str]:
    if own is None:
        yield f"role {role}, step `{stmt.text()}`: {ring} is no ring of the schedule"
    elif own != ring:
        yield (
            f"role {role}, step `{stmt.text()}`: {ring} has depth {ring.depth} there and "
            f"{own.depth} in the schedule"
        )


def _register_faults(schedule: Schedule) -> Iterator[str]:
    each = {"load": schedule.load_registers}
    # One group is what the launch starts with: nobody sets its registers.
    if schedule.groups > 1:
        each["math"] = schedule.math_registers
    for role, count in each.items():
        if count % _UNIT or not _LEAST_REGISTERS <= count <= _MOST_REGISTERS:
            yield f"{count} registers a thread of the {role} role"
    threads = schedule.groups * schedule.warps * _LANES
    total = threads * schedule.math_registers + _LOAD_THREADS * schedule.load_registers
    if total > _REGISTERS:
        yield f"{total} registers, and there are {_REGISTERS}"

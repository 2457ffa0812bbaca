"""One multiprocessor: barriers, slots of rings, and what runs beside the roles at its own time.

Copies by TMA land, products run and staged tiles leave in a random order among those that may. What
is under way is not readable: a slot holds garbage from the start of a copy until it lands, and a
result from the start of a product until a ``Settle`` names it. A wait that is missing or wrong thus
shows in the numbers. The barriers are those of the checker (``passes/machine/barriers.py``).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tileops.ir.expr import Buffer
from tileops.ir.schedule import Ring, Schedule
from tileops.passes.machine.barriers import Barrier
from tileops.passes.machine.events import Fault
from tileops.testing.simulation.control import Ready
from tileops.testing.simulation.elements import Values
from tileops.testing.simulation.statements import garbage

# How often another agent gets ahead of the others.
_CHANGE = 0.2
Action = Callable[[], None]


class Queue:
    """Actions of one unit that are under way. They end in order, or in any order."""

    def __init__(self, rng: random.Random, *, in_order: bool) -> None:
        self._actions: deque[Action] = deque()
        self._random, self._in_order = rng, in_order

    def __len__(self) -> int:
        return len(self._actions)

    def add(self, action: Action) -> None:
        """Begin ``action``."""
        self._actions.append(action)

    def can_go(self) -> bool:
        """True if something is under way."""
        return bool(self._actions)

    def go(self) -> None:
        """End one action."""
        if not self._in_order:
            self._actions.rotate(-self._random.randrange(len(self._actions)))
        self._actions.popleft()()


class Runner:
    """A role as an agent: it goes on when what it waits for has come."""

    def __init__(self, name: str, steps: Iterator[Ready]) -> None:
        self.name = name
        self._steps = steps
        self._ready: Ready | None = next(steps, None)

    @property
    def is_done(self) -> bool:
        return self._ready is None

    def can_go(self) -> bool:
        """True if the role may go on."""
        return self._ready is not None and self._ready()

    def go(self) -> None:
        """Run up to the next step."""
        self._ready = next(self._steps, None)


class Multiprocessor:
    """The shared memory of one program of the grid, and its asynchronous units."""

    def __init__(self, schedule: Schedule, rng: random.Random) -> None:
        self.random = rng
        self.copies = Queue(rng, in_order=False)
        self._units = [self.copies]
        self._slots: dict[tuple[int, int], Values] = {}
        self._barriers: dict[tuple[str, str, int], Barrier] = {}
        for ring in schedule.rings:
            for slot in range(ring.depth):
                filling = schedule.groups if ring.is_exchange else 1
                self._barriers[ring.name, "full", slot] = Barrier(filling)
                self._barriers[ring.name, "empty", slot] = Barrier(schedule.groups)

    def unit(self, *, in_order: bool) -> Queue:
        """A new unit that works at its own time."""
        made = Queue(self.random, in_order=in_order)
        self._units.append(made)
        return made

    def full(self, ring: Ring, slot: int) -> Barrier:
        """The barrier of a slot that has been filled."""
        return self._barrier(ring, "full", slot)

    def empty(self, ring: Ring, slot: int) -> Barrier:
        """The barrier of a slot that has been read."""
        return self._barrier(ring, "empty", slot)

    def _barrier(self, ring: Ring, side: str, slot: int) -> Barrier:
        found = self._barriers.get((ring.name, side, slot))
        if found is None:
            raise Fault(f"{ring} has no slot {slot}")
        return found

    def slot(self, buffer: Buffer, slot: int) -> Values:
        """The memory of one slot of a ring's buffer."""
        place = (buffer.id, slot)
        if place not in self._slots:
            shape = [int(e) for e in buffer.static_shape() or ()]
            self._slots[place] = garbage(shape, buffer.dtype)
        return self._slots[place]

    def run(self, roles: Sequence[Runner]) -> None:
        """Run all roles to their end; Fault for a deadlock or a barrier that is left half way."""
        agents: list[Queue | Runner] = [*roles, *self._units]
        self.random.shuffle(agents)
        while True:
            if self.random.random() < _CHANGE:
                self.random.shuffle(agents)
            agent = next((a for a in agents if a.can_go()), None)
            if agent is None:
                break
            agent.go()
        waiting = [role.name for role in roles if not role.is_done]
        if waiting:
            raise Fault(f"deadlock: {', '.join(waiting)} wait for ever")
        for (ring, side, slot), barrier in self._barriers.items():
            if barrier.is_half_way:
                raise Fault(f"{ring}.{side}[{slot}] is left half way: {barrier}")

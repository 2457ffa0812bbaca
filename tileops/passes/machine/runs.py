"""One run of the roles' events in a random order that the barriers allow."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tileops.passes.machine.barriers import Barrier, Known, learn
from tileops.passes.machine.events import (
    Arrive,
    End,
    Event,
    Fault,
    Key,
    Place,
    Put,
    Read,
    Wait,
    Where,
    Write,
)

# How often another agent gets ahead of the others.
_CHANGE = 0.1


@dataclass
class _Process:
    events: Sequence[Event]
    at: int = 0
    known: Known = field(default_factory=dict)


@dataclass
class _Memory:
    """One slot of one buffer: the rounds written so far, and each group's last product on it."""

    rounds: list[int] = field(default_factory=list)
    products: dict[int, int] = field(default_factory=dict)


class Run:
    """The roles, the barriers between them and the copies in flight.

    The agents (a process for each role, and the engine that copies) have priorities that change now
    and then: the first one that can go on does. Copies land in any order.
    """

    def __init__(
        self, roles: Sequence[Sequence[Event]], arrivals: Mapping[Key, int], rng: random.Random
    ) -> None:
        self._processes = [_Process(events) for events in roles]
        self._barriers = {key: Barrier(count) for key, count in arrivals.items()}
        self._memory: dict[Place, _Memory] = {}
        self._flying: list[tuple[Write, int]] = []
        self._random = rng

    def run(self) -> None:
        """Run everything; Fault for the first one met."""
        engine = len(self._processes)
        order = list(range(engine + 1))
        self._random.shuffle(order)
        while True:
            if self._random.random() < _CHANGE:
                self._random.shuffle(order)
            agent = next((a for a in order if self._can(a)), None)
            if agent is None:
                break
            if agent == engine:
                self._land()
            else:
                self._step(self._processes[agent])
        self._require_finished()

    def _can(self, agent: int) -> bool:
        if agent == len(self._processes):
            return bool(self._flying)
        process = self._processes[agent]
        if process.at == len(process.events):
            return False
        event = process.events[process.at]
        return not isinstance(event, Wait) or self._barriers[event.barrier].passes(event.parity)

    def _step(self, process: _Process) -> None:
        event = process.events[process.at]
        process.at += 1
        match event:
            case Wait():
                learn(process.known, self._barriers[event.barrier].known)
            case Arrive():
                self._barriers[event.barrier].arrive(process.known, event.bytes, event.where)
            case Write():
                self._write(event, process.known)
            case Put():
                self._put(event, process.known)
            case Read():
                self._read(event, process.known)
            case End():
                process.known["group", event.group] = event.products
            case _:
                raise TypeError(f"no event: {event}")

    def _land(self) -> None:
        write, number = self._flying.pop(self._random.randrange(len(self._flying)))
        self._barriers[write.barrier].land(write.place, number, write.bytes)

    def _write(self, event: Write, known: Known) -> None:
        self._flying.append((event, self._overwrite(event, known)))

    def _put(self, event: Put, known: Known) -> None:
        known[event.place] = self._overwrite(event, known)

    def _overwrite(self, event: Write | Put, known: Known) -> int:
        """The number of what is written to a place, which nothing may still use."""
        memory = self._memory.setdefault(event.place, _Memory())
        for group, product in memory.products.items():
            if known.get(("group", group), 0) < product:
                raise Fault(f"overwrites a slot that math {group} may still read", event.where)
        if known.get(event.place, 0) < len(memory.rounds):
            raise Fault("overwrites a slot that the copy before may still write", event.where)
        memory.rounds.append(event.round)
        return len(memory.rounds)

    def _read(self, event: Read, known: Known) -> None:
        memory = self._memory.setdefault(event.place, _Memory())
        if event.round not in memory.rounds:
            raise Fault("reads a slot before its round is fetched", event.where)
        if memory.rounds[-1] != event.round:
            raise Fault(f"reads a slot that round {memory.rounds[-1]} overwrites", event.where)
        if known.get(event.place, 0) < len(memory.rounds):
            raise Fault("reads a slot that is not known to be full", event.where)
        memory.products[event.group] = event.product

    def _require_finished(self) -> None:
        waiting: list[Where] = []
        states: list[str] = []
        for process in self._processes:
            if process.at < len(process.events):
                event = process.events[process.at]
                assert isinstance(event, Wait)
                waiting.append(event.where)
                barrier = self._barriers[event.barrier]
                name, slot = event.barrier
                states.append(
                    f"{event.where.role} waits for parity {event.parity} of {name}[{slot}] "
                    f"({barrier})"
                )
        if waiting:
            raise Fault(f"deadlock: {'; '.join(states)}", waiting[-1])
        for (name, slot), barrier in self._barriers.items():
            if barrier.is_half_way:
                raise Fault(f"{name}[{slot}] is left half way: {barrier}")

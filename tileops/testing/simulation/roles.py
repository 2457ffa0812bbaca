"""The roles of a schedule as processes on real numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tileops.ir.expr import Buffer, Region
from tileops.ir.schedule import (
    Acquire,
    Added,
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
    Staged,
)
from tileops.ir.stmt import Stmt
from tileops.passes.machine.events import Where
from tileops.testing.simulation.control import Process, Ready
from tileops.testing.simulation.elements import Values, converted
from tileops.testing.simulation.multiprocessor import Multiprocessor
from tileops.testing.simulation.statements import Box, garbage, multiplied

_STEPS = (RingStep, Fetch, Deposit, Issue, Settle, Staged)


@dataclass
class _Result:
    """The sums of a tile whose products are under way: ``values`` so far, and how many to come."""

    values: Values
    products: int = 0


class Role(Process):
    """The load role, or with a number ``group`` the math role of that group."""

    def __init__(
        self,
        schedule: Schedule,
        machine: Multiprocessor,
        tensors: Mapping[int, Values],
        scalars: Mapping[int, Any],
        group: int | None,
    ) -> None:
        super().__init__(tensors, scalars)
        self.name = "load" if group is None else f"math {group}"
        self._schedule, self._machine = schedule, machine
        self._counts = {ring.name: 0 for ring in schedule.rings}
        self._rings = {b.id: ring for ring in schedule.rings for b in ring.buffers}
        self._products = machine.unit(in_order=True)
        self._stores = machine.unit(in_order=False)
        self._results: dict[int, _Result] = {}
        shared = ((b.id, garbage(b.static_shape() or (), b.dtype)) for b in schedule.shared)
        self.buffers.update(shared)
        if group is not None and schedule.first_row is not None:
            self.vars[schedule.first_row.id] = torch.tensor(group * schedule.rows)

    def blocks(self, blocks: list[Mapping[int, int]]) -> Iterator[Ready]:
        """Run the role for blocks, one after another."""
        own = self._schedule.load if self.name == "load" else self._schedule.math
        for block in blocks:
            self.vars.update({n: torch.tensor(number) for n, number in block.items()})
            yield from self.body(own)
        yield lambda: not self._stores

    def is_step(self, stmt: Stmt) -> bool:
        """True for the steps of schedules."""
        return isinstance(stmt, _STEPS)

    def step(self, stmt: Stmt) -> Iterator[Ready]:
        """One step of the schedule; others may come before each, also where it need not wait."""
        match stmt:
            case Acquire(ring=ring):
                barrier = self._machine.empty(ring, self._slot(ring))
                yield lambda: barrier.passes(self._parity(ring) ^ 1)
                if not ring.is_exchange:
                    full = self._machine.full(ring, self._slot(ring))
                    full.arrive({}, ring.bytes, self._where(stmt))
            case Await(ring=ring):
                awaited = self._machine.full(ring, self._slot(ring))
                yield lambda: awaited.passes(self._parity(ring))
                self._bind(ring)
            case Settle(outstanding=outstanding):
                yield lambda: len(self._products) <= outstanding
                self._reveal(stmt.results)
            case Staged():
                yield lambda: not self._stores
                self._stage(stmt)
            case _:
                yield lambda: True
                self._go_on(stmt)

    def _go_on(self, stmt: Stmt) -> None:
        match stmt:
            case Advance(ring=ring):
                self._counts[ring.name] += 1
            case Release(ring=ring):
                if self.number(stmt.when):
                    slot = self._slot(ring, stmt.behind)
                    self._machine.empty(ring, slot).arrive({}, 0, self._where(stmt))
            case Fetch():
                self._fetch(stmt)
            case Deposit(ring=ring):
                self._bind(ring)
                self.write(stmt.dst, converted(self.read(stmt.src), stmt.dst.dtype))
            case Publish(ring=ring):
                self._machine.full(ring, self._slot(ring)).arrive({}, 0, self._where(stmt))
            case Issue():
                self._issue(stmt)
            case _:
                raise TypeError(f"no model of the step {type(stmt).__name__}")

    def _where(self, stmt: Stmt) -> Where:
        return Where(self.name, stmt, ())

    def _slot(self, ring: Ring, behind: int = 0) -> int:
        return (self._counts[ring.name] - behind) % ring.depth

    def _parity(self, ring: Ring) -> int:
        return self._counts[ring.name] // ring.depth & 1

    def _bind(self, ring: Ring, behind: int = 0) -> None:
        """Let the buffers of a ring name its slot of this round, or of one before."""
        for buffer in ring.buffers:
            self.buffers[buffer.id] = self._machine.slot(buffer, self._slot(ring, behind))

    # -- what runs in its own time ---------------------------------------------------------------
    def _fetch(self, stmt: Fetch) -> None:
        ring, number = stmt.ring, self._slot(stmt.ring)
        slot = self._machine.slot(stmt.dst.buffer, number)
        barrier = self._machine.full(ring, number)
        (size,) = (
            d.bytes
            for b, d in zip(ring.buffers, ring.descriptors, strict=True)
            if b.id == stmt.dst.buffer.id
        )
        source = self.at(stmt.src)
        slot.copy_(garbage(slot.shape, stmt.dst.dtype))

        def land() -> None:
            slot.copy_(source.read().reshape(slot.shape))
            barrier.land((stmt.dst.buffer.id, number, 0), 0, size)

        self._machine.copies.add(land)

    def _stage(self, stmt: Staged) -> None:
        values, target = converted(self.read(stmt.src), stmt.dst.dtype), self.at(stmt.dst)
        leave = target.add if isinstance(stmt, Added) else target.write
        self._stores.add(lambda: leave(values))

    def _issue(self, stmt: Issue) -> None:
        """Start a product: its operands must stay until it ends, and nobody sees its result."""
        c = stmt.c.buffer
        if c.id not in self._results:
            self._results[c.id] = _Result(self.buffers[c.id].clone())
        result = self._results[c.id]
        result.products += 1
        self.buffers[c.id].copy_(garbage(self.buffers[c.id].shape, c.dtype))
        a, b = (self._operand(region, stmt.behind) for region in (stmt.a, stmt.b))
        is_cleared = bool(self.number(stmt.clear))

        def multiply() -> None:
            result.values = multiplied(stmt, a, b, None if is_cleared else result.values)
            result.products -= 1

        self._products.add(multiply)

    def _operand(self, region: Region, behind: int) -> Box:
        ring = self._rings.get(region.buffer.id)
        if ring is None:
            return self.at(region)
        self._bind(ring, behind)
        operand = self.at(region)
        self._bind(ring)
        return operand

    def _reveal(self, results: tuple[Buffer, ...]) -> None:
        """Make results seen whose products have ended."""
        for buffer in results:
            result = self._results.get(buffer.id)
            if result is not None and not result.products:
                self.buffers[buffer.id].copy_(result.values)
                del self._results[buffer.id]

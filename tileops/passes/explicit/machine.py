"""The machine that groups of threads run on: barriers, what each group knows, and shared memory.

A group knows an access when it has happened before: by its own order, through a barrier, or by a
wait for what it started. Two accesses of one element, one of them a write, must be known to each
other; how a run goes does not decide whether they are, so a lucky order hides nothing.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tileops.ir import explicit, fold
from tileops.ir.expr import Buffer
from tileops.ir.node import Body, Stmt
from tileops.ir.stmt import Bind, Gemm, Intrinsic, Store
from tileops.ir.walk import read_buffers, view_roots, walk, written_buffers, written_ids
from tileops.passes.explicit.accesses import Access, Box, accesses_of, bytes_of, covers, meet
from tileops.passes.explicit.threads import Group
from tileops.passes.explicit.values import Env, World
from tileops.passes.machine.barriers import Barrier, Known, learn
from tileops.passes.machine.events import Fault, Where

Key = tuple[int, int]  # a barrier: the id of its array (-1: the hardware's) and its index
_NAMED = -1


class Conflict(NamedTuple):
    """Two accesses in no order; ``later``: the write is an asynchronous copy."""

    first: Stmt
    second: Stmt
    buffer: Buffer
    write: Stmt
    later: bool


class _Record(NamedTuple):
    box: Box
    writes: bool
    key: tuple[str, int]
    number: int
    stmt: Stmt


@dataclass
class _Group:
    known: Known = field(default_factory=dict)
    clock: int = 0
    products: int = 0
    stores: int = 0
    copies: int = 0
    # Of each group of copies, the number of the last one.
    grouped: list[int] = field(default_factory=list)
    # Registers of products in flight: number, result, operand.
    flying: list[tuple[int, int, int | None]] = field(default_factory=list)


@dataclass
class _Landing:
    """What still happens to a barrier: bytes that land, or arrivals after copies."""

    barrier: Key
    bytes: int
    arrivals: int
    known: Known


class Machine:
    """One block. With ``rng``, copies land in any order and time; else at once."""

    def __init__(
        self,
        groups: Sequence[Group],
        world: World,
        body: Body,
        rng: random.Random | None = None,
    ) -> None:
        self.groups, self.world, self._rng = groups, world, rng
        self._roots = view_roots(body)
        self.written_ids = written_ids(body)
        # The values of names, by id.
        self.bound = {s.var.id: s.value for s in walk(body) if isinstance(s, Bind)}
        self.envs: list[Env] = [{} for _ in groups]
        self.conflicts: dict[tuple[int, int, int], Conflict] = {}
        self._barriers = {
            (array, n): Barrier(count)
            for array, counts in arrays_of(body)
            for n, count in enumerate(counts)
        }
        self._states = [_Group() for _ in groups]
        self._records: dict[int, list[_Record]] = {}
        self._landings: list[_Landing] = []
        self.performed = 0
        self._shares: dict[int, bool] = {}  # statements by id, which live as long as the launch
        self._arrived: dict[tuple[int, int], int] = {}  # group and named barrier to its phase
        self._started: dict[Key, int] = {}  # copies on each barrier
        # Of each buffer, how often a statement wrote a box.
        self._written: dict[int, dict[tuple[Box, int], int]] = {}

    def snapshot(self) -> Machine:
        """A machine in the same state that goes its own way."""
        other = copy.copy(self)
        other.envs = [dict(env) for env in self.envs]
        other.conflicts = dict(self.conflicts)
        other._barriers = {k: _copied(b) for k, b in self._barriers.items()}
        other._states = [
            _Group(dict(s.known), s.clock, s.products, s.stores, s.copies, list(s.grouped),
                   list(s.flying))
            for s in self._states
        ]  # fmt: skip
        other._records = {n: list(r) for n, r in self._records.items()}
        other._landings = list(self._landings)
        other._arrived = dict(self._arrived)
        other._started = dict(self._started)
        other._written = {n: dict(w) for n, w in self._written.items()}
        return other

    # -- values --------------------------------------------------------------------------------
    def value(self, group: int, expr: object) -> int:
        """The value of an integer or a condition of a group."""
        return int(self.world.value(expr, self.envs[group]))  # type: ignore[arg-type]

    # -- steps ---------------------------------------------------------------------------------
    def perform(self, stmt: Stmt, by: Sequence[int]) -> bool:
        """Run a statement by the groups ``by`` together; False if it has to wait."""
        self.performed += 1
        match stmt:
            case explicit.BarrierStep():
                return all(self._barrier_step(stmt, g) for g in by)
            case explicit.NamedBarrier():
                return all(self._named(stmt, g) for g in by)
            case explicit.CopyLater():
                self._copy_later(stmt, by[0])
            case _ if isinstance(stmt, explicit.OWN_STEPS):
                for g in by:
                    self._own_step(stmt, g)
            case _:
                self._together(stmt, by)
        return True

    def _own_step(self, stmt: Stmt, group: int) -> None:
        state = self._states[group]
        match stmt:
            case explicit.AllocBarriers():
                return
            case explicit.GroupCopies():
                state.grouped.append(state.copies)
            case explicit.EndGemms(outstanding=n):
                self._end_products(group, n)
            case explicit.EndCopies(outstanding=n):
                ended = state.grouped[: max(0, len(state.grouped) - n)]
                if ended:
                    state.known["cp", group] = ended[-1]
            case explicit.EndStores(outstanding=n):
                state.known["store", group] = max(0, state.stores - n)
            case _:
                raise TypeError(f"no model of {type(stmt).__name__}")

    def _accesses(self, stmt: Stmt, group: int) -> list[Access]:
        """What a statement reads and writes of memory that groups share."""
        if id(stmt) not in self._shares:
            used = (b for s in walk((stmt,)) for b in (*read_buffers(s), *written_buffers(s)))
            self._shares[id(stmt)] = any(b.scope in ("shared", "global") for b in used)
        if not self._shares[id(stmt)]:
            return []
        return accesses_of(stmt, self.world, self.envs[group])

    def _where(self, stmt: Stmt, group: int) -> Where:
        return Where(str(self.groups[group]), stmt, ())

    def barrier(self, stmt: explicit.BarrierStep, group: int) -> tuple[Key, Barrier]:
        """The barrier that a step is about."""
        slot = self.value(group, stmt.slot)
        key = stmt.barrier.id, slot
        if key not in self._barriers:
            raise Fault(f"{stmt.barrier.name} has no barrier {slot}", self._where(stmt, group))
        return key, self._barriers[key]

    def _barrier_step(self, stmt: explicit.BarrierStep, group: int) -> bool:
        key, barrier = self.barrier(stmt, group)
        state, count = self._states[group], self.groups[group].size
        match stmt:
            case explicit.BarrierArrive():
                barrier.arrive(state.known, 0, self._where(stmt, group), count)
                self._tick(group)
            case explicit.BarrierExpect(bytes=n):
                barrier.bytes += n
            case explicit.BarrierArriveAfterCopies():
                known = {**state.known, ("cp", group): state.copies}
                self._landings.append(_Landing(key, 0, count, known))
                self._tick(group)
            case explicit.BarrierWait(parity=parity):
                value = self.value(group, parity)
                if value not in (0, 1):
                    raise Fault(f"waits for parity {value}", self._where(stmt, group))
                if not barrier.passes(value):
                    return False
                learn(state.known, barrier.known)
            case _:
                raise TypeError(f"no model of {type(stmt).__name__}")
        self._settle_landings()
        return True

    def _named(self, stmt: explicit.NamedBarrier, group: int) -> bool:
        key = _NAMED, stmt.number
        barrier = self._barriers.setdefault(key, Barrier(stmt.threads))
        if not barrier.is_half_way:
            barrier.expected = barrier.missing = stmt.threads
        if barrier.expected != stmt.threads:
            raise Fault(
                f"named barrier {stmt.number} is for {barrier.expected} threads elsewhere",
                self._where(stmt, group),
            )
        state, here = self._states[group], (group, stmt.number)
        if here not in self._arrived:
            self._arrived[here] = barrier.phase
            count = self.groups[group].size
            barrier.arrive(state.known, 0, self._where(stmt, group), count)
            self._tick(group)
        if stmt.waits and barrier.phase == self._arrived[here]:
            return False
        del self._arrived[here]
        if stmt.waits:
            learn(state.known, barrier.known)
        return True

    def _copy_later(self, stmt: explicit.CopyLater, group: int) -> None:
        state = self._states[group]
        found = self._accesses(stmt, group)
        if stmt.barrier is None:
            state.stores += 1
            for access in found:
                if not access.writes:
                    self._access(access, stmt, group, ("store", group), state.stores)
                else:
                    self._access(access, stmt, group, ("stored", group), state.stores)
            return
        assert stmt.slot is not None
        step = explicit.BarrierExpect(stmt.barrier, stmt.slot, 0, **stmt.provenance)
        key, barrier = self.barrier(step, group)
        size = bytes_of(stmt)
        if size is None:
            raise Fault("the bytes of a T.tma_copy are known at run time", self._where(stmt, group))
        number = self._started[key] = self._started.get(key, 0) + 1
        mark = (f"tma {key[0]}", key[1])
        for access in found:
            self._access(access, stmt, group, mark, number)
        barrier.bytes += size
        self._landings.append(_Landing(key, size, 0, {mark: number}))
        self._settle_landings()

    def _settle_landings(self) -> None:
        if self._rng is None:
            while self.land():
                pass

    def land(self) -> bool:
        """Let one copy land; False if none is in flight."""
        if not self._landings:
            return False
        number = 0 if self._rng is None else self._rng.randrange(len(self._landings))
        landing = self._landings.pop(number)
        barrier = self._barriers[landing.barrier]
        if landing.arrivals:
            where = Where("copies", explicit.GroupCopies(), ())
            barrier.arrive(landing.known, 0, where, landing.arrivals)
        else:
            barrier.transfer(landing.known, landing.bytes)
        return True

    def _end_products(self, group: int, outstanding: int) -> None:
        state = self._states[group]
        ended = max(0, state.products - outstanding)
        state.known["gemm", group] = max(ended, state.known.get(("gemm", group), 0))
        state.flying = [f for f in state.flying if f[0] > ended]

    # -- statements ----------------------------------------------------------------------------
    def _together(self, stmt: Stmt, by: Sequence[int]) -> None:
        """A statement that is no step: all of ``by`` meet, one of them does it, all know it."""
        group = by[0]
        found = self._accesses(stmt, group)
        # All wait for all around a statement that uses shared memory.
        meets = any(a.buffer.scope == "shared" for a in found) or isinstance(stmt, Intrinsic)
        if meets:
            self._meet(by)
        state = self._states[group]
        self._registers(stmt, group)
        match stmt:
            case explicit.GemmLater():
                state.products += 1
                key, count = ("gemm", group), state.products
                operand = stmt.a.buffer.id if stmt.a.buffer.level == 2 else None
                state.flying.append((count, stmt.c.buffer.id, operand))
            case _:
                self._tick(group)
                key, count = ("own", group), state.clock
        for access in found:
            mark, number = key, count
            if access.writes and (access.later or isinstance(stmt, explicit.GroupedCopy)):
                state.copies += 1
                mark, number = ("cp", group), state.copies
            self._access(access, stmt, group, mark, number)
        if isinstance(stmt, explicit.GroupedCopy):
            state.grouped.append(state.copies)
        for g in by:
            self._bind(stmt, g)
        if meets:
            self._meet(by)

    def _meet(self, by: Sequence[int]) -> None:
        """All of ``by`` know what any of them knows."""
        every: Known = {}
        for g in by:
            learn(every, self._states[g].known)
        for g in by:
            self._states[g].known = dict(every)

    def _tick(self, group: int) -> None:
        state = self._states[group]
        state.clock += 1
        state.known["own", group] = state.clock

    def _bind(self, stmt: Stmt, group: int) -> None:
        env = self.envs[group]
        match stmt:
            case Bind(var=var, value=value):
                env[var.id] = fold.const(self.world.value(value, env), var.dtype)
            case Store(buffer=buffer, value=value) if buffer.scope == "var":
                env[buffer.id] = fold.const(self.world.value(value, env), buffer.dtype)
            case _ if (init := getattr(stmt, "init", None)) is not None:
                buffer = stmt.buffer  # type: ignore[attr-defined]
                env[buffer.id] = fold.const(self.world.value(init, env), buffer.dtype)

    def _registers(self, stmt: Stmt, group: int) -> None:
        """Fault where a statement touches the registers of a product in flight."""
        state = self._states[group]
        if isinstance(stmt, Gemm) and not isinstance(stmt, explicit.GemmLater):
            self._end_products(group, 0)
        if not state.flying:
            return
        touched = {b.id for s in walk((stmt,)) for b in (*read_buffers(s), *written_buffers(s))}
        changed = {b.id for s in walk((stmt,)) for b in written_buffers(s)}
        if isinstance(stmt, explicit.GemmLater):
            touched = {stmt.a.buffer.id}
        for _, result, operand in state.flying:
            if result in touched:
                raise Fault("touches the result of a product in flight", self._where(stmt, group))
            if operand in changed:
                raise Fault("changes an operand of a product in flight", self._where(stmt, group))

    def _access(
        self, access: Access, stmt: Stmt, group: int, key: tuple[str, int], count: int
    ) -> None:
        known = self._states[group].known
        root = self._roots.get(access.buffer.id)
        # A view has another shape: it is taken as the whole of its storage.
        buffer, box = (access.buffer, access.box) if root is None else (root, ())
        kept: list[_Record] = []
        for record in self._records.get(buffer.id, []):
            is_known = known.get(record.key, 0) >= record.number
            if (access.writes or record.writes) and not is_known and meet(box, record.box):
                write = stmt if access.writes else record.stmt
                later = (key if access.writes else record.key)[0] != "own"
                found = Conflict(record.stmt, stmt, buffer, write, later)
                self.conflicts.setdefault((id(record.stmt), id(stmt), buffer.id), found)
            again = record.key == key and record.stmt is stmt and record.box == box
            over = is_known and access.writes and covers(box, record.box)
            if not over and not (again and record.writes == access.writes):
                kept.append(record)
        kept.append(_Record(box, access.writes, key, count, stmt))
        self._records[buffer.id] = kept
        if access.writes:
            counts = self._written.setdefault(buffer.id, {})
            counts[box, id(stmt)] = counts.get((box, id(stmt)), 0) + 1

    # -- the end -------------------------------------------------------------------------------
    def is_written_once(self, conflict: Conflict) -> bool:
        """True if nothing but the write of a conflict ever writes those elements, and only once.

        An asynchronous copy does not count: whoever reads waits for it.
        """
        if conflict.later:
            return False
        found = self._written.get(conflict.buffer.id, {})
        own = [
            box for (box, stmt), n in found.items() if stmt == id(conflict.write) for _ in range(n)
        ]
        return len(own) == 1 and not any(
            meet(own[0], box) for box, stmt in found if stmt != id(conflict.write)
        )

    def left_half_way(self) -> Iterator[tuple[Key, Barrier]]:
        """The barriers whose last phase has not completed."""
        for key, barrier in self._barriers.items():
            if barrier.is_half_way:
                yield key, barrier


def arrays_of(body: Body) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The arrays of barriers of a launch, each with the arrivals of its barriers."""
    for stmt in walk(body):
        if isinstance(stmt, explicit.AllocBarriers):
            yield stmt.buffer.id, stmt.counts


def _copied(barrier: Barrier) -> Barrier:
    other = copy.copy(barrier)
    other.known, other.gathered = dict(barrier.known), dict(barrier.gathered)
    return other

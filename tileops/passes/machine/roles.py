"""The events of one role in one world, and the rules that a role keeps or breaks by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Var
from tileops.ir.node import Body, Stmt
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
from tileops.ir.stmt import Assume, Bind, Break, Continue, For, If, Parallel, While
from tileops.ir.walk import (
    read_buffers,
    sub_bodies,
    view_roots,
    walk,
    walk_expr,
    written_buffers,
)
from tileops.passes.machine.events import (
    Arrive,
    End,
    Event,
    Fault,
    Place,
    Put,
    Read,
    Wait,
    Where,
    Write,
)
from tileops.passes.machine.worlds import Env, Unusable, World, defined_vars

LOAD = "load"
# A loop of unknown length in the math role alone runs this often at most.
_MOST_TURNS = 64
_STEPS = (RingStep, Fetch, Deposit, Issue, Settle)
# The identities of the innermost loop around a step, or 0, and of the step: parts of a loop that
# was cut share their statements.
Met = tuple[int, int]


class _Escape(Exception):
    """The innermost loop ends, or goes on with its next iteration."""

    def __init__(self, *, ends: bool) -> None:
        super().__init__()
        self.ends = ends


@dataclass(frozen=True)
class _Product:
    """A product in flight: its result, its operands that no ring holds, and the rounds it reads."""

    number: int
    result: int
    operands: frozenset[int]
    rounds: frozenset[tuple[str, int]]


@dataclass
class Facts:
    """What a walk needs of the statements of a schedule, found once."""

    schedule: Schedule
    rings: dict[int, Ring] = field(init=False)
    roots: dict[int, int] = field(init=False)
    touched: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rings = {b.id: r for r in self.schedule.rings for b in r.buffers}
        roots = view_roots((*self.schedule.load, *self.schedule.math))
        self.roots = {n: b.id for n, b in roots.items()}

    def steps(self) -> set[Met]:
        """All steps of both roles."""
        return {*_steps(self.schedule.load, 0), *_steps(self.schedule.math, 0)}

    def tiles(self, stmt: Stmt) -> frozenset[int]:
        """The tiles that a statement or one in its nest reads or writes, views resolved."""
        found = self.touched.get(id(stmt))
        if found is None:
            nested = () if isinstance(stmt, (For, If, While)) else walk((stmt,))
            found = frozenset(
                self.roots.get(b.id, b.id)
                for s in (stmt, *nested)
                for b in (*read_buffers(s), *written_buffers(s))
                if b.is_on_chip
            )
            self.touched[id(stmt)] = found
        return found


def _steps(body: Body, loop: int) -> Iterator[Met]:
    for stmt in body:
        if isinstance(stmt, _STEPS):
            yield loop, id(stmt)
        inside = id(stmt) if isinstance(stmt, (For, While)) else loop
        for inner in sub_bodies(stmt):
            yield from _steps(inner, inside)


class Role:
    """One process: ``load``, or the math role of one group. ``events`` are what it does."""

    def __init__(self, facts: Facts, world: World, group: int | None, most_events: int) -> None:
        schedule = facts.schedule
        self.name = LOAD if group is None else f"math {group}"
        self.events: list[Event] = []
        self.seen: set[Met] = set()
        # Of each ring, the rounds passed; and that after each block.
        self.counts = {ring.name: 0 for ring in schedule.rings}
        self.ends: list[dict[str, int]] = []
        self.schedule = schedule
        self._facts, self._world, self._group = facts, world, group
        self._most = most_events
        self._env: Env = {}
        self._trips: list[tuple[str, int]] = []
        self._innermost = 0
        # Of each ring, the last round acquired, and the rounds released.
        self._acquired: dict[str, int] = {}
        self._released: dict[str, set[int]] = {ring.name: set() for ring in schedule.rings}
        # The parts of exchanged buffers that are there, by buffer and round.
        self._deposited: set[tuple[int, int]] = set()
        # What each shared tile was copied from, until that changes.
        self._copied: dict[int, int] = {}
        self._products = 0
        self._flying: list[_Product] = []
        # Results whose product has ended and that no Settle has named.
        self._unnamed: set[int] = set()

    def run(self) -> None:
        """Walk all blocks; Fault for a rule that this role breaks by itself."""
        schedule = self._facts.schedule
        body = schedule.load if self._group is None else schedule.math
        for number, block in enumerate(self._world.blocks):
            self._env = {**self._world.sizes, **block}
            if self._group is not None and schedule.first_row is not None:
                var = schedule.first_row
                self._env[var.id] = fold.const(self._group * schedule.rows, var.dtype)
            self._trips = [("block", number)] if schedule.persistent else []
            self._body(body)
            self._end_block()

    # -- statements ------------------------------------------------------------------------------
    def _body(self, body: Body) -> None:
        for stmt in body:
            self._stmt(stmt)

    def _stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, _STEPS):
            self._step(stmt)
            return
        self._require_settled(stmt)
        self._keep_copies(stmt)
        match stmt:
            case For():
                self._loop(stmt)
            case While():
                self._turns(stmt)
            case If(cond=cond):
                self._body(stmt.then if self._value(cond, stmt) else stmt.orelse)
            case Bind(var=var, value=value):
                self._env[var.id] = fold.const(self._value(value, stmt), var.dtype)
            case Assume(cond=cond):
                if not self._value(cond, stmt):
                    raise Unusable
            case Break() | Continue():
                raise _Escape(ends=isinstance(stmt, Break))
            case Parallel():
                return  # its statements are of elements: none is a step
            case _ if stmt.BODIES:
                raise TypeError(f"no model of the statement {type(stmt).__name__}")
            case _:
                for var in defined_vars(stmt):
                    self._env[var.id] = self._world.unknown(var)

    def _loop(self, loop: For) -> None:
        start, stop = (int(self._value(e, loop)) for e in (loop.start, loop.stop))
        for number in range(start, stop):
            self._env[loop.var.id] = fold.const(number, loop.var.dtype)
            if not self._turn(loop, (str(loop.var), number)):
                break

    def _keep_copies(self, stmt: Stmt) -> None:
        """Shared tiles are as old as what they were copied from."""
        if isinstance(stmt, Share):
            self._copied[stmt.dst.buffer.id] = stmt.src.buffer.id
        elif self._copied and not isinstance(stmt, (For, If, While)):
            written = {b.id for s in walk((stmt,)) for b in written_buffers(s)}
            self._copied = {n: m for n, m in self._copied.items() if m not in written}

    def _turns(self, loop: While) -> None:
        number = 0
        while self._value(loop.cond, loop):
            if number == _MOST_TURNS:
                raise Unusable
            if not self._turn(loop, ("turn", number)):
                break
            number += 1

    def _turn(self, loop: For | While, trip: tuple[str, int]) -> bool:
        """Run one iteration; False if it leaves the loop."""
        if len(self.events) > self._most:
            raise Unusable
        outer, self._innermost = self._innermost, id(loop)
        self._trips.append(trip)
        try:
            self._body(loop.body)
        except _Escape as escape:
            return not escape.ends
        finally:
            self._trips.pop()
            self._innermost = outer
        return True

    def _value(self, expr: Expr, stmt: Stmt) -> int | float | bool:
        self._require_known(expr, stmt)
        return self._world.value(expr, self._env)

    def _require_known(self, expr: Expr, stmt: Stmt) -> None:
        """Fault for a variable, or in the load role a tile, that this role does not have."""
        for e in walk_expr(expr):
            if isinstance(e, Var) and e.id not in self._env:
                raise Fault(f"`{e}` has no value in this role", self._where(stmt))
            if isinstance(e, Load) and e.buffer.is_on_chip and self._group is None:
                raise Fault(f"`{e.buffer}` has no value in this role", self._where(stmt))

    def _where(self, stmt: Stmt, ring: Ring | None = None, number: int = 0) -> Where:
        name = "" if ring is None else ring.name
        return Where(self.name, stmt, tuple(self._trips), name, number)

    # -- steps -----------------------------------------------------------------------------------
    def _step(self, stmt: Stmt) -> None:
        self.seen.add((self._innermost, id(stmt)))
        if self._is_other(stmt):
            raise Fault("a step of the other role", self._where(stmt))
        match stmt:
            case Acquire(ring=ring):
                where = self._where(stmt, ring, self.counts[ring.name])
                slot, parity = self._slot(ring), self._parity(ring)
                self.events.append(Wait(where, (f"{ring}.empty", slot), parity ^ 1))
                if not ring.is_exchange:
                    self.events.append(Arrive(where, (f"{ring}.full", slot), ring.bytes))
                self._acquired[ring.name] = self.counts[ring.name]
            case Deposit():
                self._deposit(stmt)
            case Publish(ring=ring):
                self._publish(stmt, ring)
            case Fetch():
                self._fetch(stmt)
            case Await(ring=ring):
                where = self._where(stmt, ring, self.counts[ring.name])
                slot, parity = self._slot(ring), self._parity(ring)
                self.events.append(Wait(where, (f"{ring}.full", slot), parity))
            case Issue():
                self._issue(stmt)
            case Settle():
                self._settle(stmt)
            case Release():
                self._release(stmt)
            case Advance(ring=ring):
                self.counts[ring.name] += 1
            case _:
                raise TypeError(f"no model of the step {type(stmt).__name__}")

    def _is_other(self, stmt: Stmt) -> bool:
        """True for a step that only the other role does."""
        loads = self._group is None
        match stmt:
            case Advance(ring=ring):
                return loads and ring.is_exchange
            case Acquire(ring=ring):
                return loads == ring.is_exchange
            case Fetch():
                return not loads
        return loads

    def _slot(self, ring: Ring) -> int:
        return self.counts[ring.name] % ring.depth

    def _parity(self, ring: Ring) -> int:
        return self.counts[ring.name] // ring.depth & 1

    def _fetch(self, stmt: Fetch) -> None:
        ring, number = stmt.ring, self.counts[stmt.ring.name]
        where = self._where(stmt, ring, number)
        if self._acquired.get(ring.name) != number:
            raise Fault("fetches into a slot that it has not acquired", where)
        for start in stmt.src.starts:
            self._require_known(start, stmt)
        boxes = {b.id: d for b, d in zip(ring.buffers, ring.descriptors, strict=True)}
        if stmt.dst.buffer.id not in boxes:
            raise Fault(f"{ring} does not hold `{stmt.dst.buffer}`", where)
        place = (stmt.dst.buffer.id, self._slot(ring), 0)
        size = boxes[stmt.dst.buffer.id].bytes
        self.events.append(Write(where, place, number, (f"{ring}.full", place[1]), size))

    def _deposit(self, stmt: Deposit) -> None:
        assert self._group is not None
        self._require_settled(stmt, besides={stmt.dst.buffer.id})
        ring, number = stmt.ring, self.counts[stmt.ring.name]
        where = self._where(stmt, ring, number)
        if self._acquired.get(ring.name) != number:
            raise Fault("deposits in a slot that it has not acquired", where)
        if not ring.is_exchange or stmt.dst.buffer not in ring.buffers:
            raise Fault(f"{ring} does not exchange `{stmt.dst.buffer}`", where)
        buffer = stmt.dst.buffer.id
        self._deposited.add((buffer, number))
        self.events.append(Put(where, (buffer, self._slot(ring), self._group), number))

    def _publish(self, stmt: Publish, ring: Ring) -> None:
        number = self.counts[ring.name]
        where = self._where(stmt, ring, number)
        if any((b.id, number) not in self._deposited for b in ring.buffers):
            raise Fault("publishes a slot before its part is there", where)
        self.events.append(Arrive(where, (f"{ring}.full", self._slot(ring))))

    def _issue(self, stmt: Issue) -> None:
        assert self._group is not None
        result = self._facts.roots.get(stmt.c.buffer.id, stmt.c.buffer.id)
        rounds: set[tuple[str, int]] = set()
        operands: set[int] = set()
        for buffer in (stmt.a.buffer, stmt.b.buffer):
            ring = self._facts.rings.get(buffer.id)
            if ring is None:
                operands.add(self._facts.roots.get(buffer.id, buffer.id))
                self._require_ended(operands, stmt, as_operand=True)
                if buffer in self.schedule.shared and buffer.id not in self._copied:
                    raise Fault(f"`{buffer}` is not what it is copied from", self._where(stmt))
                continue
            number = self.counts[ring.name] - stmt.behind
            where = self._where(stmt, ring, number)
            if number < 0 or not 0 <= stmt.behind <= ring.depth:
                raise Fault("reads a round that has not been", where)
            if number in self._released[ring.name]:
                raise Fault("reads a slot that this role has released", where)
            rounds.add((ring.name, number))
            for part in range(self._facts.schedule.groups if ring.is_exchange else 1):
                place: Place = (buffer.id, number % ring.depth, part)
                self.events.append(Read(where, place, number, self._group, self._products + 1))
        if any(result in p.operands for p in self._flying):
            raise Fault("writes an operand of a product in flight", self._where(stmt))
        self._products += 1
        product = _Product(self._products, result, frozenset(operands), frozenset(rounds))
        self._flying.append(product)
        self._unnamed.discard(result)

    def _settle(self, stmt: Settle) -> None:
        assert self._group is not None
        if not stmt.results:
            raise Fault("names no result", self._where(stmt))
        ended = self._flying[: max(0, len(self._flying) - stmt.outstanding)]
        self._flying = self._flying[len(ended) :]
        self._unnamed |= {p.result for p in ended}
        self._unnamed -= {self._facts.roots.get(b.id, b.id) for b in stmt.results}
        if ended:
            self.events.append(End(self._where(stmt), self._group, ended[-1].number))

    def _release(self, stmt: Release) -> None:
        self._require_settled(stmt)
        ring, count = stmt.ring, self.counts[stmt.ring.name]
        if const_value(stmt.when) != 1 and not self._value(stmt.when, stmt):
            return
        number = count - stmt.behind
        where = self._where(stmt, ring, number)
        if number < 0 or not 0 <= stmt.behind <= ring.depth:
            raise Fault("releases a round that has not been", where)
        if number in self._released[ring.name]:
            raise Fault("releases a round twice", where)
        if any((ring.name, number) in p.rounds for p in self._flying):
            raise Fault("releases a slot that a product in flight reads", where)
        self._released[ring.name].add(number)
        self.events.append(Arrive(where, (f"{ring}.empty", number % ring.depth)))

    # -- rules -----------------------------------------------------------------------------------
    def _require_settled(self, stmt: Stmt, besides: Collection[int] = ()) -> None:
        """Fault where a statement that is not a product touches a tile of one in flight."""
        tiles = self._facts.tiles(stmt) - frozenset(besides)
        if not tiles:
            return
        self._require_ended(tiles, stmt)
        held = tiles & self._facts.rings.keys()
        for buffer in held:
            self._read_slot(stmt, buffer)
        if any(p.operands & tiles for p in self._flying):
            raise Fault("touches an operand of a product in flight", self._where(stmt))

    def _read_slot(self, stmt: Stmt, buffer: int) -> None:
        """A nest reads a slot, and has done so when it ends."""
        written = (b.id for s in walk((stmt,)) for b in written_buffers(s))
        if self._group is None or not isinstance(stmt, Parallel) or buffer in written:
            raise Fault("a slot of a ring is for fetches and products", self._where(stmt))
        ring = self._facts.rings[buffer]
        number = self.counts[ring.name]
        where = self._where(stmt, ring, number)
        if number in self._released[ring.name]:
            raise Fault("reads a slot that this role has released", where)
        place: Place = (buffer, self._slot(ring), 0)
        self.events.append(Read(where, place, number, self._group, 0))

    def _require_ended(
        self, tiles: frozenset[int] | set[int], stmt: Stmt, *, as_operand: bool = False
    ) -> None:
        does = "multiplies" if as_operand else "touches"
        if any(p.result in tiles for p in self._flying):
            raise Fault(f"{does} the result of a product in flight", self._where(stmt))
        if tiles & self._unnamed:
            raise Fault(f"{does} a result that no settle names", self._where(stmt))

    def _end_block(self) -> None:
        """The rules at the end of a block: nothing in flight, every slot released."""
        block = f" of block {len(self.ends)}" if self._facts.schedule.persistent else ""
        if self._flying:
            raise Fault(f"{self.name}: a product is in flight at the end{block}")
        before = self.ends[-1] if self.ends else {}
        if self._group is not None:
            for ring, count in self.counts.items():
                kept = set(range(before.get(ring, 0), count)) - self._released[ring]
                if kept:
                    left = f"round {min(kept)} of {ring}"
                    raise Fault(f"{self.name}: {left} is not released at the end{block}")
        self.ends.append(dict(self.counts))


def role_events(facts: Facts, world: World, most_events: int) -> list[Role]:
    """All roles of a schedule in one world: the load role, then each group.

    Fault where a role breaks a rule, or where they pass different numbers of rounds in a block.
    Unusable for a world in which a role runs for more than ``most_events``.
    """
    roles = [
        Role(facts, world, group, most_events) for group in (None, *range(facts.schedule.groups))
    ]
    for role in roles:
        role.run()
    for role, (number, name, one, other) in _disagreements(roles):
        raise Fault(
            f"{name} passes {one} rounds in another role and {other} in {role.name} up to the end "
            f"of block {number}"
        )
    return roles


def _disagreements(roles: list[Role]) -> Iterator[tuple[Role, tuple[int, str, int, int]]]:
    first, *groups = roles
    exchanged = {ring.name for ring in first.schedule.rings if ring.is_exchange}
    for role in groups:
        for number, own in enumerate(role.ends):
            for name, count in own.items():
                other = (groups[0] if name in exchanged else first).ends[number][name]
                if other != count:
                    yield role, (number, name, other, count)

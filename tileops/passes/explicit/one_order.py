"""One order of the statements of all groups that the barriers allow, the same in all iterations.

It is found on the machine: each group runs until it has to wait for another. Loops of several
groups with the same range become one loop, and so do conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tileops.ir import explicit, fold
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.stmt import Copy, For, Gemm, If, Intrinsic, Parallel
from tileops.ir.walk import map_bodies, map_body_exprs, walk_expr
from tileops.passes.explicit.check_roles import unsupported, with_groups
from tileops.passes.explicit.machine import Conflict, Machine
from tileops.passes.explicit.threads import is_ordered_inside
from tileops.passes.explicit.tile_copies import tile_copies

# In which iterations an order is looked for, from the first one on.
_TRIES = 6

By = tuple[int, ...]


class Stuck(Exception):
    """No group can go on."""

    def __init__(self, stmt: Stmt | None) -> None:
        super().__init__()
        self.stmt = stmt


@dataclass(frozen=True)
class Step:
    """A statement in its place: which groups run it, and what is in it, in one order.

    ``bodies`` are those of a loop or condition that groups meet in; None for other statements.
    ``twins`` are the variables of the loops that became one with this loop.
    """

    stmt: Stmt
    by: By
    bodies: tuple[tuple[Step, ...], ...] | None = None
    twins: tuple[Var, ...] = ()


Steps = tuple[Step, ...]


@dataclass
class _Stream:
    """What one group still runs of one level."""

    group: int
    items: list[tuple[Stmt, By]]
    at: int = 0

    @property
    def head(self) -> tuple[Stmt, By] | None:
        return self.items[self.at] if self.at < len(self.items) else None


@dataclass
class Orderer:
    """The search on one machine. ``late``: statements that others must have run before, by id."""

    machine: Machine
    late: Mapping[int, set[int]]
    done: set[int] = field(default_factory=set)
    # The variables of loops that became one with another loop, with that loop's.
    names: dict[int, Expr] = field(default_factory=dict)

    def ordered(self, bodies: Mapping[int, Sequence[tuple[Stmt, By]]]) -> Steps:
        """What the groups run, in one order, from now on; Stuck where there is none."""
        streams = [_Stream(group, list(items)) for group, items in bodies.items()]
        out: list[Step] = []
        while any(s.head is not None for s in streams):
            if any(self._advance(s, streams, out) for s in streams):
                continue
            if self._joined(streams, out):
                continue
            if not any(self._advance(s, streams, out, alone=True) for s in streams):
                raise Stuck(next((s.head[0] for s in streams if s.head is not None), None))
        return tuple(out)

    def level(self, body: Body, by: By) -> dict[int, list[tuple[Stmt, By]]]:
        """The statements of one level, by group."""
        found: dict[int, list[tuple[Stmt, By]]] = {g: [] for g in by}
        for stmt, those in with_groups(body, self.machine.groups, by):
            for group in those:
                found[group].append((stmt, those))
        return found

    def _advance(
        self, stream: _Stream, streams: list[_Stream], out: list[Step], *, alone: bool = False
    ) -> bool:
        """Let a group run until it waits; False if it waits at once.

        It waits at a loop or condition that another group has too, unless it goes on ``alone``.
        """
        moved = False
        while stream.head is not None:
            stmt, by = stream.head
            partners = [s for s in streams if s.group in by]
            if len(by) > 1 and not isinstance(stmt, explicit.OWN_STEPS):
                if any(s.head is None or s.head[0] is not stmt for s in partners):
                    return moved
                step = self._inside(stmt, by) if is_ordered_inside(stmt) else self._done(stmt, by)
            elif is_ordered_inside(stmt):
                if not alone and self._has_twin(stmt, stream, streams):
                    return moved
                step, alone = self._alone(stmt, by), False
                partners = [stream]
            elif isinstance(stmt, explicit.CopyLater) and by[0] != stream.group:
                stream.at, moved = stream.at + 1, True
                continue
            else:
                step = self._done(stmt, (stream.group,))
                partners = [stream]
            if step is None:
                return moved
            out.append(step)
            for partner in partners:
                partner.at += 1
            moved = True
        return moved

    def _done(self, stmt: Stmt, by: By) -> Step | None:
        if not self.late.get(id(stmt), set()) <= self.done:
            return None
        if not self.machine.perform(stmt, by):
            return None
        self.done.add(id(stmt))
        return Step(stmt, by)

    def _alone(self, stmt: Stmt, by: By) -> Step | None:
        """A loop or condition of one group, if it runs to its end without the others."""
        before, done = self.machine.snapshot(), set(self.done)
        try:
            return self._inside(stmt, by)
        except Stuck:
            self.machine, self.done = before, done
            return None

    def _inside(self, stmt: Stmt, by: By) -> Step:
        return self._of(dict.fromkeys(by, stmt), stmt, by)

    def _of(self, each: Mapping[int, Stmt], first: Stmt, by: By) -> Step:
        """A loop or condition that each group has as a statement, its own or the same."""
        match first:
            case For():
                return self._loop({g: s for g, s in each.items() if isinstance(s, For)}, first, by)
            case If():
                return self._branch({g: s for g, s in each.items() if isinstance(s, If)}, first, by)
        raise unsupported(first)

    def _levels(self, each: Mapping[int, Body], by: By) -> dict[int, list[tuple[Stmt, By]]]:
        found: dict[int, list[tuple[Stmt, By]]] = {}
        for group, body in each.items():
            same = tuple(g for g in by if each[g] is body)
            found[group] = self.level(body, same)[group]
        return found

    # -- loops -----------------------------------------------------------------------------------
    def _loop(self, each: Mapping[int, For], first: For, by: By) -> Step:
        lead = by[0]
        start = self.machine.value(lead, first.start)
        stop = self.machine.value(lead, first.stop)
        vars_ = {g: s.var for g, s in each.items()}
        bodies = self._levels({g: s.body for g, s in each.items()}, by)
        twins = tuple(dict.fromkeys(v for v in vars_.values() if v != first.var))

        self.names |= {v.id: first.var for v in twins}

        def turn(number: int) -> None:
            for g, var in vars_.items():
                self.machine.envs[g][var.id] = fold.const(number, var.dtype)

        if stop <= start:
            return self._unrun(first, by, twins, bodies, turn, start)
        before, done = self.machine.snapshot(), set(self.done)
        for tried in range(min(_TRIES, stop - start)):
            self.machine, self.done = before.snapshot(), set(done)
            found: Steps | None = None
            for number in range(start, stop):
                turn(number)
                if number - start == tried:
                    at_turn = self.machine.snapshot(), set(self.done)
                    found = self.ordered(bodies)
                    self.machine, self.done = at_turn
                    break
                self.ordered(bodies)
            assert found is not None
            self.machine, self.done = before.snapshot(), set(done)
            if self._runs(found, range(start, stop), turn):
                return Step(first, by, (found,), twins)
        raise Stuck(first)

    def _runs(self, steps: Steps, numbers: range, turn: object) -> bool:
        for number in numbers:
            turn(number)  # type: ignore[operator]
            if not self.replay(steps):
                return False
        return True

    def _unrun(
        self, first: For, by: By, twins: tuple[Var, ...], bodies: object, turn: object, start: int
    ) -> Step:
        """The order of a loop without a turn: that of a turn that is then forgotten."""
        before, done = self.machine.snapshot(), set(self.done)
        turn(start)  # type: ignore[operator]
        found = self.ordered(bodies)  # type: ignore[arg-type]
        self.machine, self.done = before, done
        return Step(first, by, (found,), twins)

    # -- conditions ------------------------------------------------------------------------------
    def _branch(self, each: Mapping[int, If], first: If, by: By) -> Step:
        holds = bool(self.machine.value(by[0], first.cond))
        parts: list[Steps] = []
        for taken, name in ((holds, "then"), (not holds, "orelse")):
            bodies = self._levels({g: getattr(s, name) for g, s in each.items()}, by)
            if taken:
                parts.append(self.ordered(bodies))
                continue
            before, done = self.machine.snapshot(), set(self.done)
            try:
                parts.append(self.ordered(bodies))
            except Stuck:
                # What is not taken here may have to wait here: it keeps the order of the program.
                if len(bodies) > 1:
                    raise
                parts.append(tuple(Step(s, b) for items in bodies.values() for s, b in items))
            self.machine, self.done = before, done
        return Step(first, by, (parts[0], parts[1]))

    def _has_twin(self, stmt: Stmt, own: _Stream, streams: list[_Stream]) -> bool:
        others = (s.items[s.at :] for s in streams if s is not own)
        return any(self._alike(stmt, found) for items in others for found, _ in items)

    # -- what waits becomes one ------------------------------------------------------------------
    def _joined(self, streams: list[_Stream], out: list[Step]) -> bool:
        """Make one of the loops or conditions that several groups are at; False without any."""
        waiting = [s for s in streams if s.head is not None and is_ordered_inside(s.head[0])]
        for stream in waiting:
            assert stream.head is not None
            lead = stream.head[0]
            twins = [s for s in waiting if s.head is not None and self._alike(lead, s.head[0])]
            if len(twins) < 2:
                continue
            by = tuple(s.group for s in twins)
            each = {s.group: s.head[0] for s in twins if s.head is not None}
            before, done = self.machine.snapshot(), set(self.done)
            try:
                out.append(self._of(each, lead, by))
            except Stuck:
                self.machine, self.done = before, done
                continue
            for twin in twins:
                twin.at += 1
            return True
        return False

    def _alike(self, a: Stmt, b: Stmt) -> bool:
        def same(x: Expr, y: Expr) -> bool:
            x, y = self._spelt_out(x), self._spelt_out(y)
            if any(isinstance(e, Load) and self._changes(e.buffer) for e in walk_expr(x)):
                return False  # it may have changed between the two
            return x == y

        match a, b:
            case For(), For() if is_ordered_inside(a) and is_ordered_inside(b):
                return same(a.start, b.start) and same(a.stop, b.stop)
            case If(), If():
                return same(a.cond, b.cond)
        return False

    def _spelt_out(self, expr: Expr) -> Expr:
        """``expr`` with values for names, and one name for the variables of loops that are one."""
        known = {**self.machine.bound, **self.names}
        while any(isinstance(e, Var) and e.id in known for e in walk_expr(expr)):
            expr = fold.substitute(expr, known)
        return expr

    def _changes(self, buffer: Buffer) -> bool:
        """True if what a buffer holds may change while roles run, each at its own pace.

        A variable that a role sets is its own, see ``with_own_registers``.
        """
        if buffer.scope == "var":
            return False
        return buffer.scope != "global" or buffer.id in self.machine.written_ids

    # -- running what was found ------------------------------------------------------------------
    def replay(self, steps: Steps) -> bool:
        """Run steps in their order; False where one has to wait."""
        return all(self._replayed(step) for step in steps)

    def _replayed(self, step: Step) -> bool:
        if step.bodies is None and not is_ordered_inside(step.stmt):
            self.done.add(id(step.stmt))
            return self.machine.perform(step.stmt, step.by)
        lead = step.by[0]
        match step.stmt:
            case For(var=var) as loop:
                start, stop = (self.machine.value(lead, e) for e in (loop.start, loop.stop))
                (body,) = step.bodies or ((),)
                for number in range(start, stop):
                    for g in step.by:
                        for v in (var, *step.twins):
                            self.machine.envs[g][v.id] = fold.const(number, v.dtype)
                    if not self.replay(body):
                        return False
                return True
            case If(cond=cond):
                then, orelse = step.bodies or ((), ())
                return self.replay(then if self.machine.value(lead, cond) else orelse)
        raise unsupported(step.stmt)


def in_order(machine: Machine, body: Body, conflicts: Sequence[Conflict]) -> Steps:
    """All statements of a launch in one order.

    Of ``conflicts``, the write comes first. Stuck where no order is found.
    """
    late: dict[int, set[int]] = {}
    for conflict in conflicts:
        reader = conflict.second if conflict.write is conflict.first else conflict.first
        late.setdefault(id(reader), set()).add(id(conflict.write))
    by = tuple(g.number for g in machine.groups)
    search = Orderer(machine, late)
    return search.ordered(search.level(body, by))


def plain(steps: Steps) -> Iterator[Stmt]:
    """The statements of an order, without barriers and waits; nothing is asynchronous."""
    for step in steps:
        stmt = step.stmt
        if step.bodies is None:
            yield from _plain(stmt)
            continue
        bodies = tuple(tuple(plain(inner)) for inner in step.bodies)
        if isinstance(stmt, For):
            known: dict[int, Expr] = {v.id: stmt.var for v in step.twins}
            body = map_body_exprs(bodies[0], lambda e, k=known: fold.substitute(e, k))  # type: ignore[misc]
            if body:
                yield replace(stmt, body=body)
        elif isinstance(stmt, If) and any(bodies):
            yield replace(stmt, then=bodies[0], orelse=bodies[1])


def _plain(stmt: Stmt) -> Iterator[Stmt]:
    where = stmt.provenance
    match stmt:
        case explicit.CopyLater() | explicit.GroupedCopy():
            yield Copy(stmt.src, stmt.dst, **where)
        case explicit.GemmLater():
            yield Gemm(
                stmt.a, stmt.b, stmt.c, stmt.transpose_a, stmt.transpose_b, stmt.clear,
                stmt.policy, **where,
            )  # fmt: skip
        case _ if isinstance(stmt, (*explicit.OWN_STEPS, Intrinsic)):
            return
        case For() | Parallel() if (copies := tile_copies(stmt)) is not None:
            yield from copies
        case Parallel():
            yield _without_marks(stmt)
        case For() if explicit.CP_ASYNC in stmt.hints:
            yield _without_marks(stmt)
        case _ if stmt.BODIES:
            yield map_bodies(stmt, lambda body: tuple(s for inner in body for s in _plain(inner)))
        case _:
            yield stmt


def _without_marks(stmt: Stmt) -> Stmt:
    """A nest without the marks of copies by cp.async."""
    if isinstance(stmt, For) and explicit.CP_ASYNC in stmt.hints:
        stmt = replace(stmt, hints=())
    return map_bodies(stmt, lambda body: tuple(map(_without_marks, body)))

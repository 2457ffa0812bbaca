"""A schedule as a program in one role: what it computes can then be run without a GPU.

A slot is filled where the math role waits for it, products end where they start, and the groups run
one after the other. For schedules in which every wait is in the iteration that the fetch is in, or
in that of the fetch before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.kit.schedules import Scheduled
from tileops.ir import fold
from tileops.ir.expr import Buffer, Region, Var
from tileops.ir.program import Program
from tileops.ir.schedule import Advance, Await, Fetch, Issue, Ring, RingStep, Settle, Share, Staged
from tileops.ir.stmt import Alloc, Bind, Body, Copy, For, Gemm, Stmt
from tileops.ir.walk import map_stmt_exprs, sub_bodies, substitute, with_bodies, with_origins


def sequential(program: Program, scheduled: Scheduled) -> Program:
    """``program``, whose one launch is ``scheduled``, with the math role as that launch's body."""
    schedule = scheduled.schedule
    # No schedule has so many ids of its own.
    ids = iter(range(10**6, 2 * 10**6))
    roles = _Roles(dict(_fetches(schedule.load, None)), ids)
    body = roles.body(schedule.math)
    tiles = [b for ring in schedule.rings for b in ring.buffers]
    tiles += [*roles.before.values(), *schedule.shared]
    if schedule.first_row is not None:
        group = replace(schedule.first_row, id=next(ids), name="group")
        row = fold.mul(group, fold.const(schedule.rows))
        stop = fold.const(schedule.groups)
        inner = (Bind(schedule.first_row, row), *body)
        body = (For("serial", group, fold.const(0), stop, inner),)
    launch = replace(scheduled.launch, body=(*map(Alloc, tiles), *body))
    return with_origins(replace(program, launches=(launch,)))


def _fetches(body: Body, var: Var | None) -> Iterator[tuple[str, list[tuple[Fetch, Var | None]]]]:
    """The fetches into each ring, with the variable of the loop around them."""
    found: dict[str, list[tuple[Fetch, Var | None]]] = {}
    for stmt in body:
        if isinstance(stmt, Fetch):
            found.setdefault(stmt.ring.name, []).append((stmt, var))
        for inner in sub_bodies(stmt):
            yield from _fetches(inner, stmt.var if isinstance(stmt, For) else var)
    yield from found.items()


class _Roles:
    """``before`` are the tiles of the round before, by the ids of a ring's buffers."""

    def __init__(
        self, fetches: dict[str, list[tuple[Fetch, Var | None]]], ids: Iterator[int]
    ) -> None:
        self._fetches, self._ids = fetches, ids
        self.before: dict[int, Buffer] = {}

    def body(self, body: Body) -> Body:
        """The statements in one role."""
        out: list[Stmt] = []
        rounds: dict[str, int] = {}
        for place, stmt in enumerate(body):
            match stmt:
                case Await(ring=ring):
                    number = rounds.setdefault(ring.name, 0)
                    rounds[ring.name] += 1
                    out += self._filled(ring, number)
                case Advance(ring=ring) if any(
                    isinstance(s, Await) and s.ring == ring for s in body[place:]
                ):
                    out += (self._kept(b) for b in ring.buffers)
                case RingStep() | Settle():
                    continue
                case Issue():
                    a, b = self._operand(stmt.a, stmt), self._operand(stmt.b, stmt)
                    out.append(
                        Gemm(
                            a, b, stmt.c, stmt.transpose_a, stmt.transpose_b, stmt.clear,
                            stmt.policy, **stmt.provenance,
                        )
                    )  # fmt: skip
                case Staged() | Share():
                    out.append(Copy(stmt.src, stmt.dst, **stmt.provenance))
                case _:
                    inner = tuple(self.body(b) for b in sub_bodies(stmt))
                    out.append(with_bodies(stmt, inner))
        return tuple(out)

    def _filled(self, ring: Ring, number: int) -> Iterator[Stmt]:
        for fetch, var in self._fetches[ring.name]:
            copy: Stmt = Copy(fetch.src, fetch.dst, **fetch.provenance)
            if number:
                assert var is not None
                later = {var.id: fold.add(var, fold.const(number))}
                copy = map_stmt_exprs(copy, lambda e, later=later: substitute(e, later))
            yield copy

    def _kept(self, buffer: Buffer) -> Copy:
        if buffer.id not in self.before:
            name = f"{buffer.name}_before"
            self.before[buffer.id] = replace(buffer, id=next(self._ids), name=name)
        return Copy(_whole(buffer), _whole(self.before[buffer.id]))

    def _operand(self, region: Region, stmt: Issue) -> Region:
        if stmt.behind and region.buffer.id in self.before:
            return replace(region, buffer=self.before[region.buffer.id])
        return region


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, (fold.const(0),) * buffer.ndim, buffer.shape)

"""A schedule as a program in one role: what it computes can then be run without a GPU.

A slot is filled where the math role waits for it, products end where they start, and the groups run
one after the other. For schedules in which every wait is in the iteration that the fetch is in.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tests.kit.schedules import Scheduled
from tileops.ir import fold
from tileops.ir.program import Program
from tileops.ir.schedule import Await, Fetch, Issue, RingStep, Settle, Staged
from tileops.ir.stmt import Alloc, Bind, Body, Copy, For, Gemm, Stmt
from tileops.ir.walk import fresh_ids, sub_bodies, walk, with_bodies


def sequential(program: Program, scheduled: Scheduled) -> Program:
    """``program``, whose one launch is ``scheduled``, with the math role as that launch's body."""
    schedule = scheduled.schedule
    fetches: dict[str, list[Fetch]] = defaultdict(list)
    for stmt in walk(schedule.load):
        if isinstance(stmt, Fetch):
            fetches[stmt.ring.name].append(stmt)
    body = _in_order(schedule.math, fetches)
    slots = tuple(Alloc(b) for ring in schedule.rings for b in ring.buffers)
    if schedule.first_row is not None:
        ids = fresh_ids(replace(program, launches=(replace(scheduled.launch, body=body),)))
        group = replace(schedule.first_row, id=next(ids), name="group")
        row = fold.mul(group, fold.const(schedule.rows))
        stop = fold.const(schedule.groups)
        inner = (Bind(schedule.first_row, row), *body)
        body = (For("serial", group, fold.const(0), stop, inner),)
    launch = replace(scheduled.launch, body=(*slots, *body))
    return replace(program, launches=(launch,))


def _in_order(body: Body, fetches: dict[str, list[Fetch]]) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Await(ring=ring):
                out += (Copy(f.src, f.dst, **f.provenance) for f in fetches[ring.name])
            case RingStep() | Settle():
                continue
            case Issue():
                out.append(
                    Gemm(
                        stmt.a, stmt.b, stmt.c, stmt.transpose_a, stmt.transpose_b, stmt.clear,
                        stmt.policy, **stmt.provenance,
                    )
                )  # fmt: skip
            case Staged():
                out.append(Copy(stmt.src, stmt.dst, **stmt.provenance))
            case _:
                inner = tuple(_in_order(b, fetches) for b in sub_bodies(stmt))
                out.append(with_bodies(stmt, inner))
    return tuple(out)

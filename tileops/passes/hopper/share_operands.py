"""First operands in shared memory where warps that share rows compute them.

Each such warp has some of an operand's columns and needs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileops.ir.expr import Buffer, Region
from tileops.ir.schedule import Issue, Schedule, Share, swizzle_of
from tileops.ir.stmt import Body, Stmt
from tileops.ir.walk import sub_bodies, walk, with_bodies, written_buffers
from tileops.passes.hopper.unfit import Unfit


def share_operands(schedule: Schedule, ids: Iterator[int]) -> Schedule:
    """The schedule with a shared tile for each first operand that is in registers."""
    if schedule.across == 1:
        return schedule
    fed = {b.id for ring in schedule.rings for b in ring.buffers}
    shared: dict[int, Buffer] = {}
    math = _shared(schedule.math, fed, shared, ids)
    return replace(schedule, math=math, shared=tuple(shared.values()))


def _shared(body: Body, fed: set[int], shared: dict[int, Buffer], ids: Iterator[int]) -> Body:
    out: list[Stmt] = []
    held: set[int] = set()  # operands whose tiles are up to date: products in flight may read them
    for stmt in body:
        if isinstance(stmt, Issue) and stmt.a.buffer.id not in fed:
            own = stmt.a.buffer
            if own.id not in shared:
                if not swizzle_of((own.static_shape() or (0,))[-1] * own.dtype.bytes):
                    raise Unfit(f"a row of `{own.name}` is too short for shared memory", stmt.loc)
                shared[own.id] = replace(own, id=next(ids), scope="shared")
            tile = Region(shared[own.id], stmt.a.starts, stmt.a.extents)
            if own.id not in held:
                out.append(Share(stmt.a, tile, **stmt.provenance))
                held.add(own.id)
            out.append(replace(stmt, a=tile))
            continue
        held -= {b.id for s in walk((stmt,)) for b in written_buffers(s)}
        inner = tuple(_shared(b, fed, shared, ids) for b in sub_bodies(stmt))
        out.append(with_bodies(stmt, inner))
    return tuple(out)

"""Operands in shared memory that the math role computes.

Products read second operands and transposed ones from there. Where warps share rows, each has some
of a first operand's columns and needs all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

from tileops.ir.expr import Buffer, Region
from tileops.ir.schedule import Issue, Schedule, Share, swizzle_of
from tileops.ir.stmt import Body, Gemm, Stmt
from tileops.ir.walk import sub_bodies, walk, with_bodies, written_buffers
from tileops.passes.hopper.unfit import Unfit


def made_operands(gemm: Gemm, filled: Container[int]) -> tuple[Buffer, ...]:
    """The operands in no ring that a product cannot read from registers.

    ``filled`` are the buffers of rings. One group of warps makes the whole of such an operand.
    """
    candidates = (gemm.a.buffer, gemm.b.buffer) if gemm.transpose_a else (gemm.b.buffer,)
    return tuple(b for b in candidates if b.id not in filled)


def require_shareable(buffer: Buffer, gemm: Gemm) -> None:
    """Unfit for a tile whose rows are too short for a pattern of shared memory."""
    if not swizzle_of((buffer.static_shape() or (0,))[-1] * buffer.dtype.bytes):
        raise Unfit(f"a row of `{buffer.name}` is too short for shared memory", gemm.loc)


def share_operands(schedule: Schedule, ids: Iterator[int]) -> Schedule:
    """The schedule with a shared tile for each operand that products cannot have in registers."""
    sharing = _Sharing(schedule, ids)
    math = sharing.body(schedule.math)
    return replace(schedule, math=math, shared=tuple(sharing.tiles.values()))


class _Sharing:
    """``tiles`` are the shared tiles, by the ids of the buffers in registers."""

    def __init__(self, schedule: Schedule, ids: Iterator[int]) -> None:
        self.tiles: dict[int, Buffer] = {}
        self._fed = {b.id for ring in schedule.rings for b in ring.buffers}
        self._across, self._ids = schedule.across, ids

    def body(self, body: Body, held: frozenset[int] = frozenset()) -> Body:
        """The statements with tiles shared in front of the products that read them.

        ``held`` are the buffers whose tiles are up to date. What a loop does not change is shared
        in front of it: products of the iteration before may still read the tile.
        """
        out: list[Stmt] = []
        for stmt in body:
            inside = list(walk((stmt,)))
            written = {b.id for s in inside for b in written_buffers(s)}
            for issue in (s for s in inside if isinstance(s, Issue)):
                for region in self._made(issue):
                    if region.buffer.id not in held | written:
                        out.append(self._share(region, issue))
                        held |= {region.buffer.id}
            if isinstance(stmt, Issue):
                tiles = {r: self._tile(r) for r in self._made(stmt)}
                out.append(replace(stmt, a=tiles.get(stmt.a, stmt.a), b=tiles.get(stmt.b, stmt.b)))
                continue
            held -= written
            out.append(with_bodies(stmt, tuple(self.body(b, held) for b in sub_bodies(stmt))))
        return tuple(out)

    def _made(self, issue: Issue) -> list[Region]:
        """The operands of a product that are shared."""
        made = {b.id for b in made_operands(issue, self._fed)}
        if self._across > 1 and issue.a.buffer.id not in self._fed:
            made.add(issue.a.buffer.id)
        return [region for region in (issue.a, issue.b) if region.buffer.id in made]

    def _share(self, region: Region, issue: Issue) -> Share:
        own = region.buffer
        if own.id not in self.tiles:
            require_shareable(own, issue)
            self.tiles[own.id] = replace(own, id=next(self._ids), scope="shared")
        return Share(region, self._tile(region), **issue.provenance)

    def _tile(self, region: Region) -> Region:
        return Region(self.tiles[region.buffer.id], region.starts, region.extents)

"""Tiles that no asynchronous copy can fetch are loaded an iteration ahead, into registers.

An asynchronous copy moves 4 bytes at least, so that rows of an odd number of 16-bit elements have
none: without this, each iteration of a product's loop waits for its own loads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Expr, Region, Var
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Alloc, Body, Copy, For, Gemm, Launch, Stmt
from tileops.ir.walk import (
    fresh_ids,
    loads,
    map_stmt_exprs,
    replace_stmts,
    substitute,
    view_roots,
    walk,
    written_buffers,
    written_ids,
)
from tileops.passes.hopper.multiples import Multiples

# The least that cp.async moves (PTX ISA, "cp.async": 4, 8 or 16 bytes).
_ASYNCHRONOUS_BYTES = 4
# Elements a thread that are under way; each takes a register of 32 bits until a tile is stored.
_MOST_ELEMENTS = 64


def load_ahead(
    program: Program, launch: Launch, aligned: frozenset[int] | None
) -> tuple[Program, Launch]:
    """``program`` and its ``launch`` with such loops; themselves if there is nothing to do.

    ``aligned`` are the sizes that 16 divides, by id, of a kernel whose tensors begin at multiples
    of 16 bytes; None for a kernel that knows of no alignment.
    """
    own = _LoadAhead(program, launch, aligned)
    body = replace_stmts(launch.body, own.rewritten)
    if body is launch.body:
        return program, launch
    made = replace(launch, body=body)
    launches = tuple(made if x is launch else x for x in program.launches)
    return replace(program, launches=launches), made


class _LoadAhead:
    """What ``load_ahead`` knows of one launch."""

    def __init__(self, program: Program, launch: Launch, aligned: frozenset[int] | None) -> None:
        self._ids = fresh_ids(program)
        self._knows_alignment = aligned is not None
        self._multiples = Multiples(launch.body, aligned or frozenset())
        self._threads = launch.threads
        self._written = written_ids(launch.body)
        self._views = view_roots(launch.body)

    def rewritten(self, stmt: Stmt) -> Body | None:
        if not isinstance(stmt, For) or stmt.kind != "pipelined" or stmt.stages < 2:
            return None
        ahead = list(self._ahead(stmt))
        elements = sum(math.prod(copy.dst.buffer.static_shape() or (0,)) for copy in ahead)
        if not ahead or elements > _MOST_ELEMENTS * self._threads:
            return None
        return self._loop(stmt, ahead)

    def _ahead(self, loop: For) -> Iterator[Copy]:
        """The loop's first copies, as far as they can move and cannot be asynchronous."""
        factors = {b.id for s in loop.body if isinstance(s, Gemm) for b in (s.a.buffer, s.b.buffer)}
        writes = [b.id for s in walk(loop.body) for b in written_buffers(s)]
        for stmt in loop.body:
            if not isinstance(stmt, Copy):
                return
            src, dst = stmt.src.buffer, stmt.dst.buffer
            moves = (
                not src.is_on_chip
                and src.id not in self._written
                and not any(True for _ in loads(stmt))  # the next index may be out of bounds
                and dst.scope == "shared"
                and dst.id in factors
                and dst.id not in self._views
                and dst.static_shape() is not None
                and stmt.dst.is_whole()
                and writes.count(dst.id) == 1
            )
            if moves and not self._is_asynchronous(stmt.src):
                yield stmt

    def _is_asynchronous(self, region: Region) -> bool:
        """True if pieces of 4 bytes of the region certainly begin at multiples of 4 bytes."""
        unit = region.dtype.bytes
        if unit >= _ASYNCHRONOUS_BYTES:
            return True
        strides = fold.strides_of(region.buffer)
        rows = [d for d in region.squeezed() if const_value(strides[d]) == 1]
        if not self._knows_alignment or not rows:
            return False
        steps = [self._multiples.of(strides[d]) for d in region.squeezed() if d not in rows]
        starts = [
            self._multiples.of(fold.mul(*pair)) for pair in zip(region.starts, strides, strict=True)
        ]
        return math.gcd(*steps, *starts) * unit % _ASYNCHRONOUS_BYTES == 0

    def _loop(self, loop: For, ahead: list[Copy]) -> Body:
        """The loop, with loads of its first iteration before it and those of the next within.

        The loads after the last iteration are of elements out of bounds, or of some that nobody
        reads.
        """
        first: list[Stmt] = []
        taken: list[Stmt] = []
        following: list[Stmt] = []
        for copy in ahead:
            tile = copy.dst.buffer
            held = replace(tile, id=next(self._ids), name=f"{tile.name}_next", scope="fragment")
            load = replace(copy, dst=replace(copy.dst, buffer=held))
            first += [Alloc(held, **copy.provenance), _at(load, loop.var, loop.start)]
            taken.append(replace(copy, src=load.dst))
            following.append(_at(load, loop.var, fold.add(loop.var, fold.const(1, loop.var.dtype))))
        rest = [s for s in loop.body if not any(s is copy for copy in ahead)]
        fetches = any(isinstance(s, Copy) and not s.src.buffer.is_on_chip for s in rest)
        kept = loop if fetches else replace(loop, kind="serial", stages=0)
        return (*first, replace(kept, body=(*taken, *following, *rest)))


def _at(copy: Copy, var: Var, value: Expr) -> Copy:
    """The copy with ``value`` for ``var``."""
    moved = map_stmt_exprs(copy, lambda e: substitute(e, {var.id: value}))
    assert isinstance(moved, Copy)
    return moved

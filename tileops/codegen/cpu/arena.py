"""Owns the scratch arena of a launch: where each on-chip tile lies.

Tiles with disjoint lives share space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileops.codegen.cpu.scalar_types import element_bytes
from tileops.errors import InternalError, UnsupportedOnTargetError
from tileops.ir.expr import Buffer, Load
from tileops.ir.stmt import Alloc, Body, For, Gemm, Launch, Parallel, Stmt, View, While
from tileops.ir.walk import (
    exprs,
    read_buffers,
    sub_bodies,
    view_roots,
    walk,
    walk_expr,
    written_buffers,
)

ALIGNMENT = 64


@dataclass(frozen=True)
class Arena:
    """Byte offsets of tiles by buffer id and of the gemm work space, and the size of all."""

    offsets: dict[int, int]
    gemm_space: int
    size: int


@dataclass
class _Life:
    buffer: Buffer
    first: int
    last: int
    size: int


def lay_out(launch: Launch) -> Arena:
    """Assign an offset to every tile that ``launch`` allocates."""
    offsets: dict[int, int] = {}
    placed: list[tuple[_Life, int]] = []
    end = 0
    for life in sorted(_lives(launch), key=lambda x: (-x.size, x.first, x.buffer.id)):
        at = 0
        busy = sorted(
            (o, o + p.size) for p, o in placed if p.first <= life.last and life.first <= p.last
        )
        for low, high in busy:
            if at + life.size <= low:
                break
            at = max(at, high)
        placed.append((life, at))
        offsets[life.buffer.id] = at
        end = max(end, at + life.size)
    space = max((gemm_space_bytes(s) for s in walk(launch.body) if isinstance(s, Gemm)), default=0)
    return Arena(offsets, end, end + _aligned(space))


def tile_elements(buffer: Buffer) -> int:
    """The number of elements of an on-chip buffer.

    UnsupportedOnTargetError where it is not static.
    """
    shape = buffer.static_shape()
    if shape is None:
        raise UnsupportedOnTargetError(
            f"on-chip buffer {buffer.name} has an extent known only at run time"
        )
    count = 1
    for extent in shape:
        count *= extent
    return count


def gemm_space_bytes(stmt: Gemm) -> int:
    """An upper bound of what ``gemm`` of csrc/cpu/gemm.h needs: a, and b padded to 64 columns."""
    a, b = stmt.a.static_extents(), stmt.b.static_extents()
    if a is None or b is None:
        raise InternalError("gemm operands have static extents")
    size = max(4, stmt.c.dtype.bytes)
    depth, columns = (b[-1], b[-2]) if stmt.transpose_b else (b[-2], b[-1])
    return size * (depth * ((columns + 63) // 64 * 64) + a[-1] * a[-2])


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _lives(launch: Launch) -> list[_Life]:
    """Statement spans in which each tile's contents matter.

    A use in a loop spans the outermost loop.

    The outermost loop, because a tile keeps its contents from one iteration to the next.
    """
    roots = view_roots(launch.body)
    lives: dict[int, _Life] = {}
    for stmt, first, last in _spans(launch.body):
        for buffer in _touched(stmt):
            root = roots.get(buffer.id, buffer)
            if not root.is_on_chip or root.scope == "var":
                continue
            if root.id not in lives:
                size = _aligned(max(1, tile_elements(root) * element_bytes(root.dtype)))
                lives[root.id] = _Life(root, first, last, size)
            life = lives[root.id]
            life.first, life.last = min(life.first, first), max(life.last, last)
    return list(lives.values())


def _touched(stmt: Stmt) -> Iterator[Buffer]:
    yield from read_buffers(stmt)
    yield from written_buffers(stmt)
    for expr in exprs(stmt):
        yield from (e.buffer for e in walk_expr(expr) if isinstance(e, Load))
    if isinstance(stmt, (Alloc, View)):
        yield stmt.buffer


def _spans(body: Body) -> Iterator[tuple[Stmt, int, int]]:
    """Each statement with the span of numbers that a use in it covers."""
    counter = iter(range(1 << 62))

    def visit(stmts: Body, loop: list[int] | None, out: list[tuple[Stmt, int, list[int]]]) -> None:
        for stmt in stmts:
            number = next(counter)
            span = loop if loop is not None else [number]
            first = span[0]
            out.append((stmt, first, span))
            is_loop = isinstance(stmt, (For, Parallel, While))
            for inner in sub_bodies(stmt):
                visit(inner, span if is_loop or loop is not None else None, out)
            if is_loop and loop is None:
                span.append(next(counter))

    found: list[tuple[Stmt, int, list[int]]] = []
    visit(body, None, found)
    for stmt, first, span in found:
        yield stmt, first, span[-1]

"""The places of buffers: tensors, and tiles in a scratch arena that disjoint lives share."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from tileops.codegen.cpu.expressions import index, value
from tileops.codegen.cpu.scalar_types import storage
from tileops.codegen.cpu.state import LaunchState, Place, identifier
from tileops.errors import InternalError, UnsupportedOnTargetError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Const, Expr
from tileops.ir.stmt import AddressView, Alloc, Body, For, Gemm, Launch, Parallel, Stmt, View, While
from tileops.ir.walk import read_buffers, sub_bodies, view_roots, walk, written_buffers

_ALIGNMENT = 64


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
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.size


def lay_out(launch: Launch) -> Arena:
    """Assign an offset to every tile that ``launch`` allocates."""
    placed: list[_Life] = []
    for life in sorted(_lives(launch), key=lambda x: (-x.size, x.first, x.buffer.id)):
        busy = [p for p in placed if p.first <= life.last and life.first <= p.last]
        for other in sorted(busy, key=lambda p: (p.offset, p.end)):
            if life.end <= other.offset:
                break
            life.offset = max(life.offset, other.end)
        placed.append(life)
    end = max((life.end for life in placed), default=0)
    space = max((_gemm_bytes(s) for s in walk(launch.body) if isinstance(s, Gemm)), default=0)
    return Arena({p.buffer.id: p.offset for p in placed}, end, end + _aligned(space))


def _gemm_bytes(stmt: Gemm) -> int:
    """An upper bound of what ``gemm`` of csrc/cpu/gemm.h needs: a, and b padded to 64 columns."""
    a, b = stmt.a.static_extents(), stmt.b.static_extents()
    if a is None or b is None:
        raise InternalError("gemm operands have static extents")
    depth, columns = (b[-1], b[-2]) if stmt.transpose_b else (b[-2], b[-1])
    return max(4, stmt.c.dtype.bytes) * (depth * (-(-columns // 64) * 64) + a[-1] * a[-2])


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _lives(launch: Launch) -> list[_Life]:
    """Statement spans in which each tile's contents matter: iterations hand them on."""
    roots = view_roots(launch.body)
    lives: dict[int, _Life] = {}
    for stmt, span in _spans(launch.body):
        own = (stmt.buffer,) if isinstance(stmt, (Alloc, View)) else ()
        for buffer in (*read_buffers(stmt), *written_buffers(stmt), *own):
            root = roots.get(buffer.id, buffer)
            if not root.is_on_chip or root.scope == "var":
                continue
            if root.id not in lives:
                size = _aligned(max(1, math.prod(_shape(root)) * root.dtype.bytes))
                lives[root.id] = _Life(root, span[0], span[-1], size)
            life = lives[root.id]
            life.first, life.last = min(life.first, span[0]), max(life.last, span[-1])
    return list(lives.values())


def _shape(buffer: Buffer) -> tuple[int, ...]:
    shape = buffer.static_shape()
    if shape is None:
        raise UnsupportedOnTargetError(
            f"on-chip buffer {buffer.name} has an extent known only at run time"
        )
    return shape


def _spans(body: Body) -> list[tuple[Stmt, list[int]]]:
    """Each statement with its number, or with those where the outermost loop begins and ends."""
    found: list[tuple[Stmt, list[int]]] = []
    numbers = itertools.count()

    def visit(stmts: Body, loop: list[int] | None) -> None:
        for stmt in stmts:
            number = next(numbers)
            span = [number] if loop is None else loop
            found.append((stmt, span))
            is_loop = isinstance(stmt, (For, Parallel, While))
            for inner in sub_bodies(stmt):
                visit(inner, span if is_loop else loop)
            if is_loop and loop is None:
                span.append(next(numbers))

    visit(body, None)
    return found


def place_global(state: LaunchState, buffer: Buffer, pointer: str) -> None:
    """Record a tensor or workspace; its run-time extents and strides become int64 locals."""
    strides = fold.strides_of(buffer)
    extents = tuple(_dimension(state, e, f"{pointer}_n{d}") for d, e in enumerate(buffer.shape))
    steps = tuple(_dimension(state, e, f"{pointer}_s{d}") for d, e in enumerate(strides))
    state.places[buffer.id] = Place(pointer, extents, steps)


def _dimension(state: LaunchState, expr: Expr, name: str) -> str:
    if isinstance(expr, Const):
        return str(int(expr.value))
    state.writer.line(f"const i64 {name} = {index(state, expr)};")
    return name


def place_tiles(state: LaunchState, launch: Launch, arena: Arena) -> None:
    """Declare every on-chip buffer of a launch: tiles in the arena, vars as zeroed locals."""
    w = state.writer
    for stmt in walk(launch.body):
        if not isinstance(stmt, Alloc) or stmt.buffer.id in state.places:
            continue
        buffer = stmt.buffer
        name, kind = identifier(buffer.name, buffer.id), storage(buffer.dtype)
        if buffer.scope == "var":
            w.line(f"{kind} {name}[1] = {{}};")
        else:
            named_place(state, buffer, f"scratch + {arena.offsets[buffer.id]}")
        state.places[buffer.id] = tile_place(buffer, name)


def tile_place(buffer: Buffer, name: str) -> Place:
    """A row-major tile whose pointer is ``name``."""
    shape = _shape(buffer)
    strides = [str(math.prod(shape[d + 1 :])) for d in range(len(shape))]
    return Place(name, tuple(map(str, shape)), tuple(strides))


def emit_view(state: LaunchState, stmt: View) -> None:
    """Another name, shape or dtype for a buffer's storage."""
    name = named_place(state, stmt.buffer, state.place(stmt.source).pointer)
    if stmt.buffer.is_on_chip:
        state.places[stmt.buffer.id] = tile_place(stmt.buffer, name)
    else:
        place_global(state, stmt.buffer, name)


def emit_address_view(state: LaunchState, stmt: AddressView) -> None:
    """A name for the memory at an address."""
    place_global(state, stmt.buffer, named_place(state, stmt.buffer, value(state, stmt.address)))


def named_place(state: LaunchState, buffer: Buffer, address: str) -> str:
    """The name of a pointer to ``address``, of the type of the buffer's elements."""
    kind, name = storage(buffer.dtype), identifier(buffer.name, buffer.id)
    state.writer.line(f"{kind}* const {name} = reinterpret_cast<{kind}*>({address});")
    return name

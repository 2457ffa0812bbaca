"""Owns the places of buffers: pointers into tensors, the scratch arena and other tiles."""

from __future__ import annotations

from tileops.codegen.cpu.arena import Arena
from tileops.codegen.cpu.expressions import index, value
from tileops.codegen.cpu.scalar_types import storage
from tileops.codegen.cpu.state import LaunchState, Place, identifier
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Const, Expr
from tileops.ir.stmt import AddressView, Alloc, Launch, View
from tileops.ir.walk import walk


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The strides of a contiguous buffer, in elements."""
    strides: list[Expr] = []
    step: Expr = fold.const(1)
    for extent in reversed(shape):
        strides.append(step)
        step = fold.mul(step, extent)
    return tuple(reversed(strides))


def place_global(state: LaunchState, buffer: Buffer, pointer: str) -> None:
    """Record a tensor or workspace; its run-time extents and strides become int64 locals."""
    strides = buffer.strides if buffer.strides is not None else row_major(buffer.shape)
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
            at = arena.offsets[buffer.id]
            w.line(f"{kind}* const {name} = reinterpret_cast<{kind}*>(scratch + {at});")
        state.places[buffer.id] = _tile_place(buffer, name)


def _tile_place(buffer: Buffer, name: str) -> Place:
    shape = buffer.static_shape()
    if shape is None:
        raise InternalError(f"on-chip buffer {buffer.name} has no static shape")
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return Place(name, tuple(map(str, shape)), tuple(map(str, reversed(strides))))


def emit_view(state: LaunchState, stmt: View) -> None:
    """Another name, shape or dtype for a buffer's storage."""
    kind = storage(stmt.buffer.dtype)
    name = identifier(stmt.buffer.name, stmt.buffer.id)
    source = state.place(stmt.source).pointer
    state.writer.line(f"{kind}* const {name} = reinterpret_cast<{kind}*>({source});")
    if stmt.buffer.is_on_chip:
        state.places[stmt.buffer.id] = _tile_place(stmt.buffer, name)
    else:
        place_global(state, stmt.buffer, name)


def emit_address_view(state: LaunchState, stmt: AddressView) -> None:
    """A name for the memory at an address."""
    kind = storage(stmt.buffer.dtype)
    name = identifier(stmt.buffer.name, stmt.buffer.id)
    at = value(state, stmt.address)
    state.writer.line(f"{kind}* const {name} = reinterpret_cast<{kind}*>({at});")
    place_global(state, stmt.buffer, name)

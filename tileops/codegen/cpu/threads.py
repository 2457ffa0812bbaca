"""Launches of threads: their buffers and statements, and on the CPU the fibers that run them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tileops.codegen.cpu.expressions import region_start, value
from tileops.codegen.cpu.places import Arena, named_place, tile_place
from tileops.codegen.cpu.scalar_types import computing, storage
from tileops.codegen.cpu.state import LaunchState, identifier
from tileops.codegen.cpu.statements import emit_body
from tileops.codegen.cpu.tile_calls import emit_warp_gemm
from tileops.errors import InternalError, UnsupportedOnTargetError
from tileops.ir import fold
from tileops.ir.explicit import NamedBarrier
from tileops.ir.expr import Buffer
from tileops.ir.stmt import (
    Alloc,
    ClusterBarrier,
    Exchange,
    ExternCall,
    Gemm,
    GridBarrier,
    ImportSource,
    Intrinsic,
    Launch,
    LoadMatrix,
    Mma,
    PeerView,
    Print,
    RandomNumber,
    RandomStart,
    Stmt,
    Threads,
)
from tileops.ir.walk import walk

_ALIGNMENT = 64
# What a fiber needs besides its own buffers: calls of mathematical functions, and signal handlers.
_STACK_BYTES, _PRINTING_BYTES = 32 << 10, 64 << 10
# At least sizeof(Block), as csrc/cpu/fibers.h asserts.
BLOCK_BYTES = 64 << 10


def threads_of(launch: Launch) -> Threads | None:
    """The threads that are all of a launch; None for a launch of tiles."""
    found = [stmt for stmt in launch.body if isinstance(stmt, Threads)]
    if found and len(launch.body) > 1:
        raise InternalError("a launch of threads has other statements")
    return found[0] if found else None


def shared_tiles(launch: Launch) -> tuple[dict[int, int], int]:
    """The byte offset of each tile of a block, by buffer id, and the bytes of all."""
    offsets: dict[int, int] = {}
    end = 0
    for stmt in walk(launch.body):
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "shared":
            offsets[stmt.buffer.id] = end
            end += _aligned(_bytes(stmt.buffer))
    return offsets, end


def arena_of_threads(launch: Launch, threads: Threads) -> Arena:
    """The tiles of the blocks of a cluster, then their states, then the stacks of their threads."""
    offsets, end = shared_tiles(launch)
    blocks = math.prod(launch.cluster)
    state = BLOCK_BYTES + threads.count * _stack_bytes(threads)
    return Arena(offsets, blocks * end, blocks * (end + state))


def _stack_bytes(threads: Threads) -> int:
    own = 0
    for stmt in walk(threads.body):
        if isinstance(stmt, Alloc) and stmt.buffer.scope != "shared":
            own += _aligned(_bytes(stmt.buffer))
    prints = any(isinstance(stmt, Print) for stmt in walk(threads.body))
    return own + (_PRINTING_BYTES if prints else _STACK_BYTES)


def _bytes(buffer: Buffer) -> int:
    shape = buffer.static_shape()
    if shape is None:
        raise InternalError(f"on-chip buffer {buffer.name} has an extent known only at run time")
    return max(1, math.prod(shape) * buffer.dtype.bytes)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def emit_fibers(
    state: LaunchState,
    launch: Launch,
    threads: Threads,
    arena: Arena,
    emit_vars: Callable[[], None],
) -> None:
    """The threads of the blocks of one cluster, run to their ends."""
    w = state.writer
    blocks = math.prod(launch.cluster)
    stride = arena.gemm_space // blocks
    state.steps = {
        **STEPS,
        Exchange: _refuse_active_mask,
        ExternCall: _refuse_call,
        GridBarrier: _refuse_grid,
        ImportSource: lambda state, stmt: None,
    }
    with w.block("const auto run_thread = [&](Thread& me) -> i32", end="};"):
        w.line(f"const i64 block = cluster * {blocks} + me.rank;")
        emit_vars()
        emit_threads(state, launch, threads, f"scratch + me.rank * {stride}", arena.offsets)
        w.line("return TILEOPS_OK;")
    states = f"scratch + {arena.gemm_space}"
    stacks = f"scratch + {arena.gemm_space + blocks * BLOCK_BYTES}"
    sizes = f"{blocks}, {stride}, {threads.count}, {states}, {stacks}, {_stack_bytes(threads)}"
    w.line(f"const i32 code = run_threads({sizes}, run_thread, status);")
    w.line("if (code != TILEOPS_OK) return code;")


def emit_threads(
    state: LaunchState, launch: Launch, threads: Threads, base: str, offsets: dict[int, int]
) -> None:
    """What each thread, ``me``, runs; tiles of the block are at ``offsets`` from ``base``."""
    w = state.writer
    with state.scope():
        state.ranges = state.ranges.with_span(threads.var, fold.const(0), fold.const(threads.count))
        name = state.declare(threads.var, state.ranges.of(threads.var))
        w.line(f"const i32 {name} = me.index;")
        if any(isinstance(stmt, RandomStart) for stmt in walk(threads.body)):
            w.line("Philox random;")
        for stmt in walk(launch.body):
            if isinstance(stmt, Alloc):
                _place(state, stmt.buffer, base, offsets)
        emit_body(state, threads.body)


def _place(state: LaunchState, buffer: Buffer, base: str, offsets: dict[int, int]) -> None:
    if buffer.scope == "shared":
        name = named_place(state, buffer, f"{base} + {offsets[buffer.id]}")
    else:
        name, kind = identifier(buffer.name, buffer.id), storage(buffer.dtype)
        length, first = math.prod(buffer.static_shape() or ()), ""
        if buffer.scope == "var":
            first = " = {}"
        state.writer.line(f"{kind} {name}[{length}]{first};")
    state.places[buffer.id] = tile_place(buffer, name)


# -- what threads ask of each other ----------------------------------------------------------------
def _emit_intrinsic(state: LaunchState, stmt: Intrinsic) -> None:
    match stmt.name:
        case "sync_threads":
            text = "me.sync_block()"
        case "sync_warp":
            text = f"me.sync_warp({value(state, stmt.args[0])})"
        case _:
            raise InternalError(f"code generation: {stmt.name} in a launch of threads")
    state.writer.line(f"{text};")


def _emit_named_barrier(state: LaunchState, stmt: NamedBarrier) -> None:
    waits = "true" if stmt.waits else "false"
    state.writer.line(f"me.sync_named({stmt.number}, {stmt.threads}, {waits});")


def _emit_exchange(state: LaunchState, stmt: Exchange) -> None:
    """A call of the thread's function of the exchange's name, with its arguments."""
    kind = computing(stmt.result.dtype)
    args = ", ".join(value(state, arg) for arg in stmt.args)
    name = state.declare(stmt.result)
    call = f"me.{stmt.op}({args})"
    if stmt.op.startswith("warp_reduce"):  # each step is rounded to the dtype of the value
        call = f"tileops::{stmt.op}<{storage(stmt.result.dtype)}>(me, {args})"
    state.writer.line(f"const {kind} {name} = {call};")


def _emit_cluster_barrier(state: LaunchState, stmt: ClusterBarrier) -> None:
    for holds, name in ((stmt.arrives, "arrive"), (stmt.waits, "wait")):
        if holds:
            state.writer.line(f"me.cluster_{name}();")


def _emit_peer_view(state: LaunchState, stmt: PeerView) -> None:
    address = f"me.in_block({state.place(stmt.source).pointer}, {value(state, stmt.block)})"
    name = named_place(state, stmt.buffer, address)
    state.places[stmt.buffer.id] = tile_place(stmt.buffer, name)


def _emit_mma(state: LaunchState, stmt: Mma) -> None:
    regions = (stmt.a, stmt.b, stmt.c)
    dtypes = ", ".join(storage(region.dtype) for region in regions)
    starts = ", ".join(region_start(state, region) for region in regions)
    state.writer.line(f"warp_mma<{dtypes}>(me, {starts});")


def _emit_load_matrix(state: LaunchState, stmt: LoadMatrix) -> None:
    (elements,) = stmt.dst.static_extents() or (0,)
    count = elements * stmt.dst.dtype.bytes // 4
    transposed = "true" if stmt.transposed else "false"
    starts = f"{region_start(state, stmt.dst)}, {region_start(state, stmt.src)}"
    state.writer.line(f"load_matrix<{count}, {transposed}>(me, {starts});")


def _emit_random_start(state: LaunchState, stmt: RandomStart) -> None:
    numbers = (stmt.seed, stmt.sequence, stmt.offset)
    state.writer.line(f"random.start({', '.join(value(state, number) for number in numbers)});")


def _emit_random_number(state: LaunchState, stmt: RandomNumber) -> None:
    kind, name = computing(stmt.result.dtype), state.declare(stmt.result)
    function = "next_float" if stmt.result.dtype.is_float else "next"
    state.writer.line(f"const {kind} {name} = random.{function}();")


STEPS: dict[type[Stmt], Callable[[LaunchState, Any], None]] = {
    ClusterBarrier: _emit_cluster_barrier,
    Exchange: _emit_exchange,
    Gemm: emit_warp_gemm,
    Intrinsic: _emit_intrinsic,
    LoadMatrix: _emit_load_matrix,
    Mma: _emit_mma,
    NamedBarrier: _emit_named_barrier,
    PeerView: _emit_peer_view,
    RandomNumber: _emit_random_number,
    RandomStart: _emit_random_start,
}


def _refuse_grid(state: LaunchState, stmt: GridBarrier) -> None:
    raise UnsupportedOnTargetError(
        "T.sync_grid on the CPU, where the blocks of a launch do not run at once",
        location=stmt.loc,
    )


def _refuse_call(state: LaunchState, stmt: ExternCall) -> None:
    raise UnsupportedOnTargetError(
        f"T.call_extern({stmt.function!r}) on the CPU: its source is CUDA C++", location=stmt.loc
    )


def _refuse_active_mask(state: LaunchState, stmt: Exchange) -> None:
    if stmt.op == "activemask":
        raise UnsupportedOnTargetError(
            "T.activemask on the CPU, where no threads run together", location=stmt.loc
        )
    _emit_exchange(state, stmt)

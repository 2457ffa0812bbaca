"""One launch as one C++ function: its parameters, the loop over blocks, its tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tileops.codegen.cpu.expressions import index
from tileops.codegen.cpu.places import Arena, lay_out, place_global, place_tiles
from tileops.codegen.cpu.scalar_types import computing, storage
from tileops.codegen.cpu.state import LaunchState, Writer, identifier
from tileops.codegen.cpu.statements import emit_body
from tileops.codegen.cpu.threads import arena_of_threads, emit_fibers, threads_of
from tileops.codegen.cpu.work import grain_of
from tileops.codegen.kernel_code import KernelParam, LaunchCode, scalar_type
from tileops.dtypes import INT64
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, HostAttr, Var
from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.ir.walk import exprs, read_buffers, view_roots, walk, walk_expr, written_buffers
from tileops.passes.analyze_ranges import ANY, COUNT, Ranges

_ENTRY = "(const TileopsValue* params, i64 first, i64 last, char* scratch, TileopsStatus* status)"


def emit_launch(
    w: Writer, program: Program, launch: Launch, number: int, *, debug: bool
) -> LaunchCode:
    """Write the function of ``launch`` and tell how it is called."""
    entry = f"{identifier(program.name, number).rsplit('_', 1)[0]}_launch{number}"
    threads, found = threads_of(launch), used_params(program, launch)
    arena = lay_out(launch) if threads is None else arena_of_threads(launch, threads)
    state = LaunchState(w, Ranges(), f"scratch + {arena.gemm_space}")
    with w.block(f"TILEOPS_CPU_ENTRY tileops_int32 {entry}{_ENTRY}"):
        _emit_params(state, found)
        declare_params(state, found)
        state.roots = view_roots(launch.body)
        state.safe_values = {b.id: v for b, v in launch.safe_values}
        _emit_blocks(state, launch, arena, debug=debug)
        w.line("static_cast<void>(params), static_cast<void>(scratch), static_cast<void>(status);")
        w.line("return TILEOPS_OK;")
    return LaunchCode(
        entry=entry,
        params=tuple(used.param for used in found),
        grid=flat_grid(launch) if threads is None else clusters_of(launch),
        scratch_bytes=arena.size,
        grain=grain_of(launch.body),
    )


def _emit_blocks(state: LaunchState, launch: Launch, arena: Arena, *, debug: bool) -> None:
    w = state.writer
    emit_grid(state, launch)
    threads = threads_of(launch)
    unit = "block" if threads is None else "cluster"
    with w.block(f"for (i64 {unit} = first; {unit} < last; ++{unit})"):
        if threads is None:
            emit_block_vars(state, launch)
        if debug and arena.size:
            # All bits set is a NaN in every float format: what is never written shows.
            w.line(f"for (i64 n = 0; n < {arena.size}; ++n) scratch[n] = static_cast<char>(-1);")
        if threads is not None:
            emit_fibers(state, launch, threads, arena, lambda: emit_block_vars(state, launch))
            return
        place_tiles(state, launch, arena)
        emit_body(state, launch.body)


def emit_grid(state: LaunchState, launch: Launch) -> None:
    """The extents of the grid as int64 locals."""
    for n, extent in enumerate(launch.grid):
        state.writer.line(f"const i64 grid{n} = {index(state, extent)};")


def emit_block_vars(state: LaunchState, launch: Launch) -> None:
    """The indices of the block whose number is ``block``."""
    state.ranges = state.ranges.inside(launch)
    sizes = launch.cluster
    if threads_of(launch) is not None and math.prod(sizes) > 1:
        _emit_vars_in_clusters(state, launch, sizes)
        return
    divided = "block"
    for n, var in enumerate(launch.block_vars):
        kind = computing(var.dtype)
        at = divided if n == len(launch.block_vars) - 1 else f"{divided} % grid{n}"
        name = state.declare(var, state.ranges.of(var))
        state.writer.line(f"const {kind} {name} = static_cast<{kind}>({at});")
        divided = f"({divided} / grid{n})"


def _emit_vars_in_clusters(state: LaunchState, launch: Launch, sizes: Sequence[int]) -> None:
    """The indices of a block: blocks of one cluster have numbers next to each other."""
    total = math.prod(sizes)
    outer, inner = f"(block / {total})", f"(block % {total})"
    for n, (var, size) in enumerate(zip(launch.block_vars, sizes, strict=True)):
        kind, count = computing(var.dtype), f"(grid{n} / {size})"
        name = state.declare(var, state.ranges.of(var))
        at = f"{outer} % {count} * {size} + {inner} % {size}"
        state.writer.line(f"const {kind} {name} = static_cast<{kind}>({at});")
        outer, inner = f"({outer} / {count})", f"({inner} / {size})"


def clusters_of(launch: Launch) -> Expr:
    """The number of clusters, which are single blocks where the launch has none."""
    return fold.floordiv(flat_grid(launch), fold.const(math.prod(launch.cluster), INT64))


def flat_grid(launch: Launch) -> Expr:
    """The number of blocks."""
    grid: Expr = fold.const(1, INT64)
    for extent in launch.grid:
        grid = fold.mul(grid, fold.cast(extent, INT64))
    return grid


@dataclass(frozen=True)
class Used:
    """Something that a launch refers to, its parameter and its C++ name."""

    item: Buffer | Var | HostAttr
    param: KernelParam
    name: str


def used_params(program: Program, launch: Launch) -> tuple[Used, ...]:
    """What the launch refers to, in the order of its parameters."""
    buffers, exprs_ = _used(launch)
    variables = {e.id for e in exprs_ if isinstance(e, Var)}
    hosts = {e.name: e for e in exprs_ if isinstance(e, HostAttr)}
    found: list[Used] = []
    tensors = [p.buffer for p in program.tensors()]
    for kind, given in (("tensor", tensors), ("workspace", program.workspaces)):
        for n, buffer in enumerate(given):
            if buffer.id in buffers:
                param = KernelParam(buffer.name, kind, n, "ptr", str(buffer.dtype))
                found.append(Used(buffer, param, identifier(buffer.name, buffer.id)))
    scalars: tuple[tuple[str, list[Var]], ...] = (
        ("size", [size.var for size in program.sizes]),
        ("scalar", [scalar.var for scalar in program.scalars()]),
    )
    for kind, vars_ in scalars:
        for n, var in enumerate(vars_):
            if var.id in variables:
                param = KernelParam(var.name, kind, n, scalar_type(var.dtype))
                found.append(Used(var, param, identifier(var.name, var.id)))
    for name, attr in sorted(hosts.items()):
        param = KernelParam(name, "host", 0, scalar_type(attr.dtype), value=attr)
        found.append(Used(attr, param, f"host_{identifier(name, len(found))}"))
    return tuple(found)


def declare_params(state: LaunchState, found: Sequence[Used]) -> None:
    """Make the names of parameters known, and what holds of them."""
    for used in found:
        match used.item:
            case Var():
                state.declare(used.item, COUNT if used.param.kind == "size" else ANY)
            case HostAttr(name=name):
                state.hosts[name] = used.name
    for used in found:
        if isinstance(used.item, Buffer):
            place_global(state, used.item, used.name)


def _emit_params(state: LaunchState, found: Sequence[Used]) -> None:
    """Each parameter from its place in the list that the runtime passes."""
    for number, used in enumerate(found):
        place = f"params[{number}]"
        match used.item:
            case Buffer(dtype=dtype):
                kind, text = f"{storage(dtype)}*", f"static_cast<{storage(dtype)}*>({place}.p)"
                state.writer.line(f"{kind} const {used.name} = {text};")
                continue
            case Var(dtype=dtype) if dtype.is_float:
                text = f"round_to<{storage(dtype)}>({place}.f)"
            case Var(dtype=dtype) if dtype.is_bool:
                text = f"({place}.i != 0)"
            case _:
                text = f"static_cast<{computing(used.item.dtype)}>({place}.i)"
        state.writer.line(f"const {computing(used.item.dtype)} {used.name} = {text};")


def _used(launch: Launch) -> tuple[dict[int, Buffer], list[Expr]]:
    """The buffers that a launch accesses, by id, and the expressions in it and in their shapes."""
    buffers: dict[int, Buffer] = {}
    seen: list[Expr] = [v for _, v in launch.safe_values]
    for stmt in walk((launch,)):
        seen += exprs(stmt)
        buffers |= {b.id: b for b in (*read_buffers(stmt), *written_buffers(stmt))}
    for buffer in buffers.values():
        seen += (*buffer.shape, *(buffer.strides or ()))
    return buffers, [e for expr in seen for e in walk_expr(expr)]

"""One launch as one C++ function: its parameters, the loop over blocks, its tiles."""

from __future__ import annotations

from tileops.codegen.cpu.expressions import index
from tileops.codegen.cpu.places import Arena, lay_out, place_global, place_tiles
from tileops.codegen.cpu.scalar_types import computing, storage
from tileops.codegen.cpu.state import LaunchState, Writer, identifier
from tileops.codegen.cpu.statements import emit_body
from tileops.codegen.cpu.work import grain_of
from tileops.codegen.kernel_code import KernelParam, LaunchCode, scalar_type
from tileops.dtypes import INT64
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, HostAttr, Var
from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.ir.walk import exprs, read_buffers, view_roots, walk, walk_expr, written_buffers
from tileops.passes.analyze_ranges import ANY, COUNT, Interval, Ranges

_ENTRY = "(const TileopsValue* params, i64 first, i64 last, char* scratch, TileopsStatus* status)"


def emit_launch(
    w: Writer, program: Program, launch: Launch, number: int, *, debug: bool
) -> LaunchCode:
    """Write the function of ``launch`` and tell how it is called."""
    entry = f"{identifier(program.name, number).rsplit('_', 1)[0]}_launch{number}"
    arena = lay_out(launch)
    state = LaunchState(w, Ranges(), f"scratch + {arena.gemm_space}")
    with w.block(f"TILEOPS_CPU_ENTRY tileops_int32 {entry}{_ENTRY}"):
        params = _declare_params(state, program, launch)
        state.roots = view_roots(launch.body)
        state.safe_values = {b.id: v for b, v in launch.safe_values}
        _emit_blocks(state, launch, arena, debug=debug)
        w.line("static_cast<void>(params), static_cast<void>(scratch), static_cast<void>(status);")
        w.line("return TILEOPS_OK;")
    grid: Expr = fold.const(1, INT64)
    for extent in launch.grid:
        grid = fold.mul(grid, fold.cast(extent, INT64))
    return LaunchCode(
        entry=entry, params=params, grid=grid, scratch_bytes=arena.size, grain=grain_of(launch.body)
    )


def _emit_blocks(state: LaunchState, launch: Launch, arena: Arena, *, debug: bool) -> None:
    w = state.writer
    for n, extent in enumerate(launch.grid):
        w.line(f"const i64 grid{n} = {index(state, extent)};")
    with w.block("for (i64 block = first; block < last; ++block)"):
        state.ranges = state.ranges.inside(launch)
        divided = "block"
        for n, var in enumerate(launch.block_vars):
            kind = computing(var.dtype)
            at = divided if n == len(launch.block_vars) - 1 else f"{divided} % grid{n}"
            name = state.declare(var, state.ranges.of(var))
            w.line(f"const {kind} {name} = static_cast<{kind}>({at});")
            divided = f"({divided} / grid{n})"
        if debug and arena.size:
            # All bits set is a NaN in every float format: what is never written shows.
            w.line(f"for (i64 n = 0; n < {arena.size}; ++n) scratch[n] = static_cast<char>(-1);")
        place_tiles(state, launch, arena)
        emit_body(state, launch.body)


def _declare_params(
    state: LaunchState, program: Program, launch: Launch
) -> tuple[KernelParam, ...]:
    """What the launch refers to, as parameters and as local names."""
    buffers, used = _used(launch)
    variables = {e.id for e in used if isinstance(e, Var)}
    hosts = {e.name: e for e in used if isinstance(e, HostAttr)}
    params: list[KernelParam] = []
    pointers: list[tuple[Buffer, str]] = []
    tensors = [p.buffer for p in program.tensors()]
    for kind, found in (("tensor", tensors), ("workspace", program.workspaces)):
        for n, buffer in enumerate(found):
            if buffer.id in buffers:
                name, element = identifier(buffer.name, buffer.id), storage(buffer.dtype)
                pointer = f"static_cast<{element}*>(params[{len(params)}].p)"
                state.writer.line(f"{element}* const {name} = {pointer};")
                pointers.append((buffer, name))
                params.append(KernelParam(buffer.name, kind, n, "ptr", str(buffer.dtype)))
    for n, size in enumerate(program.sizes):
        if size.var.id in variables:
            params.append(_scalar(state, size.var, "size", n, len(params), COUNT))
    for n, scalar in enumerate(program.scalars()):
        if scalar.var.id in variables:
            params.append(_scalar(state, scalar.var, "scalar", n, len(params), ANY))
    for name, attr in sorted(hosts.items()):
        local = f"host_{identifier(name, len(params))}"
        kind = computing(attr.dtype)
        state.writer.line(f"const {kind} {local} = static_cast<{kind}>(params[{len(params)}].i);")
        state.hosts[name] = local
        params.append(KernelParam(name, "host", 0, scalar_type(attr.dtype), value=attr))
    for buffer, pointer in pointers:
        place_global(state, buffer, pointer)
    return tuple(params)


def _scalar(
    state: LaunchState, var: Var, kind: str, number: int, at: int, interval: Interval
) -> KernelParam:
    name, param, target = state.declare(var, interval), f"params[{at}]", computing(var.dtype)
    if var.dtype.is_float:
        text = f"round_to<{storage(var.dtype)}>({param}.f)"
    elif var.dtype.is_bool:
        text = f"({param}.i != 0)"
    else:
        text = f"static_cast<{target}>({param}.i)"
    state.writer.line(f"const {target} {name} = {text};")
    return KernelParam(var.name, kind, number, scalar_type(var.dtype))


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

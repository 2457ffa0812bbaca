"""Owns one launch as one C++ function: its parameters, the loop over blocks, its tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileops.codegen.cpu.arena import Arena, lay_out
from tileops.codegen.cpu.expressions import index
from tileops.codegen.cpu.scalar_types import computing, param_type, storage
from tileops.codegen.cpu.state import LaunchState, identifier
from tileops.codegen.cpu.statements import emit_body
from tileops.codegen.cpu.tiles import place_global, place_tiles
from tileops.codegen.cpu.work import grain_of
from tileops.codegen.cpu.writer import Writer
from tileops.codegen.kernel_code import KernelParam, LaunchCode
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, HostAttr, Var
from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.ir.walk import (
    exprs,
    loads,
    read_buffers,
    view_roots,
    walk,
    walk_expr,
    written_buffers,
)
from tileops.passes.analyze_ranges import Interval, Ranges

_ENTRY = "(const TileopsValue* params, i64 first, i64 last, char* scratch, TileopsStatus* status)"


@dataclass(frozen=True)
class _Used:
    """What a launch refers to: ids of buffers and variables, names of host attributes."""

    buffers: frozenset[int]
    variables: frozenset[int]
    hosts: Mapping[str, HostAttr]


class StateFactory:
    """Makes the state of a launch; what launches of one program share lies here."""

    def __init__(self, writer: Writer, debug: bool) -> None:
        self._writer, self._debug = writer, debug

    def __call__(self, ranges: Ranges) -> LaunchState:
        """A new state that knows ``ranges``."""
        return LaunchState(self._writer, ranges, debug=self._debug)


def emit_launch(
    w: Writer, program: Program, launch: Launch, number: int, state_of: StateFactory
) -> LaunchCode:
    """Write the function of ``launch`` and tell how it is called."""
    entry = f"{identifier(program.name, number).rsplit('_', 1)[0]}_launch{number}"
    arena = lay_out(launch)
    used = _used(program, launch)
    state = state_of(Ranges())
    state.gemm_space = f"scratch + {arena.gemm_space}"
    with w.block(f"TILEOPS_CPU_ENTRY tileops_int32 {entry}{_ENTRY}"):
        params = _declare_params(state, program, used)
        state.roots = view_roots(launch.body)
        state.safe_values = {b.id: v for b, v in launch.safe_values}
        _emit_blocks(state, launch, arena)
        w.line("static_cast<void>(params), static_cast<void>(scratch), static_cast<void>(status);")
        w.line("return TILEOPS_OK;")
    grid: Expr = fold.const(1, fold.INT64)
    for extent in launch.grid:
        grid = fold.mul(grid, fold.cast(extent, fold.INT64))
    return LaunchCode(
        entry=entry,
        params=params,
        grid=grid,
        scratch_bytes=arena.size,
        grain=grain_of(launch.body),
    )


def _emit_blocks(state: LaunchState, launch: Launch, arena: Arena) -> None:
    w = state.writer
    extents = [index(state, e) for e in launch.grid]
    for n, text in enumerate(extents):
        w.line(f"const i64 grid{n} = {text};")
    with w.block("for (i64 block = first; block < last; ++block)"):
        state.ranges = state.ranges.inside_launch(launch)
        divided = "block"
        for n, var in enumerate(launch.block_vars):
            kind = computing(var.dtype)
            at = divided if n == len(launch.block_vars) - 1 else f"{divided} % grid{n}"
            name = state.declare(var, state.ranges.of(var))
            w.line(f"const {kind} {name} = static_cast<{kind}>({at});")
            divided = f"({divided} / grid{n})"
        if state.debug and arena.size:
            # All bits set is a NaN in every float format: what is never written shows.
            w.line(f"for (i64 n = 0; n < {arena.size}; ++n) scratch[n] = static_cast<char>(-1);")
        place_tiles(state, launch, arena)
        emit_body(state, launch.body)


def _declare_params(state: LaunchState, program: Program, used: _Used) -> tuple[KernelParam, ...]:
    params: list[KernelParam] = []
    pointers: list[tuple[Buffer, str]] = []
    for n, tensor in enumerate(program.tensors()):
        if tensor.buffer.id in used.buffers:
            _pointer(state, params, pointers, tensor.buffer, "tensor", n)
    for n, buffer in enumerate(program.workspaces):
        if buffer.id in used.buffers:
            _pointer(state, params, pointers, buffer, "workspace", n)
    for n, size in enumerate(program.sizes):
        if size.var.id in used.variables:
            _scalar(state, params, size.var, "size", n, Interval(0, None))
    for n, scalar in enumerate(program.scalars()):
        if scalar.var.id in used.variables:
            _scalar(state, params, scalar.var, "scalar", n, None)
    for name, attr in sorted(used.hosts.items()):
        local = f"host_{identifier(name, len(params))}"
        kind = computing(attr.dtype)
        state.writer.line(f"const {kind} {local} = static_cast<{kind}>(params[{len(params)}].i);")
        state.hosts[name] = local
        params.append(KernelParam(name, "host", 0, param_type(attr.dtype), value=attr))
    for buffer, name in pointers:
        place_global(state, buffer, name)
    return tuple(params)


def _pointer(
    state: LaunchState,
    params: list[KernelParam],
    pointers: list[tuple[Buffer, str]],
    buffer: Buffer,
    kind: str,
    number: int,
) -> None:
    name, element = identifier(buffer.name, buffer.id), storage(buffer.dtype)
    state.writer.line(
        f"{element}* const {name} = static_cast<{element}*>(params[{len(params)}].p);"
    )
    params.append(KernelParam(buffer.name, kind, number, "ptr", dtype=str(buffer.dtype)))
    pointers.append((buffer, name))


def _scalar(
    state: LaunchState,
    params: list[KernelParam],
    var: Var,
    kind: str,
    number: int,
    interval: Interval | None,
) -> None:
    name = state.declare(var, interval)
    at, target = f"params[{len(params)}]", computing(var.dtype)
    if var.dtype.is_float:
        text = f"round_to<{storage(var.dtype)}>({at}.f)"
    elif var.dtype.is_bool:
        text = f"({at}.i != 0)"
    else:
        text = f"static_cast<{target}>({at}.i)"
    state.writer.line(f"const {target} {name} = {text};")
    params.append(KernelParam(var.name, kind, number, param_type(var.dtype)))


def _used(program: Program, launch: Launch) -> _Used:
    buffers: dict[int, Buffer] = {}
    seen: list[Expr] = [v for _, v in launch.safe_values]
    for stmt in walk((launch,)):
        seen.extend(exprs(stmt))
        for buffer in (
            *read_buffers(stmt),
            *written_buffers(stmt),
            *(x.buffer for x in loads(stmt)),
        ):
            buffers[buffer.id] = buffer
    for buffer in list(buffers.values()):
        seen.extend(buffer.shape)
        seen.extend(buffer.strides or ())
    parts = [e for expr in seen for e in walk_expr(expr)]
    return _Used(
        frozenset(buffers),
        frozenset(e.id for e in parts if isinstance(e, Var)),
        {e.name: e for e in parts if isinstance(e, HostAttr)},
    )

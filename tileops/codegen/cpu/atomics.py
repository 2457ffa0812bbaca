"""Owns atomic updates: the scalar form as a call, the tile form as a nest of scalar ones."""

from __future__ import annotations

from tileops.codegen.cpu.expressions import element, guards, safe_value, value
from tileops.codegen.cpu.nests import emit_parallel
from tileops.codegen.cpu.scalar_types import computing
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Load, Region
from tileops.ir.stmt import Atomic, Body, Parallel


def emit_atomic(state: LaunchState, stmt: Atomic) -> None:
    """One update, skipped where its element does not exist, or one an element of a tile."""
    if isinstance(stmt.value, Region) or stmt.dst.squeezed():
        emit_parallel(state, _as_nest(state, stmt), _emit_each)
    else:
        _emit_scalar(state, stmt)


def _emit_each(state: LaunchState, body: Body) -> None:
    for stmt in body:
        if not isinstance(stmt, Atomic):
            raise InternalError("a tile atomic unfolds into scalar ones")
        _emit_scalar(state, stmt)


def _emit_scalar(state: LaunchState, stmt: Atomic) -> None:
    buffer, at = stmt.dst.buffer, stmt.dst.starts
    if isinstance(stmt.value, Region):
        raise InternalError("a scalar atomic has a scalar operand")
    operand = "" if stmt.value is None else f", {value(state, fold.cast(stmt.value, buffer.dtype))}"
    # A tile belongs to the one thread that runs its block.
    kind = "plain" if buffer.is_on_chip else "atomic"
    text = f"{kind}_{stmt.op}(&{element(state, buffer, at)}{operand})"
    conditions = " && ".join(guards(state, buffer, at))
    if stmt.result is None:
        state.writer.line(f"if ({conditions}) {text};" if conditions else f"{text};")
        return
    if conditions:
        text = f"({conditions}) ? {text} : {safe_value(state, buffer)}"
    name = state.declare(stmt.result)
    state.writer.line(f"const {computing(stmt.result.dtype)} {name} = {text};")


def _as_nest(state: LaunchState, stmt: Atomic) -> Parallel:
    """The tile form as a nest over the dimensions that both sides walk."""
    dims = stmt.dst.walked()
    names = [state.fresh_var(f"e{n}") for n in range(len(dims))]
    value = stmt.value
    if isinstance(value, Region):
        source_dims = value.walked()
        if len(source_dims) != len(dims):
            raise InternalError(f"atomic pairs {len(source_dims)} with {len(dims)} dimensions")
        value = Load(value.dtype, value.buffer, fold.region_indices(value, source_dims, names))
    at = fold.region_indices(stmt.dst, dims, names)
    ones = tuple(fold.const(1) for _ in at)
    one = Atomic(stmt.op, Region(stmt.dst.buffer, at, ones), value, order=stmt.order)
    return Parallel(tuple(names), tuple(stmt.dst.extents[d] for d in dims), (one,))

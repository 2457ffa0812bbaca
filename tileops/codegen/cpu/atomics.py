"""Owns atomic updates: the scalar form as a call, the tile form as a nest of scalar ones."""

from __future__ import annotations

from tileops.codegen.cpu.expressions import element, guards, safe_value, value
from tileops.codegen.cpu.nests import emit_parallel
from tileops.codegen.cpu.scalar_types import computing
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Region, Var
from tileops.ir.stmt import Atomic, Body, Parallel


def emit_atomic(state: LaunchState, stmt: Atomic) -> None:
    """One update, skipped where its element does not exist, or one an element of a tile."""
    if isinstance(stmt.value, Region):
        emit_parallel(state, _as_nest(state, stmt, stmt.value), _emit_each)
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
    text = f"atomic_{stmt.op}(&{element(state, buffer, at)}{operand})"
    conditions = " && ".join(guards(state, buffer, at))
    if stmt.result is None:
        state.writer.line(f"if ({conditions}) {text};" if conditions else f"{text};")
        return
    kind = computing(stmt.result.dtype)
    if conditions:
        text = f"({conditions}) ? {text} : {safe_value(state, buffer)}"
    name = state.declare(stmt.result)
    state.writer.line(f"const {kind} {name} = {text};")


def _as_nest(state: LaunchState, stmt: Atomic, source: Region) -> Parallel:
    """The tile form as a nest over the dimensions that both sides walk."""
    dst_dims, src_dims = stmt.dst.squeezed(), source.squeezed()
    if len(dst_dims) != len(src_dims):
        raise InternalError(f"atomic pairs {len(src_dims)} with {len(dst_dims)} dimensions")
    names = [state.fresh_var(f"e{n}") for n in range(len(dst_dims))]
    extents = tuple(stmt.dst.extents[d] for d in dst_dims)
    dst_at = _moved(stmt.dst, dst_dims, names)
    src_at = _moved(source, src_dims, names)
    ones = tuple(fold.const(1) for _ in dst_at)
    one = Atomic(
        op=stmt.op,
        dst=Region(stmt.dst.buffer, dst_at, ones),
        value=Load(source.dtype, source.buffer, src_at),
        order=stmt.order,
    )
    if not names:
        names, extents = [state.fresh_var("e0")], (fold.const(1),)
    return Parallel(tuple(names), extents, (one,))


def _moved(region: Region, dims: tuple[int, ...], names: list[Var]) -> tuple[Expr, ...]:
    at = list(region.starts)
    for d, name in zip(dims, names, strict=True):
        at[d] = fold.add(at[d], name)
    return tuple(at)

"""Atomic updates of single elements, each a call of csrc/cpu/atomic.h."""

from __future__ import annotations

from tileops.codegen.cpu.expressions import element, guards, safe_value, value
from tileops.codegen.cpu.scalar_types import computing
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Region
from tileops.ir.stmt import Atomic


def emit_atomic(state: LaunchState, stmt: Atomic) -> None:
    """One update, skipped where its element does not exist."""
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

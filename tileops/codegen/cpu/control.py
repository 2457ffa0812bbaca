"""Owns control flow: loops, conditions, and the scalars bound on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tileops.codegen.cpu.expressions import (
    element,
    guards,
    safe_loads_in_branches,
    stored,
    value,
)
from tileops.codegen.cpu.scalar_types import computing
from tileops.codegen.cpu.state import LaunchState
from tileops.ir.expr import Expr
from tileops.ir.stmt import Bind, Body, For, If, Store, While

EmitBody = Callable[[LaunchState, Body], None]


def emit_for(state: LaunchState, stmt: For, emit_body: EmitBody) -> None:
    """A loop of any kind: all run in order. Its bounds are evaluated once, before it."""
    w, kind = state.writer, computing(stmt.var.dtype)
    start, stop = value(state, stmt.start), value(state, stmt.stop)
    with state.scope():
        inside = state.ranges.inside_loop(stmt)
        interval = inside.of(stmt.var)
        state.ranges = inside
        name = state.declare(stmt.var, interval)
        end = w.fresh("stop")
        head = f"for ({kind} {name} = {start}, {end} = {stop}; {name} < {end}; ++{name})"
        with w.block(head):
            emit_body(state, stmt.body)


def emit_while(state: LaunchState, stmt: While, emit_body: EmitBody) -> None:
    """A while loop; its condition is computed before each iteration."""
    with state.writer.block(f"while ({value(state, stmt.cond)})"), state.scope():
        emit_body(state, stmt.body)


def emit_if(state: LaunchState, stmt: If, emit_body: EmitBody) -> None:
    """A branch, with its other side if it has one."""
    w = state.writer
    with w.block(f"if ({value(state, stmt.cond)})"), state.scope():
        emit_body(state, stmt.then)
    if stmt.orelse:
        with w.block("else"), state.scope():
            emit_body(state, stmt.orelse)


def preload(state: LaunchState, *exprs: Expr) -> dict[object, str]:
    """Perform the loads that are safe but stand under a Select, so that the choice needs no branch.

    Returns the loads to forget after the statement: a later store may change what they read.
    """
    added: dict[object, str] = {}
    for expr in exprs:
        for load in safe_loads_in_branches(state, expr):
            name = state.writer.fresh("t")
            state.writer.line(f"const {computing(load.dtype)} {name} = {value(state, load)};")
            state.hoisted[load] = added[load] = name
    return added


def forget(state: LaunchState, added: dict[object, str]) -> None:
    """Undo ``preload``."""
    state.hoisted = {load: name for load, name in state.hoisted.items() if load not in added}


def emit_bind(state: LaunchState, stmt: Bind) -> None:
    """A named value, computed once where it is bound."""
    added = preload(state, stmt.value)
    text = value(state, stmt.value)
    forget(state, added)
    name = state.declare(
        stmt.var, state.ranges.of(stmt.value) if stmt.var.dtype.is_integer else None
    )
    if stmt.var.id in state.ranges.limits:
        limits = {k: v for k, v in state.ranges.limits.items() if k != stmt.var.id}
        state.ranges = replace(state.ranges, limits=limits)
    state.writer.line(f"const {computing(stmt.var.dtype)} {name} = {text};")


def emit_store(state: LaunchState, stmt: Store) -> None:
    """One element; dropped where it lies outside a global buffer."""
    w = state.writer
    added = preload(state, stmt.value)
    conditions = guards(state, stmt.buffer, stmt.indices)
    text = f"{element(state, stmt.buffer, stmt.indices)} = {stored(state, stmt.value)};"
    forget(state, added)
    w.line(f"if ({' && '.join(conditions)}) {text}" if conditions else text)

"""Statements of the tile IR as C++: the dispatch, loops and branches, and stores of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tileops.codegen.cpu import boxes, effects, places, tile_calls
from tileops.codegen.cpu.expressions import element, guards, safe_loads_in_branches, stored, value
from tileops.codegen.cpu.nests import emit_parallel
from tileops.codegen.cpu.scalar_types import computing
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir import stmt as ir
from tileops.ir.expr import Expr


def emit_body(state: LaunchState, body: ir.Body) -> None:
    """All statements of a list, each line of text recorded under its statement's number."""
    w = state.writer
    outer = w.statement
    for stmt in body:
        w.statement = outer if stmt.origin is None else stmt.origin
        emit = state.steps.get(type(stmt)) or _EMITTERS.get(type(stmt))
        if emit is None:
            raise InternalError(f"cpu code generation: unknown statement {type(stmt).__name__}")
        emit(state, stmt)
    w.statement = outer


# -- control flow ----------------------------------------------------------------------------------
def _emit_for(state: LaunchState, stmt: ir.For) -> None:
    """A loop of any kind: all run in order. Its bounds are evaluated once, before it."""
    w, kind = state.writer, computing(stmt.var.dtype)
    start, stop = value(state, stmt.start), value(state, stmt.stop)
    with state.scope():
        state.ranges = state.ranges.inside(stmt)
        name = state.declare(stmt.var, state.ranges.of(stmt.var))
        end = w.fresh("stop")
        head = f"for ({kind} {name} = {start}, {end} = {stop}; {name} < {end}; ++{name})"
        with w.block(head):
            emit_body(state, stmt.body)


def _emit_while(state: LaunchState, stmt: ir.While) -> None:
    """A while loop; its condition is computed before each iteration."""
    with state.writer.block(f"while ({value(state, stmt.cond)})"), state.scope():
        emit_body(state, stmt.body)


def _emit_if(state: LaunchState, stmt: ir.If) -> None:
    """A branch, with its other side if it has one."""
    w = state.writer
    with w.block(f"if ({value(state, stmt.cond)})"), state.scope():
        emit_body(state, stmt.then)
    if stmt.orelse:
        with w.block("else"), state.scope():
            emit_body(state, stmt.orelse)


# -- scalars ---------------------------------------------------------------------------------------
@contextmanager
def _preloaded(state: LaunchState, expr: Expr) -> Iterator[None]:
    """Perform the loads that are safe but under a Select, so that the choice needs no branch."""
    # They are forgotten after the block: a later store may change what they read.
    before = dict(state.hoisted)
    for load in safe_loads_in_branches(state, expr):
        name = state.writer.fresh("t")
        state.writer.line(f"const {computing(load.dtype)} {name} = {value(state, load)};")
        state.hoisted[load] = name
    yield
    state.hoisted = before


def _emit_bind(state: LaunchState, stmt: ir.Bind) -> None:
    """A named value, computed once where it is bound."""
    var = stmt.var
    with _preloaded(state, stmt.value):
        text = value(state, stmt.value)
    name = state.declare(var, state.ranges.of(stmt.value))
    if var.id in state.ranges.limits:
        limits = {k: v for k, v in state.ranges.limits.items() if k != var.id}
        state.ranges = replace(state.ranges, limits=limits)
    state.writer.line(f"const {computing(var.dtype)} {name} = {text};")


def _emit_store(state: LaunchState, stmt: ir.Store) -> None:
    """One element; dropped where it is outside a global buffer."""
    with _preloaded(state, stmt.value):
        conditions = guards(state, stmt.buffer, stmt.indices)
        text = f"{element(state, stmt.buffer, stmt.indices)} = {stored(state, stmt.value)};"
    state.writer.line(f"if ({' && '.join(conditions)}) {text}" if conditions else text)


def _emit_alloc(state: LaunchState, stmt: ir.Alloc) -> None:
    # Tiles have their place from the launch's head on; only a var's initial value is stored here.
    if stmt.init is not None:
        state.writer.line(f"{state.place(stmt.buffer).pointer}[0] = {stored(state, stmt.init)};")


_EMITTERS: dict[type[ir.Stmt], Callable[[LaunchState, Any], None]] = {
    ir.AddressView: places.emit_address_view,
    ir.Alloc: _emit_alloc,
    ir.ArgReduce: tile_calls.emit_arg_reduce,
    ir.Assert: effects.emit_assert,
    ir.Assume: lambda state, _: None,  # a promise to other generators
    ir.Atomic: effects.emit_atomic,
    ir.Bind: _emit_bind,
    ir.Break: lambda state, _: state.writer.line("break;"),
    ir.Check: effects.emit_check,
    ir.Continue: lambda state, _: state.writer.line("continue;"),
    ir.Copy: boxes.emit_copy,
    ir.Fill: boxes.emit_fill,
    ir.For: _emit_for,
    ir.Gemm: tile_calls.emit_gemm,
    ir.If: _emit_if,
    ir.Intrinsic: effects.emit_intrinsic,
    ir.Parallel: lambda state, stmt: emit_parallel(state, stmt, emit_body),
    ir.Print: effects.emit_print,
    ir.Reduce: tile_calls.emit_reduce,
    ir.Scan: tile_calls.emit_scan,
    ir.Store: _emit_store,
    ir.Transpose: boxes.emit_transpose,
    ir.View: places.emit_view,
    ir.While: _emit_while,
}

"""Owns the dispatch from statements of the tile IR to what emits them."""

from __future__ import annotations

from tileops.codegen.cpu.atomics import emit_atomic
from tileops.codegen.cpu.boxes import emit_copy, emit_fill, emit_transpose
from tileops.codegen.cpu.control import (
    emit_bind,
    emit_for,
    emit_if,
    emit_store,
    emit_while,
)
from tileops.codegen.cpu.effects import emit_assert, emit_check, emit_intrinsic, emit_print
from tileops.codegen.cpu.expressions import stored
from tileops.codegen.cpu.matmuls import emit_gemm
from tileops.codegen.cpu.nests import emit_parallel
from tileops.codegen.cpu.reductions import emit_reduce, emit_scan
from tileops.codegen.cpu.state import LaunchState
from tileops.codegen.cpu.tiles import emit_address_view, emit_view
from tileops.errors import InternalError
from tileops.ir.stmt import (
    AddressView,
    Alloc,
    Assert,
    Assume,
    Atomic,
    Bind,
    Body,
    Break,
    Check,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Intrinsic,
    Parallel,
    Print,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
    View,
    While,
)


def emit_body(state: LaunchState, body: Body) -> None:
    """All statements of a list, each line of text recorded under its statement's number."""
    w = state.writer
    outer = w.statement
    for stmt in body:
        w.statement = outer if stmt.origin is None else stmt.origin
        _emit(state, stmt)
    w.statement = outer


def _emit(state: LaunchState, stmt: Stmt) -> None:
    match stmt:
        case For():
            emit_for(state, stmt, emit_body)
        case Parallel():
            emit_parallel(state, stmt, emit_body)
        case While():
            emit_while(state, stmt, emit_body)
        case If():
            emit_if(state, stmt, emit_body)
        case Break():
            state.writer.line("break;")
        case Continue():
            state.writer.line("continue;")
        case Bind():
            emit_bind(state, stmt)
        case Store():
            emit_store(state, stmt)
        case _:
            _emit_tile(state, stmt)


def _emit_tile(state: LaunchState, stmt: Stmt) -> None:
    match stmt:
        case Alloc():
            _emit_alloc(state, stmt)
        case View():
            emit_view(state, stmt)
        case AddressView():
            emit_address_view(state, stmt)
        case Copy():
            emit_copy(state, stmt)
        case Fill():
            emit_fill(state, stmt)
        case Gemm():
            emit_gemm(state, stmt)
        case Reduce():
            emit_reduce(state, stmt)
        case Scan():
            emit_scan(state, stmt)
        case Transpose():
            emit_transpose(state, stmt)
        case _:
            _emit_rare(state, stmt)


def _emit_rare(state: LaunchState, stmt: Stmt) -> None:
    match stmt:
        case Atomic():
            emit_atomic(state, stmt)
        case Assert():
            emit_assert(state, stmt)
        case Check():
            emit_check(state, stmt)
        case Print():
            emit_print(state, stmt)
        case Intrinsic():
            emit_intrinsic(state, stmt)
        case Assume():
            return
        case _:
            raise InternalError(f"cpu code generation: unknown statement {type(stmt).__name__}")


def _emit_alloc(state: LaunchState, stmt: Alloc) -> None:
    # Tiles have their place from the launch's head on; only a var's initial value happens here.
    if stmt.init is not None:
        state.writer.line(f"{state.place(stmt.buffer).pointer}[0] = {stored(state, stmt.init)};")

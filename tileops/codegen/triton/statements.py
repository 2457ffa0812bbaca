"""The text of statements: a table from each kind to its emitter, and the small emitters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tileops.codegen.triton import atomics, control, copies, gemms, nibbles, reductions
from tileops.codegen.triton.elements import all_lanes_mask, extents_of, load_region, store_element
from tileops.codegen.triton.expressions import emit_condition, emit_expr
from tileops.codegen.triton.functions import converted
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.storage import Storage
from tileops.codegen.triton.text import ATOM, Val, triton_type
from tileops.errors import ProgramError
from tileops.ir import stmt as ir
from tileops.ir.expr import Expr, Region

# Without effect where every statement acts on whole tiles in program order.
_NO_OPERATION = frozenset({"sync_threads", "pdl_sync", "pdl_trigger", "sync_warp"})


def emit_body(state: LaunchState, body: ir.Body, live: Ids) -> None:
    """A statement list; ``live`` are the buffers whose value is used after it."""
    for stmt, after in zip(body, state.liveness.after(body, live), strict=True):
        before, state.loc = state.loc, stmt.loc or state.loc
        if stmt.origin is not None:
            state.writer.statement = stmt.origin
        try:
            if type(stmt) in _CONTROL:
                _CONTROL[type(stmt)](state, stmt, after)
            elif type(stmt) in _SIMPLE:
                _SIMPLE[type(stmt)](state, stmt)
            elif type(stmt) in state.steps:
                state.steps[type(stmt)](state, stmt)
            else:
                kind = type(stmt).__name__.lower()
                raise state.unsupported(f"`{kind}` is not supported on target {state.target}")
        except ProgramError as error:
            raise error.at(state.loc) from None
        finally:
            state.loc = before


def _emit_address_view(state: LaunchState, stmt: ir.AddressView) -> None:
    """Let the buffer name the memory at an address, the same for all lanes."""
    address = emit_expr(state, stmt.address)
    if not address.is_scalar or state.space.rank:
        raise state.unsupported(
            f"`{stmt.buffer.name}` at an address of each point of T.Parallel; call T.make_tensor "
            "before the loop"
        )
    kind = f"tl.pointer_type({triton_type(stmt.buffer.dtype)})"
    pointer = Val(f"{address.at(ATOM)}.to({kind})", stmt.buffer.dtype)
    state.params.place(stmt.buffer, state.temporary(stmt.buffer.name, pointer).text)


def _emit_alloc(state: LaunchState, stmt: ir.Alloc) -> None:
    buffer, storage = stmt.buffer, None
    if state.memory.holds(buffer):
        return
    if state.space.rank:
        extents = buffer.static_shape()
        if extents is None or any(e != 1 for e in extents):
            raise state.unsupported(
                f"an array allocated inside T.Parallel, with a view or in a nest of run-time "
                f"extents: `{buffer.name}`"
            )
        storage = Storage(buffer, (), (), (), state.space.padded)
    state.declare(buffer, storage)
    if stmt.init is not None:
        with state.nested(mask=None):
            store_element(state, buffer, (), emit_expr(state, stmt.init))


def _emit_bind(state: LaunchState, stmt: ir.Bind) -> None:
    ranges = state.scope.ranges.with_value(stmt.var, stmt.value)
    if (read := nibbles.packed(state, stmt.value)) is not None:
        state.packed[stmt.var.id] = read
        value = nibbles.numbers(state, read)
    else:
        value = emit_expr(state, stmt.value)
    state.bind(stmt.var, converted(state, value, stmt.var.dtype), ranges)


def _emit_store(state: LaunchState, stmt: ir.Store) -> None:
    store_element(state, stmt.buffer, stmt.indices, emit_expr(state, stmt.value))


def _emit_assume(state: LaunchState, stmt: ir.Assume) -> None:
    if not state.space.rank:
        state.writer.line(f"tl.assume({emit_condition(state, stmt.cond).text})")


def _emit_assert(state: LaunchState, stmt: ir.Assert) -> None:
    if stmt.host:
        return
    cond, mask = emit_condition(state, stmt.cond), state.scope.mask
    if state.space.rank:
        mask = all_lanes_mask(state, mask)
    options = "" if mask is None else f", mask={mask.text}"
    state.writer.line(f"tl.device_assert({cond.text}, {stmt.message!r}{options})")


def _emit_intrinsic(state: LaunchState, stmt: ir.Intrinsic) -> None:
    if stmt.name not in _NO_OPERATION:
        raise state.unsupported(f"`T.{stmt.name}` is not supported on target {state.target}")


def _refuse_threads(state: LaunchState, stmt: ir.Threads) -> None:
    raise state.unsupported(f"statements of single threads have no Triton form: {stmt.reason}")


def _emit_print(state: LaunchState, stmt: ir.Print) -> None:
    args = [_shown(state, arg) for arg in stmt.args]
    if isinstance(stmt, ir.Inspect):  # the interpreter knows the function
        state.writer.line(f"inspect_values({', '.join(args)})")
    else:
        values = ", ".join([repr(stmt.message or "value"), *args])
        state.writer.line(f"tl.device_print({values})")


def _shown(state: LaunchState, arg: Expr | Region) -> str:
    if not isinstance(arg, Region):
        return emit_expr(state, arg).text
    if not arg.buffer.is_on_chip:
        return state.params.pointer(arg.buffer)
    dims, extents = arg.squeezed(), extents_of(state, arg)
    with state.nest([extents[d] for d in dims]) as vars_:
        return load_region(state, arg, dims, vars_).text


_CONTROL: dict[type[ir.Stmt], Callable[[LaunchState, Any, Ids], None]] = {
    ir.For: control.emit_for,
    ir.While: control.emit_while,
    ir.If: control.emit_if,
    ir.Parallel: control.emit_parallel,
}
_SIMPLE: dict[type[ir.Stmt], Callable[[LaunchState, Any], None]] = {
    ir.Copy: copies.emit_copy,
    ir.Fill: copies.emit_fill,
    ir.Transpose: copies.emit_transpose,
    ir.Im2col: copies.emit_im2col,
    ir.Gemm: gemms.emit_gemm,
    ir.ArgReduce: reductions.emit_arg_reduce,
    ir.Reduce: reductions.emit_reduce,
    ir.Scan: reductions.emit_scan,
    ir.Atomic: atomics.emit_atomic,
    ir.Alloc: _emit_alloc,
    ir.View: lambda state, stmt: state.declare_view(stmt.buffer, stmt.source),
    ir.AddressView: _emit_address_view,
    ir.Bind: _emit_bind,
    ir.Store: _emit_store,
    ir.Assume: _emit_assume,
    ir.Assert: _emit_assert,
    ir.Check: lambda state, stmt: None,  # a pass has put its test after it
    ir.Print: _emit_print,
    ir.Inspect: _emit_print,
    ir.Intrinsic: _emit_intrinsic,
    ir.Threads: _refuse_threads,
}

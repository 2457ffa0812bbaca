"""Statements with effects of their own: atomics, checks, prints and hints."""

from __future__ import annotations

import json

from tileops.codegen.cpu.expressions import element, guards, index, safe_value, value
from tileops.codegen.cpu.scalar_types import computing, widened
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Region
from tileops.ir.printer import print_expr
from tileops.ir.stmt import Assert, Atomic, Check, Inspect, Intrinsic, Print

# Constructs that order or hint and compute nothing: a block runs on one thread here.
_NOTHING = frozenset({"sync_threads", "sync_warp", "pdl_sync", "pdl_trigger", "fence_proxy_async"})


def emit_atomic(state: LaunchState, stmt: Atomic) -> None:
    """One update, skipped where its element does not exist."""
    buffer, at = stmt.dst.buffer, stmt.dst.starts
    if isinstance(stmt.value, Region):
        raise InternalError("a scalar atomic has a scalar operand")
    operand = "" if stmt.value is None else f", {value(state, fold.cast(stmt.value, buffer.dtype))}"
    # A tile belongs to the one thread that runs its block.
    kind = state.tile_atomics if buffer.is_on_chip else "atomic"
    text = f"{kind}_{stmt.op}(&{element(state, buffer, at)}{operand})"
    conditions = " && ".join(guards(state, buffer, at))
    if stmt.result is None:
        state.writer.line(f"if ({conditions}) {text};" if conditions else f"{text};")
        return
    if conditions:
        text = f"({conditions}) ? {text} : {safe_value(state, buffer)}"
    name = state.declare(stmt.result)
    state.writer.line(f"const {computing(stmt.result.dtype)} {name} = {text};")


def emit_assert(state: LaunchState, stmt: Assert) -> None:
    """A failed check ends the range of blocks; the caller raises with the statement's place."""
    w = state.writer
    with w.block(f"if (!({value(state, stmt.cond)}))"):
        w.line(f"*status = TileopsStatus{{TILEOPS_ASSERT, {state.number(stmt)}, 0, 0}};")
        w.line("return TILEOPS_ASSERT;")


def emit_check(state: LaunchState, stmt: Check) -> None:
    """A failed check of a debug build ends the range of blocks, as an assertion does."""
    w = state.writer
    if stmt.kind == "nan":
        head, code, found = f"fn_isnan({value(state, stmt.value)})", "TILEOPS_ASSERT", stmt.bound
        bound = "0"
    else:
        at, bound = index(state, stmt.value), index(state, stmt.bound)
        head, code, found = f"({at} < 0 || {at} >= {bound})", "TILEOPS_INDEX", stmt.value
    with w.block(f"if ({value(state, stmt.when)} && {head})"):
        number = state.number(stmt) if stmt.number is None else stmt.number
        report = f"{code}, {number}, {index(state, found)}, {bound}"
        w.line(f"*status = TileopsStatus{{{report}}};")
        w.line(f"return {code};")


def emit_intrinsic(state: LaunchState, stmt: Intrinsic) -> None:
    """Barriers are nothing on one thread; anything else has no meaning on the CPU."""
    if stmt.name not in _NOTHING:
        raise UnsupportedConstructError(f"T.{stmt.name} is not available on cpu", location=stmt.loc)
    state.writer.line(f"// {stmt.name}")


def emit_print(state: LaunchState, stmt: Print) -> None:
    """A call of the header's printer for each value, or for the message alone."""
    w, message = state.writer, json.dumps(stmt.message)
    if isinstance(stmt, Inspect):
        raise UnsupportedConstructError(
            "Python's print and breakpoint need target='interpreter'", location=stmt.loc
        )
    if not stmt.args:
        w.line(f"print_message({message}, block);")
    for arg in stmt.args:
        if isinstance(arg, Region):
            _print_region(state, message, arg)
        else:
            label = json.dumps(print_expr(arg))
            w.line(f"print_value({message}, block, {label}, {value(state, arg)});")


def _print_region(state: LaunchState, message: str, region: Region) -> None:
    """Every element, numbered row-major within the region."""
    w, place = state.writer, state.place(region.buffer)
    heads, at, number = [], [], "0"
    sides = zip(region.starts, place.strides, region.extents, strict=True)
    for d, (start, step, extent) in enumerate(sides):
        heads.append(f"for (i64 p{d} = 0; p{d} < {index(state, extent)}; ++p{d})")
        at.append(f"({index(state, start)} + p{d}) * {step}")
        number = f"({number} * {index(state, extent)} + p{d})" if d else "p0"
    text = widened(f"{place.pointer}[{' + '.join(at)}]", region.dtype)
    label = json.dumps(region.buffer.name)
    with w.block(" ".join(heads)):
        w.line(f"print_element({message}, block, {label}, {number}, {text});")

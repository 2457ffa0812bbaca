"""Control flow: loops, conditions and elementwise nests, and which tiles they carry."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from tileops.codegen.triton import text
from tileops.codegen.triton.elements import all_lanes_mask
from tileops.codegen.triton.expressions import both, emit_condition, emit_expr, inverted
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, infix, number, strict, typed, where
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import BOOL, INT32
from tileops.ir.expr import Expr, Load
from tileops.ir.program import const_value
from tileops.ir.stmt import Body, For, If, Parallel, While
from tileops.ir.walk import walk_expr


def emit_for(state: LaunchState, loop: For, live: Ids) -> None:
    """A counted loop."""
    start, stop = emit_expr(state, loop.start), emit_expr(state, loop.stop)
    if not (start.is_scalar and stop.is_scalar):
        _emit_lane_loop(state, loop, start, stop, live)
        return
    name = state.names.fresh(loop.var.name)
    value = Val(name, loop.var.dtype)
    if loop.var.dtype != INT32:  # bounds without a type of their own make it int32
        value = Val(f"tl.cast({name}, {text.triton_type(loop.var.dtype)})", loop.var.dtype)
    span = f"{_bound(loop.start, start)}, {_bound(loop.stop, stop)}"
    values = f"range({span})"
    if loop.kind == "unroll" and None not in (const_value(loop.start), const_value(loop.stop)):
        values = f"tl.static_range({start.text}, {stop.text})"
        value = dataclasses.replace(value, static=loop.var.dtype == INT32)
    elif loop.kind == "pipelined" and loop.stages > 1 and not state.memory.uses(loop.body):
        state.stages.add(loop.stages)
        values = f"tl.range({span}, num_stages=STAGES_{loop.stages})"
    with state.nested(ranges=state.scope.ranges.inside(loop)):
        _emit_counted(state, loop, f"for {name} in {values}:", value, live)


def _bound(bound: Expr, value: Val) -> str:
    """A bound of a loop. Triton takes a literal from 2^31 on as uint32, and widens it as signed."""
    known = const_value(bound)
    least, most = INT32.limits
    return value.text if known is None or least <= known <= most else typed(value).text


def _emit_counted(state: LaunchState, loop: For, head: str, value: Val, live: Ids) -> None:
    """The loop under ``head``; its variable is ``value`` there."""
    state.vars[loop.var.id] = value
    exposed = state.liveness.exposed_of(loop.body)
    own = _define_carried(state, loop.body, exposed, live)
    with _iterations(state, head, loop.body, own):
        state.emit_body(state, loop.body, exposed | live)


def _define_carried(state: LaunchState, body: Body, exposed: Ids, live: Ids) -> Ids:
    """Give the tiles that live across iterations a value; those that are the loop's own."""
    written = state.liveness.written(body)
    carried = written & (exposed | live)
    state.define_all(carried | exposed)
    return written - carried


@contextmanager
def _iterations(state: LaunchState, head: str, body: Body, own: Ids) -> Iterator[None]:
    """The block of a loop, run any number of times, with its accesses to memory in order."""
    before = state.memory.pending
    with state.fresh_names(own), state.writer.block(head):
        if state.memory.conflicts(body):
            state.memory.barrier()
        yield
    state.memory.pending |= before


def _emit_lane_loop(state: LaunchState, loop: For, start: Val, stop: Val, live: Ids) -> None:
    """A loop whose bounds differ between lanes: all run the widest range, each acts in its own."""
    lo = state.temporary("first", start) if not start.is_scalar else start
    hi = state.temporary("last", stop) if not stop.is_scalar else stop
    first = _widest(state, loop.start, lo, "min", lo.dtype.limits[1])
    last = _widest(state, loop.stop, hi, "max", hi.dtype.limits[0])
    name = state.names.fresh(loop.var.name)
    value = Val(name, loop.var.dtype)
    mask = both(infix(">=", value, lo), infix("<", value, hi))
    with state.nested(ranges=state.scope.ranges.inside(loop), mask=both(state.scope.mask, mask)):
        _emit_counted(state, loop, f"for {name} in range({first}, {last}):", value, live)


def _widest(state: LaunchState, bound: Expr, value: Val, extreme: str, neutral: int) -> str:
    """The extreme of a bound among the lanes that take part: padding holds anything."""
    if value.is_scalar:
        return _bound(bound, value)
    mask = all_lanes_mask(state, state.scope.mask)
    return f"tl.{extreme}({where(mask, value, strict(number(neutral, value.dtype))).text})"


def emit_while(state: LaunchState, loop: While, live: Ids) -> None:
    """A loop with a run-time condition; it runs as long as the condition holds in any lane."""
    exposed = state.liveness.exposed(loop)
    own = _define_carried(state, loop.body, exposed, live)
    cond = emit_condition(state, loop.cond)
    go = state.names.fresh("go")
    active = None
    if not cond.is_scalar:
        active = Val(state.names.fresh("active"), BOOL, state.space.all_axes())
    _go_on(state, go, active, all_lanes_mask(state, state.scope.mask), cond)
    with (
        _iterations(state, f"while {go}:", (loop,), own),
        state.nested(mask=active or state.scope.mask),
    ):
        state.emit_body(state, loop.body, exposed | live)
        _go_on(state, go, active, active, emit_condition(state, loop.cond))


def _go_on(state: LaunchState, go: str, active: Val | None, among: Val | None, cond: Val) -> None:
    """Set ``go``, and ``active`` to those lanes of ``among`` for which ``cond`` is true."""
    text_ = typed(cond).text
    if active is not None:
        space = state.space
        row = spread(both(among, cond) or cond, space.all_axes(), space.padded)
        state.writer.line(f"{active.text} = {row}")
        text_ = f"tl.max({active.text}.to(tl.int32)) != 0"
    state.writer.line(f"{go} = {text_}")


def emit_if(state: LaunchState, stmt: If, live: Ids) -> None:
    """A branch where the condition is one value; a mask where it differs between lanes."""
    cond = emit_condition(state, stmt.cond)
    if not cond.is_scalar:
        _emit_masked(state, stmt, cond, live)
        return
    written = state.liveness.written(stmt.then) | state.liveness.written(stmt.orelse)
    state.define_all(((written & live) - state.liveness.kills(stmt)) | state.liveness.exposed(stmt))
    defined, pending = frozenset(state.defined), state.memory.pending
    with state.writer.block(f"if {cond.text}:"):
        state.emit_body(state, stmt.then, live)
    defined_then, state.defined = state.defined, set(defined)
    pending_then, state.memory.pending = state.memory.pending, pending
    if stmt.orelse:
        with state.writer.block("else:"):
            state.emit_body(state, stmt.orelse, live)
    state.defined &= defined_then
    state.memory.pending |= pending_then


def _emit_masked(state: LaunchState, stmt: If, cond: Val, live: Ids) -> None:
    state.define_all(state.liveness.exposed(stmt))
    if cond.prec != text.ATOM or any(isinstance(e, Load) for e in walk_expr(stmt.cond)):
        # What the branches write may be what the condition reads.
        cond = state.temporary("cond", cond)
    with state.nested(mask=both(state.scope.mask, cond)):
        state.emit_body(state, stmt.then, live)
    if stmt.orelse:
        with state.nested(mask=both(state.scope.mask, inverted(cond))):
            state.emit_body(state, stmt.orelse, live)


def emit_parallel(state: LaunchState, nest: Parallel, live: Ids) -> None:
    """An elementwise nest: its body once, for all points at the same time."""
    nest = nest.flattened()
    if state.space.rank:
        raise state.unsupported("a T.Parallel nest inside another that is not perfectly nested")
    extents = tuple(e for e in map(const_value, nest.extents) if e is not None)
    with state.over(nest.vars, extents):
        state.emit_body(state, nest.body, live)

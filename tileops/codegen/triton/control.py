"""Control flow: loops, conditions and elementwise nests, and which tiles they carry."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.elements import all_lanes_mask
from tileops.codegen.triton.expressions import both, emit_condition, emit_expr, inverted
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.text import Val, infix, number, strict, typed, where
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import BOOL, INT32
from tileops.ir.expr import Expr, Load
from tileops.ir.program import const_value
from tileops.ir.stmt import Body, For, If, Parallel, While
from tileops.ir.walk import walk_expr


def emit_for(ctx: Context, loop: For, live: Ids) -> None:
    """A counted loop."""
    start, stop = emit_expr(ctx, loop.start), emit_expr(ctx, loop.stop)
    if not (start.is_scalar and stop.is_scalar):
        _emit_lane_loop(ctx, loop, start, stop, live)
        return
    name = ctx.names.fresh(loop.var.name)
    value = Val(name, loop.var.dtype)
    if loop.var.dtype != INT32:  # bounds without a type of their own make it int32
        value = Val(f"tl.cast({name}, {text.triton_type(loop.var.dtype)})", loop.var.dtype)
    span = f"{_bound(loop.start, start)}, {_bound(loop.stop, stop)}"
    values = f"range({span})"
    if loop.kind == "unroll" and None not in (const_value(loop.start), const_value(loop.stop)):
        values = f"tl.static_range({start.text}, {stop.text})"
        value = dataclasses.replace(value, static=loop.var.dtype == INT32)
    elif loop.kind == "pipelined" and loop.stages > 1 and not ctx.memory.uses(loop.body):
        ctx.stages.add(loop.stages)
        values = f"tl.range({span}, num_stages=STAGES_{loop.stages})"
    with ctx.nested(ranges=ctx.scope.ranges.inside(loop)):
        _emit_counted(ctx, loop, f"for {name} in {values}:", value, live)


def _bound(bound: Expr, value: Val) -> str:
    """A bound of a loop. Triton takes a literal from 2^31 on as uint32, and widens it as signed."""
    known = const_value(bound)
    least, most = INT32.limits
    return value.text if known is None or least <= known <= most else typed(value).text


def _emit_counted(ctx: Context, loop: For, head: str, value: Val, live: Ids) -> None:
    """The loop under ``head``; its variable is ``value`` there."""
    ctx.vars[loop.var.id] = value
    exposed = ctx.liveness.exposed_of(loop.body)
    own = _define_carried(ctx, loop.body, exposed, live)
    with _iterations(ctx, head, loop.body, own):
        ctx.emit_body(ctx, loop.body, exposed | live)


def _define_carried(ctx: Context, body: Body, exposed: Ids, live: Ids) -> Ids:
    """Give the tiles that live across iterations a value; those that are the loop's own."""
    written = ctx.liveness.written(body)
    carried = written & (exposed | live)
    ctx.define_all(carried | exposed)
    return written - carried


@contextmanager
def _iterations(ctx: Context, head: str, body: Body, own: Ids) -> Iterator[None]:
    """The block of a loop, run any number of times, with its accesses to memory in order."""
    before = ctx.memory.pending
    with ctx.fresh_names(own), ctx.writer.block(head):
        if ctx.memory.conflicts(body):
            ctx.memory.barrier()
        yield
    ctx.memory.pending |= before


def _emit_lane_loop(ctx: Context, loop: For, start: Val, stop: Val, live: Ids) -> None:
    """A loop whose bounds differ between lanes: all run the widest range, each acts in its own."""
    lo = ctx.temporary("first", start) if not start.is_scalar else start
    hi = ctx.temporary("last", stop) if not stop.is_scalar else stop
    first = _widest(ctx, loop.start, lo, "min", lo.dtype.limits[1])
    last = _widest(ctx, loop.stop, hi, "max", hi.dtype.limits[0])
    name = ctx.names.fresh(loop.var.name)
    value = Val(name, loop.var.dtype)
    mask = both(infix(">=", value, lo), infix("<", value, hi))
    with ctx.nested(ranges=ctx.scope.ranges.inside(loop), mask=both(ctx.scope.mask, mask)):
        _emit_counted(ctx, loop, f"for {name} in range({first}, {last}):", value, live)


def _widest(ctx: Context, bound: Expr, value: Val, extreme: str, neutral: int) -> str:
    """The extreme of a bound among the lanes that take part: padding holds anything."""
    if value.is_scalar:
        return _bound(bound, value)
    mask = all_lanes_mask(ctx, ctx.scope.mask)
    return f"tl.{extreme}({where(mask, value, strict(number(neutral, value.dtype))).text})"


def emit_while(ctx: Context, loop: While, live: Ids) -> None:
    """A loop with a run-time condition; it runs as long as the condition holds in any lane."""
    exposed = ctx.liveness.exposed(loop)
    own = _define_carried(ctx, loop.body, exposed, live)
    cond = emit_condition(ctx, loop.cond)
    go = ctx.names.fresh("go")
    active = None
    if not cond.is_scalar:
        active = Val(ctx.names.fresh("active"), BOOL, ctx.space.all_axes())
    _go_on(ctx, go, active, all_lanes_mask(ctx, ctx.scope.mask), cond)
    with _iterations(ctx, f"while {go}:", (loop,), own), ctx.nested(mask=active or ctx.scope.mask):
        ctx.emit_body(ctx, loop.body, exposed | live)
        _go_on(ctx, go, active, active, emit_condition(ctx, loop.cond))


def _go_on(ctx: Context, go: str, active: Val | None, among: Val | None, cond: Val) -> None:
    """Set ``go``, and ``active`` to those lanes of ``among`` for which ``cond`` is true."""
    text_ = typed(cond).text
    if active is not None:
        space = ctx.space
        row = spread(both(among, cond) or cond, space.all_axes(), space.padded)
        ctx.writer.line(f"{active.text} = {row}")
        text_ = f"tl.max({active.text}.to(tl.int32)) != 0"
    ctx.writer.line(f"{go} = {text_}")


def emit_if(ctx: Context, stmt: If, live: Ids) -> None:
    """A branch where the condition is one value; a mask where it differs between lanes."""
    cond = emit_condition(ctx, stmt.cond)
    if not cond.is_scalar:
        _emit_masked(ctx, stmt, cond, live)
        return
    written = ctx.liveness.written(stmt.then) | ctx.liveness.written(stmt.orelse)
    ctx.define_all(((written & live) - ctx.liveness.kills(stmt)) | ctx.liveness.exposed(stmt))
    defined, pending = frozenset(ctx.defined), ctx.memory.pending
    with ctx.writer.block(f"if {cond.text}:"):
        ctx.emit_body(ctx, stmt.then, live)
    defined_then, ctx.defined = ctx.defined, set(defined)
    pending_then, ctx.memory.pending = ctx.memory.pending, pending
    if stmt.orelse:
        with ctx.writer.block("else:"):
            ctx.emit_body(ctx, stmt.orelse, live)
    ctx.defined &= defined_then
    ctx.memory.pending |= pending_then


def _emit_masked(ctx: Context, stmt: If, cond: Val, live: Ids) -> None:
    ctx.define_all(ctx.liveness.exposed(stmt))
    if cond.prec != text.ATOM or any(isinstance(e, Load) for e in walk_expr(stmt.cond)):
        # What the branches write may be what the condition reads.
        cond = ctx.temporary("cond", cond)
    with ctx.nested(mask=both(ctx.scope.mask, cond)):
        ctx.emit_body(ctx, stmt.then, live)
    if stmt.orelse:
        with ctx.nested(mask=both(ctx.scope.mask, inverted(cond))):
            ctx.emit_body(ctx, stmt.orelse, live)


def emit_parallel(ctx: Context, nest: Parallel, live: Ids) -> None:
    """An elementwise nest: its body once, for all points at the same time."""
    nest = nest.flattened()
    if ctx.space.rank:
        raise ctx.unsupported("a T.Parallel nest inside another that is not perfectly nested")
    extents = tuple(e for e in map(const_value, nest.extents) if e is not None)
    with ctx.over(nest.vars, extents):
        ctx.emit_body(ctx, nest.body, live)

"""Owns control flow: loops, conditions and elementwise nests, and which tiles they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.elements import all_lanes_mask
from tileops.codegen.triton.expressions import both, emit_condition, emit_expr, inverted
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.text import BOOL, INT32, Val, infix, number, strict, typed
from tileops.codegen.triton.tiles import spread
from tileops.ir.expr import Load, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Body, For, If, Parallel, While
from tileops.ir.walk import walk_expr

EmitBody = Callable[[Context, Body, Ids], None]


def emit_for(ctx: Context, loop: For, live: Ids, emit_body: EmitBody) -> None:
    """A counted loop.

    Tiles that live across iterations get a value before it; all others are its own.
    """
    start, stop = emit_expr(ctx, loop.start), emit_expr(ctx, loop.stop)
    if not (start.is_scalar and stop.is_scalar):
        _emit_lane_loop(ctx, loop, start, stop, live, emit_body)
        return
    name = ctx.names.fresh(loop.var.name)
    head = f"for {name} in {_range_text(ctx, loop, start, stop)}:"
    static = loop.kind == "unroll" and _is_static(loop)
    with ctx.nested(ranges=ctx.scope.ranges.inside_loop(loop)):
        value = Val(name, loop.var.dtype, static=static)
        if loop.var.dtype != INT32:  # bounds without a type of their own make it int32
            value = Val(f"tl.cast({name}, {text.triton_type(loop.var.dtype)})", loop.var.dtype)
        _bind(ctx, loop.var, value)
        _emit_loop_body(ctx, head, loop.body, live, emit_body)


def _bind(ctx: Context, var: Var, value: Val) -> None:
    ctx.vars[var.id] = value


def _is_static(loop: For) -> bool:
    return const_value(loop.start) is not None and const_value(loop.stop) is not None


def _range_text(ctx: Context, loop: For, start: Val, stop: Val) -> str:
    span = f"{start.text}, {stop.text}"
    if loop.kind == "unroll" and _is_static(loop):
        return f"tl.static_range({span})"
    if loop.kind == "pipelined" and loop.stages > 1 and not ctx.memory.uses(loop.body):
        ctx.stages.add(loop.stages)
        return f"tl.range({span}, num_stages=STAGES_{loop.stages})"
    return f"range({span})"


def _emit_loop_body(ctx: Context, head: str, body: Body, live: Ids, emit_body: EmitBody) -> None:
    written = ctx.liveness.written(body)
    exposed = ctx.liveness.exposed_of(body)
    carried = written & (exposed | live)
    for buffer in sorted(carried | (exposed & frozenset(ctx.storages))):
        ctx.define(buffer)
    with _iterations(ctx, body), ctx.fresh_names(written - carried), ctx.writer.block(head):
        _separate_iterations(ctx, body)
        emit_body(ctx, body, exposed | live)


@contextmanager
def _iterations(ctx: Context, body: Body) -> Iterator[None]:
    """A loop, for the order of accesses to memory: it may run no time, or many."""
    before = ctx.memory.pending.copy()
    yield
    ctx.memory.pending.join(before)


def _separate_iterations(ctx: Context, body: Body) -> None:
    if ctx.memory.conflicts(body):
        ctx.memory.barrier()


def _emit_lane_loop(
    ctx: Context, loop: For, start: Val, stop: Val, live: Ids, emit_body: EmitBody
) -> None:
    """A loop whose bounds differ between lanes.

    All run the widest range, each takes part in its own.
    """
    lo = ctx.temporary("first", start) if not start.is_scalar else start
    hi = ctx.temporary("last", stop) if not stop.is_scalar else stop
    first = lo.text if lo.is_scalar else f"tl.min({_of_active(ctx, lo, lo.dtype.limits[1])})"
    last = hi.text if hi.is_scalar else f"tl.max({_of_active(ctx, hi, hi.dtype.limits[0])})"
    name = ctx.names.fresh(loop.var.name)
    value = Val(name, loop.var.dtype)
    mask = both(infix(">=", value, lo), infix("<", value, hi))
    with ctx.nested(ranges=ctx.scope.ranges.inside_loop(loop), mask=both(ctx.scope.mask, mask)):
        _bind(ctx, loop.var, value)
        _emit_loop_body(ctx, f"for {name} in range({first}, {last}):", loop.body, live, emit_body)


def _of_active(ctx: Context, value: Val, neutral: int) -> str:
    """The value of each lane that takes part, ``neutral`` elsewhere: padding holds anything."""
    mask = all_lanes_mask(ctx, ctx.scope.mask)
    if mask is None:
        return value.text
    other = strict(number(neutral, value.dtype))
    return f"tl.where({mask.text}, {value.text}, {other.text})"


def emit_while(ctx: Context, loop: While, live: Ids, emit_body: EmitBody) -> None:
    """A loop with a run-time condition, evaluated before it and at the end of each iteration.

    Where the condition differs between lanes it runs as long as any lane goes on.
    """
    written = ctx.liveness.written(loop.body)
    exposed = ctx.liveness.exposed(loop)
    carried = written & (exposed | live)
    for buffer in sorted(carried | (exposed & frozenset(ctx.storages))):
        ctx.define(buffer)
    cond = emit_condition(ctx, loop.cond)
    go = ctx.names.fresh("go")
    active = None if cond.is_scalar else _LanesOf(ctx, cond)
    ctx.writer.line(f"{go} = {typed(cond).text if active is None else active.any}")
    whole = (loop,)
    with (
        _iterations(ctx, whole),
        ctx.fresh_names(written - carried),
        ctx.writer.block(f"while {go}:"),
        ctx.nested(mask=ctx.scope.mask if active is None else active.mask),
    ):
        _separate_iterations(ctx, whole)
        emit_body(ctx, loop.body, exposed | live)
        cond = emit_condition(ctx, loop.cond)
        if active is not None:
            active.keep(cond)
        ctx.writer.line(f"{go} = {typed(cond).text if active is None else active.any}")


class _LanesOf:
    """The lanes that are still in a `while` loop, as a variable of the kernel."""

    def __init__(self, ctx: Context, cond: Val) -> None:
        self._ctx = ctx
        name = ctx.names.fresh("active")
        self.mask = Val(name, BOOL, ctx.space.all_axes())
        self._assign(both(all_lanes_mask(ctx, ctx.scope.mask), cond) or cond)

    @property
    def any(self) -> str:
        """Text of the question whether a lane is left."""
        return f"tl.max({self.mask.text}.to(tl.int32)) != 0"

    def keep(self, cond: Val) -> None:
        """Of the lanes that are in the loop, let those go on for which ``cond`` holds."""
        self._assign(infix("&", self.mask, cond))

    def _assign(self, lanes: Val) -> None:
        space = self._ctx.space
        row = spread(lanes, space.all_axes(), space.padded)
        self._ctx.writer.line(f"{self.mask.text} = {row}")


def emit_if(ctx: Context, stmt: If, live: Ids, emit_body: EmitBody) -> None:
    """A branch where the condition is one value; a mask where it differs between lanes."""
    cond = emit_condition(ctx, stmt.cond)
    if not cond.is_scalar:
        _emit_masked(ctx, stmt, cond, live, emit_body)
        return
    written = ctx.liveness.written(stmt.then) | ctx.liveness.written(stmt.orelse)
    kept = written & live
    for buffer in sorted(
        (kept - ctx.liveness.kills(stmt)) | (ctx.liveness.exposed(stmt) & frozenset(ctx.storages))
    ):
        ctx.define(buffer)
    before, pending = set(ctx.defined), ctx.memory.pending.copy()
    with ctx.writer.block(f"if {cond.text}:"):
        emit_body(ctx, stmt.then, live)
    after_then, ctx.defined = ctx.defined, set(before)
    pending_then, ctx.memory.pending = ctx.memory.pending, pending
    if stmt.orelse:
        with ctx.writer.block("else:"):
            emit_body(ctx, stmt.orelse, live)
    ctx.defined &= after_then
    ctx.memory.pending.join(pending_then)


def _emit_masked(ctx: Context, stmt: If, cond: Val, live: Ids, emit_body: EmitBody) -> None:
    for buffer in sorted(ctx.liveness.exposed(stmt) & frozenset(ctx.storages)):
        ctx.define(buffer)
    if cond.prec != text.ATOM or any(isinstance(e, Load) for e in walk_expr(stmt.cond)):
        # What the branches write may be what the condition reads.
        cond = ctx.temporary("cond", cond)
    with ctx.nested(mask=both(ctx.scope.mask, cond)):
        emit_body(ctx, stmt.then, live)
    if stmt.orelse:
        with ctx.nested(mask=both(ctx.scope.mask, inverted(cond))):
            emit_body(ctx, stmt.orelse, live)


def emit_parallel(ctx: Context, nest: Parallel, live: Ids, emit_body: EmitBody) -> None:
    """An elementwise nest: its body once, for all points at the same time."""
    nest = nest.flattened()
    if ctx.space.rank:
        raise ctx.unsupported("a T.Parallel nest inside another that is not perfectly nested")
    extents = tuple(e for e in map(const_value, nest.extents) if e is not None)
    with ctx.over(nest.vars, extents):
        emit_body(ctx, nest.body, live)

"""Owns control flow: loops, conditions and elementwise nests, and which tiles they carry."""

from __future__ import annotations

from collections.abc import Callable

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.expressions import both, emit_condition, emit_expr, inverted
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.space import power_of_two
from tileops.codegen.triton.text import Val, infix
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Expr, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Body, For, If, Parallel, Stmt, While
from tileops.ir.walk import map_stmt_exprs, sub_bodies, substitute, with_bodies

_BOOL = DType("bool")
# Lanes of one piece of a nest whose extent is known at run time only.
_PIECE = 1024

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
        _bind(ctx, loop.var, Val(name, loop.var.dtype, static=static))
        _emit_loop_body(ctx, head, loop.body, live, emit_body)


def _bind(ctx: Context, var: Var, value: Val) -> None:
    ctx.vars[var.id] = value


def _is_static(loop: For) -> bool:
    return const_value(loop.start) is not None and const_value(loop.stop) is not None


def _range_text(ctx: Context, loop: For, start: Val, stop: Val) -> str:
    span = f"{start.text}, {stop.text}"
    if loop.kind == "unroll" and _is_static(loop):
        return f"tl.static_range({span})"
    if loop.kind == "pipelined" and loop.stages > 1:
        ctx.stages.add(loop.stages)
        return f"tl.range({span}, num_stages=STAGES_{loop.stages})"
    return f"range({span})"


def _emit_loop_body(ctx: Context, head: str, body: Body, live: Ids, emit_body: EmitBody) -> None:
    written = ctx.liveness.written(body)
    exposed = ctx.liveness.exposed_of(body)
    carried = written & (exposed | live)
    for buffer in sorted(carried | (exposed & frozenset(ctx.storages))):
        ctx.define(buffer)
    with ctx.fresh_names(written - carried), ctx.writer.block(head):
        emit_body(ctx, body, exposed | live)


def _emit_lane_loop(
    ctx: Context, loop: For, start: Val, stop: Val, live: Ids, emit_body: EmitBody
) -> None:
    """A loop whose bounds differ between lanes.

    All run the widest range, each takes part in its own.
    """
    lo = ctx.temporary("first", start) if not start.is_scalar else start
    hi = ctx.temporary("last", stop) if not stop.is_scalar else stop
    first = lo.text if lo.is_scalar else f"tl.min({lo.text})"
    last = hi.text if hi.is_scalar else f"tl.max({hi.text})"
    name = ctx.names.fresh(loop.var.name)
    value = Val(name, loop.var.dtype)
    mask = both(
        infix(">=", text.COMPARE, value, lo, _BOOL), infix("<", text.COMPARE, value, hi, _BOOL)
    )
    with ctx.nested(ranges=ctx.scope.ranges.inside_loop(loop), mask=both(ctx.scope.mask, mask)):
        _bind(ctx, loop.var, value)
        _emit_loop_body(ctx, f"for {name} in range({first}, {last}):", loop.body, live, emit_body)


def emit_while(ctx: Context, loop: While, live: Ids, emit_body: EmitBody) -> None:
    """A loop with a run-time condition.

    Which is evaluated before it and at the end of each iteration.
    """
    written = ctx.liveness.written(loop.body)
    exposed = ctx.liveness.exposed(loop)
    carried = written & (exposed | live)
    for buffer in sorted(carried | (exposed & frozenset(ctx.storages))):
        ctx.define(buffer)
    cond = emit_condition(ctx, loop.cond)
    if not cond.is_scalar:
        raise ctx.unsupported("a `while` inside T.Parallel whose condition differs between points")
    go = ctx.names.fresh("go")
    ctx.writer.line(f"{go} = {text.typed(cond).text}")
    with ctx.fresh_names(written - carried), ctx.writer.block(f"while {go}:"):
        emit_body(ctx, loop.body, exposed | live)
        ctx.writer.line(f"{go} = {text.typed(emit_condition(ctx, loop.cond)).text}")


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
    before = set(ctx.defined)
    with ctx.writer.block(f"if {cond.text}:"):
        emit_body(ctx, stmt.then, live)
    after_then = ctx.defined
    ctx.defined = set(before)
    if stmt.orelse:
        with ctx.writer.block("else:"):
            emit_body(ctx, stmt.orelse, live)
    ctx.defined &= after_then


def _emit_masked(ctx: Context, stmt: If, cond: Val, live: Ids, emit_body: EmitBody) -> None:
    for buffer in sorted(ctx.liveness.exposed(stmt) & frozenset(ctx.storages)):
        ctx.define(buffer)
    if cond.prec != text.ATOM:
        cond = ctx.temporary("cond", cond)
    with ctx.nested(mask=both(ctx.scope.mask, cond)):
        emit_body(ctx, stmt.then, live)
    if stmt.orelse:
        with ctx.nested(mask=both(ctx.scope.mask, inverted(cond))):
            emit_body(ctx, stmt.orelse, live)


def emit_parallel(ctx: Context, nest: Parallel, live: Ids, emit_body: EmitBody) -> None:
    """An elementwise nest: its body once, for all points at the same time."""
    vars_, extents, body = nest.vars, nest.extents, nest.body
    while len(body) == 1 and isinstance(body[0], Parallel):
        vars_, extents, body = vars_ + body[0].vars, extents + body[0].extents, body[0].body
    if ctx.space.rank:
        raise ctx.unsupported("a T.Parallel nest inside another that is not perfectly nested")
    static = tuple(const_value(e) for e in extents)
    if any(e is None for e in static):
        emit_body(ctx, (_in_pieces(ctx, nest, vars_, extents, body),), live)
        return
    with ctx.over(vars_, tuple(e for e in static if e is not None)):
        emit_body(ctx, body, live)


def _in_pieces(
    ctx: Context, nest: Parallel, vars_: tuple[Var, ...], extents: tuple[Expr, ...], body: Body
) -> Stmt:
    """A nest with run-time extents as loops over guarded nests of constant extents."""
    dynamic = [n for n, e in enumerate(extents) if const_value(e) is None]
    fixed = 1
    for extent in extents:
        fixed *= const_value(extent) or 1
    loops: list[tuple[Var, Expr]] = []
    inner_vars, inner_extents = list(vars_), list(extents)
    mapping: dict[int, Expr] = {}
    guard: Expr = fold.const(True)
    for n in dynamic:
        piece = max(1, _PIECE // power_of_two(fixed)) if n == dynamic[-1] else 1
        step, lane = ctx.synthetic_vars(2)
        place = fold.add(fold.mul(step, fold.const(piece)), lane)
        mapping[vars_[n].id] = place
        inner_vars[n], inner_extents[n] = lane, fold.const(piece)
        loops.append((step, fold.ceildiv(extents[n], fold.const(piece))))
        guard = fold.binary("land", guard, fold.binary("lt", place, extents[n]))
    moved = tuple(_substituted(s, mapping) for s in body)
    out: Stmt = Parallel(tuple(inner_vars), tuple(inner_extents), (If(guard, moved),), loc=nest.loc)
    for step, count in reversed(loops):
        out = For("serial", step, fold.const(0), count, (out,), loc=nest.loc)
    return out


def _substituted(stmt: Stmt, mapping: dict[int, Expr]) -> Stmt:
    bodies = tuple(tuple(_substituted(s, mapping) for s in b) for b in sub_bodies(stmt))
    out = map_stmt_exprs(stmt, lambda e: substitute(e, mapping))
    return with_bodies(out, bodies) if bodies else out

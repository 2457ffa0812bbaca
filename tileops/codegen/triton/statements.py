"""Owns the dispatch over statements: each kind goes to the module that lowers it."""

from __future__ import annotations

from tileops.codegen.triton import (
    atomics,
    copies,
    gemms,
    loops,
    reductions,
    scans,
    tensors,
)
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.elements import extents_of, load_region, store_element
from tileops.codegen.triton.expressions import emit_condition, emit_expr
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.pointers import emit_address_view
from tileops.codegen.triton.storage import Storage
from tileops.codegen.triton.text import Val
from tileops.errors import ProgramError
from tileops.ir.expr import Region
from tileops.ir.stmt import (
    AddressView,
    Alloc,
    Assert,
    Assume,
    Atomic,
    Bind,
    Body,
    Check,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Im2col,
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

# Without effect where every statement acts on whole tiles in program order.
_NO_OPERATION = frozenset({"sync_threads", "pdl_sync", "pdl_trigger", "sync_warp"})


def emit_body(ctx: Context, body: Body, live: Ids) -> None:
    """A statement list; ``live`` are the buffers whose value is used after it."""
    for stmt, after in zip(body, ctx.liveness.after(body, live), strict=True):
        before, ctx.loc = ctx.loc, stmt.loc or ctx.loc
        if stmt.origin is not None:
            ctx.writer.statement = stmt.origin
        try:
            _emit(ctx, stmt, after)
        except ProgramError as error:
            raise error.at(ctx.loc) from None
        finally:
            ctx.loc = before


def _emit(ctx: Context, stmt: Stmt, live: Ids) -> None:
    match stmt:
        case For():
            loops.emit_for(ctx, stmt, live, emit_body)
        case While():
            loops.emit_while(ctx, stmt, live, emit_body)
        case If():
            loops.emit_if(ctx, stmt, live, emit_body)
        case Parallel():
            loops.emit_parallel(ctx, stmt, live, emit_body)
        case Copy():
            copies.emit_copy(ctx, stmt)
        case Fill():
            copies.emit_fill(ctx, stmt)
        case Transpose():
            copies.emit_transpose(ctx, stmt)
        case Im2col():
            copies.emit_im2col(ctx, stmt)
        case _:
            _emit_combining(ctx, stmt)


def _emit_combining(ctx: Context, stmt: Stmt) -> None:
    match stmt:
        case Gemm():
            gemms.emit_gemm(ctx, stmt)
        case Reduce():
            reductions.emit_reduce(ctx, stmt)
        case Scan():
            scans.emit_scan(ctx, stmt)
        case Atomic():
            atomics.emit_atomic(ctx, stmt)
        case _:
            _emit_scalar(ctx, stmt)


def _emit_scalar(ctx: Context, stmt: Stmt) -> None:
    match stmt:
        case Alloc():
            _emit_alloc(ctx, stmt)
        case View() | AddressView():
            _emit_view(ctx, stmt)
        case Bind():
            _emit_bind(ctx, stmt)
        case Store(buffer=buffer, indices=indices, value=value):
            store_element(ctx, buffer, indices, converted(ctx, emit_expr(ctx, value), buffer.dtype))
        case Assume(cond=cond):
            if not ctx.space.rank:
                ctx.writer.line(f"tl.assume({emit_condition(ctx, cond).text})")
        case Assert(host=True) | Check():  # a pass has put a check's test after it
            pass
        case Assert(cond=cond, message=message):
            _emit_assert(ctx, emit_condition(ctx, cond), message)
        case Print():
            _emit_print(ctx, stmt)
        case Intrinsic(name=name) if name in _NO_OPERATION:
            pass
        case Intrinsic(name=name):
            raise ctx.unsupported(f"`T.{name}` is not supported on target {ctx.target}")
        case _:
            name = type(stmt).__name__.lower()
            raise ctx.unsupported(f"`{name}` is not supported on target {ctx.target}")


def _emit_view(ctx: Context, stmt: View | AddressView) -> None:
    if isinstance(stmt, View):
        ctx.declare_view(stmt.buffer, stmt.source)
    else:
        emit_address_view(ctx, stmt, emit_expr)


def _emit_alloc(ctx: Context, stmt: Alloc) -> None:
    buffer = stmt.buffer
    if ctx.memory.holds(buffer):
        return
    if ctx.space.rank:
        extents = buffer.static_shape()
        if extents is None or any(e != 1 for e in extents):
            raise ctx.unsupported(
                f"an array allocated inside T.Parallel, with a view or in a nest of run-time "
                f"extents: `{buffer.name}`"
            )
        ctx.declare(buffer, Storage(buffer, (), (), (), ctx.space.padded))
    else:
        ctx.declare(buffer)
    if stmt.init is not None:
        with ctx.nested(mask=None):
            store_element(ctx, buffer, (), converted(ctx, emit_expr(ctx, stmt.init), buffer.dtype))


def _emit_bind(ctx: Context, stmt: Bind) -> None:
    value = converted(ctx, emit_expr(ctx, stmt.value), stmt.var.dtype)
    ctx.bind(stmt.var, value, ctx.scope.ranges.with_value(stmt.var, stmt.value))


def _tile_of(ctx: Context, region: Region) -> Val:
    dims = region.squeezed()
    extents = extents_of(ctx, region)
    vars_ = ctx.synthetic_vars(len(dims))
    with ctx.over(vars_, tuple(extents[d] for d in dims)):
        return load_region(ctx, region, dims, vars_)


def _emit_assert(ctx: Context, cond: Val, message: str) -> None:
    mask = ctx.scope.mask
    if ctx.space.rank:
        mask = tensors.all_lanes_mask(ctx, mask)
    options = "" if mask is None else f", mask={mask.text}"
    ctx.writer.line(f"tl.device_assert({cond.text}, {message!r}{options})")


def _emit_print(ctx: Context, stmt: Print) -> None:
    args: list[Val] = []
    for arg in stmt.args:
        args.append(_tile_of(ctx, arg) if isinstance(arg, Region) else emit_expr(ctx, arg))
    texts = "".join(f", {a.text}" for a in args)
    ctx.writer.line(f"tl.device_print({(stmt.message or 'value')!r}{texts})")

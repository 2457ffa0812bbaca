"""Owns the dispatch over statements: each kind goes to the module that lowers it."""

from __future__ import annotations

from tileops.codegen.triton import (
    atomics,
    copies,
    gemms,
    loops,
    reductions,
)
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.elements import (
    all_lanes_mask,
    extents_of,
    load_region,
    store_element,
)
from tileops.codegen.triton.expressions import emit_condition, emit_expr
from tileops.codegen.triton.functions import converted
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.storage import Storage
from tileops.codegen.triton.text import ATOM, Val, triton_type
from tileops.errors import ProgramError
from tileops.ir.expr import Expr, Region
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
    Inspect,
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
            reductions.emit_scan(ctx, stmt)
        case Atomic():
            atomics.emit_atomic(ctx, stmt)
        case View(buffer=buffer, source=source):
            ctx.declare_view(buffer, source)
        case AddressView():
            _emit_address_view(ctx, stmt)
        case _:
            _emit_scalar(ctx, stmt)


def _emit_scalar(ctx: Context, stmt: Stmt) -> None:
    match stmt:
        case Alloc():
            _emit_alloc(ctx, stmt)
        case Bind():
            _emit_bind(ctx, stmt)
        case Store(buffer=buffer, indices=indices, value=value):
            store_element(ctx, buffer, indices, emit_expr(ctx, value))
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


def _emit_address_view(ctx: Context, stmt: AddressView) -> None:
    """Let the buffer name the memory at an address, which is one for all lanes."""
    address = emit_expr(ctx, stmt.address)
    if not address.is_scalar or ctx.space.rank:
        raise ctx.unsupported(
            f"`{stmt.buffer.name}` at an address of each point of T.Parallel; call T.make_tensor "
            "before the loop"
        )
    kind = f"tl.pointer_type({triton_type(stmt.buffer.dtype)})"
    pointer = Val(f"{address.at(ATOM)}.to({kind})", stmt.buffer.dtype)
    ctx.params.place(stmt.buffer, ctx.temporary(stmt.buffer.name, pointer).text)


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
            store_element(ctx, buffer, (), emit_expr(ctx, stmt.init))


def _emit_bind(ctx: Context, stmt: Bind) -> None:
    value = converted(ctx, emit_expr(ctx, stmt.value), stmt.var.dtype)
    ctx.bind(stmt.var, value, ctx.scope.ranges.with_value(stmt.var, stmt.value))


def _tile_of(ctx: Context, region: Region) -> Val:
    dims, extents = region.squeezed(), extents_of(ctx, region)
    with ctx.nest([extents[d] for d in dims]) as vars_:
        return load_region(ctx, region, dims, vars_)


def _emit_assert(ctx: Context, cond: Val, message: str) -> None:
    mask = ctx.scope.mask
    if ctx.space.rank:
        mask = all_lanes_mask(ctx, mask)
    options = "" if mask is None else f", mask={mask.text}"
    ctx.writer.line(f"tl.device_assert({cond.text}, {message!r}{options})")


def _emit_print(ctx: Context, stmt: Print) -> None:
    args = [_shown(ctx, arg) for arg in stmt.args]
    if isinstance(stmt, Inspect):  # the interpreter knows the function
        ctx.writer.line(f"inspect_values({', '.join(args)})")
    else:
        values = ", ".join([repr(stmt.message or "value"), *args])
        ctx.writer.line(f"tl.device_print({values})")


def _shown(ctx: Context, arg: Expr | Region) -> str:
    if not isinstance(arg, Region):
        return emit_expr(ctx, arg).text
    if not arg.buffer.is_on_chip:
        return ctx.params.pointer(arg.buffer)
    return _tile_of(ctx, arg).text

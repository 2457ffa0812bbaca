"""Owns atomic operations on global memory, scalar and tile form."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import tensors
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.elements import (
    extents_of,
    load_region,
    region_indices,
)
from tileops.codegen.triton.expressions import emit_expr
from tileops.codegen.triton.text import Val, convert, typed
from tileops.ir.expr import Buffer, Expr, Region
from tileops.ir.stmt import Atomic

_FUNCTIONS = {
    "add": "atomic_add",
    "max": "atomic_max",
    "min": "atomic_min",
    "or": "atomic_or",
    "and": "atomic_and",
    "xor": "atomic_xor",
    "exchange": "atomic_xchg",
    "store": "atomic_xchg",
}
# Triton has no consume and no sequentially consistent order; the next stronger one stands for it.
_ORDERS = {
    "relaxed": "relaxed",
    "consume": "acquire",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
    "seq_cst": "acq_rel",
}


def emit_atomic(ctx: Context, stmt: Atomic) -> None:
    """One atomic an element; elements out of bounds are skipped."""
    if stmt.dst.buffer.is_on_chip:
        raise ctx.unsupported(
            f"an atomic on on-chip buffer `{stmt.dst.buffer.name}`; "
            "use a reduction or a global buffer"
        )
    if isinstance(stmt.value, Region):
        _emit_tile(ctx, stmt, stmt.value)
        return
    value = None if stmt.value is None else emit_expr(ctx, stmt.value)
    result = _emit(ctx, stmt, stmt.dst.buffer, stmt.dst.starts, value)
    if stmt.result is None:
        if stmt.op != "load":
            ctx.writer.line(result.text)
        return
    ctx.bind(stmt.result, result)


def _emit_tile(ctx: Context, stmt: Atomic, source: Region) -> None:
    extents = extents_of(ctx, source)
    dims, target = source.squeezed(), stmt.dst.squeezed()
    vars_ = ctx.synthetic_vars(len(dims))
    if len(target) != len(dims):
        raise ctx.unsupported("an atomic whose sides differ in rank after dropping extents of 1")
    with ctx.over(vars_, tuple(extents[d] for d in dims)):
        value = load_region(ctx, source, dims, vars_)
        indices = region_indices(stmt.dst, target, vars_)
        ctx.writer.line(_emit(ctx, stmt, stmt.dst.buffer, indices, value).text)


def _emit(
    ctx: Context, stmt: Atomic, buffer: Buffer, indices: Sequence[Expr], value: Val | None
) -> Val:
    address = tensors.pointer(ctx, buffer, indices)
    axes = address.axes | (value.axes if value is not None else frozenset())
    mask = tensors.access_mask(ctx, buffer, indices, address.axes)
    lanes = ctx.space.all_axes()
    if mask is not None:
        axes |= mask.axes
    if ctx.space.rank and axes != lanes:
        # Each point of the nest takes part once, also where nothing depends on its place.
        axes = lanes
        mask = tensors.all_lanes_mask(ctx, mask)
    address = tensors.spread_pointer(ctx, address, axes)
    masked = "" if mask is None else f", mask={mask.text}"
    order = _ORDERS.get(stmt.order, "relaxed")
    if value is None:
        zero = Val("0", buffer.dtype, static=True)
        call = f'tl.atomic_add({address.text}, {typed(zero).text}{masked}, sem="{order}")'
        return Val(call, buffer.dtype, axes)
    value = convert(value, buffer.dtype)
    name = _FUNCTIONS.get(stmt.op)
    if name is None:
        raise ctx.unsupported(f"the atomic `{stmt.op}`")
    text = f'tl.{name}({address.text}, {typed(value).text}{masked}, sem="{order}")'
    return Val(text, buffer.dtype, axes)

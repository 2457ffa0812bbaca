"""Owns atomic updates of tiles.

Contributions of one nest that meet in one element are reduced first and written once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import tensors, tiles
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import chosen, converted
from tileops.codegen.triton.expressions import both
from tileops.codegen.triton.layouts import to_space
from tileops.codegen.triton.reductions import combined, neutral_operand, reduced
from tileops.codegen.triton.text import Val, convert
from tileops.dtypes import DType
from tileops.ir.expr import Expr
from tileops.ir.stmt import Atomic

_KINDS = {
    "add": "sum",
    "max": "max",
    "min": "min",
    "or": "bitor",
    "and": "bitand",
    "xor": "bitxor",
}
_FLOAT32 = DType("float32")


def update_tile(ctx: Context, stmt: Atomic, indices: Sequence[Expr], value: Val) -> Val:
    """Update each lane's element of an on-chip buffer; the values before it where wanted.

    Asks for the buffer to be held in memory where lanes meet in a way that only atomics can order.
    """
    buffer = stmt.dst.buffer
    used = _lanes_of(ctx, stmt, indices)
    meet = ctx.space.all_axes() - used
    replaces = stmt.op in ("store", "exchange")
    if meet and (replaces or stmt.result is not None):
        raise ctx.needs_memory(buffer)
    old = tiles.load_tile(ctx, buffer, indices)
    if stmt.result is not None:
        old = ctx.temporary("previous", old)
    if replaces:
        tiles.store_tile(ctx, buffer, indices, value)
        return old if stmt.result is not None else Val("", buffer.dtype)
    work = _FLOAT32 if buffer.dtype.is_fp8 else buffer.dtype
    kind, value = _KINDS[stmt.op], converted(ctx, value, work)
    if meet:
        value = _total(ctx, kind, value, meet)
    new = combined(ctx, kind, convert(old, work), value)
    if kind in ("max", "min"):
        new = chosen(ctx, new, buffer.dtype)
    # Where lanes meet, the inactive ones have contributed nothing; else they must not write.
    with ctx.nested(mask=None if meet else ctx.scope.mask):
        tiles.store_tile(ctx, buffer, indices, new)
    return old if stmt.result is not None else Val("", buffer.dtype)


def _lanes_of(ctx: Context, stmt: Atomic, indices: Sequence[Expr]) -> frozenset[int]:
    """The axes along which lanes have elements of their own."""
    buffer = stmt.dst.buffer
    storage = ctx.storage(buffer)
    if storage.lanes:
        return ctx.space.all_axes()
    own = storage.kept(indices)
    plan = [tiles.classify(ctx, storage, d, i) for d, i in enumerate(own)]
    if not tiles.is_placed(plan):
        raise ctx.needs_memory(buffer)
    return frozenset(p.axis for p in plan if p.kind in ("axis", "shift"))


def _total(ctx: Context, kind: str, value: Val, meet: frozenset[int]) -> Val:
    """The reduction of what the active lanes contribute along the axes on which they meet."""
    space, dtype = ctx.space, value.dtype
    mask = both(tensors.lane_mask(ctx, meet), ctx.scope.mask)
    axes = value.axes | meet | (mask.axes if mask is not None else frozenset())
    tile = Val(tiles.spread(value, axes, space.shape(axes)), dtype, axes)
    if mask is not None:
        neutral = neutral_operand(kind, dtype)
        tile = Val(f"tl.where({mask.text}, {tile.text}, {neutral.text})", dtype, axes)
    kept = sorted(axes - meet)
    for axis in reversed(range(space.rank)):
        if axis not in kept:
            tile = reduced(ctx, kind, tile, axis)
    return to_space(tile, kept, space) if kept else Val(tile.text, dtype, prec=tile.prec)

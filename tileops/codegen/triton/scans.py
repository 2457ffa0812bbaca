"""Owns inclusive scans along one dimension, accumulated in the destination's dtype."""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.elements import extents_of, load_region, store_element
from tileops.codegen.triton.reductions import entering, leaving, neutral_operand, working_dtype
from tileops.codegen.triton.text import Val, infix
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.stmt import Scan

_INT32 = DType("int32")
_FLOAT32 = DType("float32")
_BOOL = DType("bool")


def emit_scan(ctx: Context, stmt: Scan) -> None:
    """Each element of ``dst`` is the sum or extreme of ``src`` up to it (reversed: from it)."""
    extents = extents_of(ctx, stmt.src)
    rank = len(extents)
    vars_ = ctx.synthetic_vars(rank)
    dtype = working_dtype(stmt)
    with ctx.over(vars_, extents) as space:
        tile = entering(ctx, stmt, load_region(ctx, stmt.src, range(rank), vars_))
        axes = space.all_axes()
        axis = space.axis_of(vars_[stmt.dim].id)
        indices = fold.region_indices(stmt.dst, range(rank), vars_)
        if axis is None:
            store_element(ctx, stmt.dst.buffer, indices, leaving(ctx, stmt, tile))
            return
        if stmt.reverse and space.extents[axis] != space.padded[axis]:
            bound = Val(str(space.extents[axis]), _INT32, static=True)
            hit = infix("<", text.COMPARE, ctx.lane(space, axis), bound, _BOOL)
            neutral = neutral_operand(stmt.kind, dtype)
            tile = Val(
                f"tl.where({hit.text}, {tile.text}, {neutral.text})", dtype, tile.axes | hit.axes
            )
        full = spread(tile, axes, space.padded)
        helper = ctx.helper({"sum": "add", "max": "larger", "min": "smaller"}[stmt.kind])
        found = Val(
            f"tl.associative_scan({full}, {axis}, {helper}, reverse={stmt.reverse})",
            dtype,
            axes,
        )
        store_element(ctx, stmt.dst.buffer, indices, leaving(ctx, stmt, found))

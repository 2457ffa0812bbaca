"""Owns copies, fills and transposes: each is an elementwise nest over the region that it covers."""

from __future__ import annotations

from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.elements import (
    extents_of,
    load_element,
    load_region,
    store_element,
)
from tileops.codegen.triton.expressions import emit_expr
from tileops.ir import fold
from tileops.ir.expr import Load, Region
from tileops.ir.stmt import Copy, Fill, Im2col, Transpose
from tileops.passes.expand_tile_ops import im2col_source


def emit_copy(ctx: Context, stmt: Copy) -> None:
    """``dst = cast(src)`` over the extents of the side nearer to the registers."""
    lead = stmt.lead
    extents = extents_of(ctx, lead)
    dims = lead.squeezed()
    vars_ = ctx.synthetic_vars(len(dims))
    with ctx.over(vars_, tuple(extents[d] for d in dims)):
        value = load_region(ctx, stmt.src, paired(ctx, stmt.src, dims), vars_)
        target = paired(ctx, stmt.dst, dims)
        value = converted(ctx, value, stmt.dst.dtype)
        store_element(ctx, stmt.dst.buffer, fold.region_indices(stmt.dst, target, vars_), value)


def paired(ctx: Context, region: Region, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of ``region`` that go with the dimensions ``dims`` of the other side."""
    own = region.squeezed()
    if len(own) != len(dims):
        raise ctx.unsupported(
            f"a copy whose sides differ in rank after dropping extents of 1: `{region.buffer.name}`"
        )
    return own


def emit_fill(ctx: Context, stmt: Fill) -> None:
    """Every element of the region becomes the value."""
    extents = extents_of(ctx, stmt.dst)
    dims = stmt.dst.squeezed()
    vars_ = ctx.synthetic_vars(len(dims))
    with ctx.over(vars_, tuple(extents[d] for d in dims)):
        value = emit_expr(ctx, stmt.value)
        store_element(ctx, stmt.dst.buffer, fold.region_indices(stmt.dst, dims, vars_), value)


def emit_transpose(ctx: Context, stmt: Transpose) -> None:
    """``dst[..., j, i] = src[..., i, j]``."""
    extents = extents_of(ctx, stmt.src)
    rank = len(extents)
    vars_ = ctx.synthetic_vars(rank)
    swapped = (*vars_[:-2], vars_[-1], vars_[-2])
    with ctx.over(vars_, extents):
        value = load_region(ctx, stmt.src, range(rank), vars_)
        value = converted(ctx, value, stmt.dst.dtype)
        indices = fold.region_indices(stmt.dst, range(rank), swapped)
        store_element(ctx, stmt.dst.buffer, indices, value)


def emit_im2col(ctx: Context, stmt: Im2col) -> None:
    """The tile of an implicit GEMM.

    Rows are output positions, columns kernel positions and channels.
    """
    rank = len(stmt.dst.extents)
    vars_ = ctx.synthetic_vars(2)
    with ctx.over(vars_, extents_of(ctx, stmt.dst)[-2:]):
        pixel, _ = im2col_source(stmt, *vars_)
        value = load_element(ctx, Load(stmt.image.dtype, stmt.image, pixel))
        target = fold.region_indices(stmt.dst, (rank - 2, rank - 1), vars_)
        store_element(ctx, stmt.dst.buffer, target, converted(ctx, value, stmt.dst.dtype))

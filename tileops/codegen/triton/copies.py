"""Copies, fills and transposes: each is an elementwise nest over the region that it covers."""

from __future__ import annotations

from tileops.codegen.triton.context import Context
from tileops.codegen.triton.elements import (
    extents_of,
    load_element,
    load_region,
    store_region,
)
from tileops.codegen.triton.expressions import emit_expr
from tileops.ir.expr import Load, Region
from tileops.ir.stmt import Copy, Fill, Im2col, Transpose
from tileops.passes.expand_tile_ops import im2col_source


def emit_copy(ctx: Context, stmt: Copy) -> None:
    """``dst = cast(src)`` over the extents of the side nearer to the registers."""
    extents, dims = extents_of(ctx, stmt.lead), stmt.lead.squeezed()
    with ctx.nest([extents[d] for d in dims]) as vars_:
        value = load_region(ctx, stmt.src, paired(ctx, stmt.src, dims), vars_)
        store_region(ctx, stmt.dst, paired(ctx, stmt.dst, dims), vars_, value)


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
    extents, dims = extents_of(ctx, stmt.dst), stmt.dst.squeezed()
    with ctx.nest([extents[d] for d in dims]) as vars_:
        store_region(ctx, stmt.dst, dims, vars_, emit_expr(ctx, stmt.value))


def emit_transpose(ctx: Context, stmt: Transpose) -> None:
    """``dst[..., j, i] = src[..., i, j]``."""
    extents = extents_of(ctx, stmt.src)
    dims = range(len(extents))
    with ctx.nest(extents) as vars_:
        value = load_region(ctx, stmt.src, dims, vars_)
        store_region(ctx, stmt.dst, dims, (*vars_[:-2], vars_[-1], vars_[-2]), value)


def emit_im2col(ctx: Context, stmt: Im2col) -> None:
    """The tile of an implicit matrix product.

    Rows are output positions, columns kernel positions and channels.
    """
    rank = len(stmt.dst.extents)
    with ctx.nest(extents_of(ctx, stmt.dst)[-2:]) as vars_:
        pixel, _ = im2col_source(stmt, *vars_)
        value = load_element(ctx, Load(stmt.image.dtype, stmt.image, pixel))
        store_region(ctx, stmt.dst, (rank - 2, rank - 1), vars_, value)

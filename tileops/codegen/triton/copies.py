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
from tileops.ir.expr import Expr, Load, Region, Var
from tileops.ir.stmt import Copy, Fill, Im2col, Transpose


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
    rows, cols = extents_of(ctx, stmt.dst)[-2:]
    rank = len(stmt.dst.extents)
    vars_ = ctx.synthetic_vars(2)
    with ctx.over(vars_, (rows, cols)):
        indices = _im2col_indices(stmt, rows, cols, vars_)
        value = load_element(ctx, Load(stmt.image.dtype, stmt.image, indices))
        target = fold.region_indices(stmt.dst, (rank - 2, rank - 1), vars_)
        store_element(ctx, stmt.dst.buffer, target, converted(ctx, value, stmt.dst.dtype))


def _im2col_indices(
    stmt: Im2col, rows: int, cols: int, vars_: tuple[Var, ...]
) -> tuple[Expr, Expr, Expr, Expr]:
    """The image position of element (row, col); outside the image it reads as zero."""

    def div(a: Expr, b: Expr) -> Expr:
        return fold.binary("floordiv", a, b)

    def mod(a: Expr, b: Expr) -> Expr:
        return fold.binary("floormod", a, b)

    height, width, channels = stmt.image.shape[1:]
    span = fold.const(stmt.dilation * (stmt.kernel - 1) + 1 - 2 * stmt.pad)
    stride, one = fold.const(stmt.stride), fold.const(1)
    out_h = fold.add(div(fold.sub(height, span), stride), one)
    out_w = fold.add(div(fold.sub(width, span), stride), one)
    row = fold.add(fold.mul(stmt.row_step, fold.const(rows)), vars_[0])
    col = fold.add(fold.mul(stmt.col_step, fold.const(cols)), vars_[1])
    kernel, pad = fold.const(stmt.kernel), fold.const(stmt.pad)

    def place(out: Expr, tap: Expr) -> Expr:
        moved = fold.add(fold.mul(out, stride), fold.mul(tap, fold.const(stmt.dilation)))
        return fold.sub(moved, pad)

    y = place(mod(div(row, out_w), out_h), div(div(col, channels), kernel))
    x = place(mod(row, out_w), mod(div(col, channels), kernel))
    return div(row, fold.mul(out_h, out_w)), y, x, mod(col, channels)

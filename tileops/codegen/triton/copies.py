"""Copies, fills and transposes: each is an elementwise nest over the region that it covers."""

from __future__ import annotations

from tileops.codegen.triton.elements import extents_of, load_element, load_region, store_region
from tileops.codegen.triton.expressions import both, emit_expr
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, infix
from tileops.ir import fold
from tileops.ir.expr import Load, Var
from tileops.ir.stmt import Copy, Fill, Im2col, Transpose
from tileops.passes.analyze_index import needs_guard
from tileops.passes.expand_tile_ops import im2col_source


def emit_copy(state: LaunchState, stmt: Copy) -> None:
    """``dst = cast(src)`` over the extents of the side nearer to the registers."""
    extents, dims = extents_of(state, stmt.lead), stmt.lead.squeezed()
    for side in (stmt.src, stmt.dst):
        if len(side.squeezed()) != len(dims):
            raise state.unsupported(
                "a copy whose sides differ in rank after dropping extents of 1: "
                f"`{side.buffer.name}`"
            )
    with state.nest([extents[d] for d in dims]) as vars_:
        value = load_region(state, stmt.src, stmt.src.squeezed(), vars_)
        store_region(state, stmt.dst, stmt.dst.squeezed(), vars_, value)


def emit_fill(state: LaunchState, stmt: Fill) -> None:
    """Every element of the region becomes the value."""
    extents, dims = extents_of(state, stmt.dst), stmt.dst.squeezed()
    with state.nest([extents[d] for d in dims]) as vars_:
        store_region(state, stmt.dst, dims, vars_, emit_expr(state, stmt.value))


def emit_transpose(state: LaunchState, stmt: Transpose) -> None:
    """``dst[..., j, i] = src[..., i, j]``."""
    extents = extents_of(state, stmt.src)
    dims = range(len(extents))
    with state.nest(extents) as vars_:
        value = load_region(state, stmt.src, dims, vars_)
        store_region(state, stmt.dst, dims, (*vars_[:-2], vars_[-1], vars_[-2]), value)


def emit_im2col(state: LaunchState, stmt: Im2col) -> None:
    """The tile of a matrix product: rows are output positions, columns taps and channels."""
    rank = len(stmt.dst.extents)
    with state.nest(extents_of(state, stmt.dst)[-2:]) as vars_:
        pixel, _ = im2col_source(stmt, *vars_)
        with state.nested(mask=both(state.scope.mask, _before_last_tap(state, stmt, vars_[1]))):
            value = load_element(state, Load(stmt.image.dtype, stmt.image, pixel))
        store_region(state, stmt.dst, (rank - 2, rank - 1), vars_, value)


def _before_last_tap(state: LaunchState, stmt: Im2col, j: Var) -> Val | None:
    """The columns that have a tap, None if all do: others would read pixels after the last's."""
    column = fold.add(fold.mul(stmt.col_step, stmt.dst.extents[-1]), j)
    end = fold.mul(fold.const(stmt.kernel * stmt.kernel), stmt.image.shape[3])
    lower, upper = needs_guard(column, end, state.scope.ranges)
    mask = infix(">=", emit_expr(state, column), 0) if lower else None
    return (
        both(mask, infix("<", emit_expr(state, column), emit_expr(state, end))) if upper else mask
    )

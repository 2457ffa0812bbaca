"""Owns im2col: the tile of an implicit matrix product, gathered from an NHWC image."""

from __future__ import annotations

from tileops.codegen.cpu.control import EmitBody
from tileops.codegen.cpu.nests import emit_parallel
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Expr, Load
from tileops.ir.stmt import Im2col, Parallel, Store


def emit_im2col(state: LaunchState, stmt: Im2col, emit_body: EmitBody) -> None:
    """``dst[i, j]`` is the image under position i of the output grid, tap and channel j.

    0 in the padding.
    """
    dims = stmt.dst.squeezed()
    if len(dims) != 2:
        raise InternalError("im2col fills a matrix")
    rows, columns = (stmt.dst.extents[d] for d in dims)
    i, j = state.fresh_var("i"), state.fresh_var("j")
    row = fold.add(fold.mul(stmt.row_step, rows), i)
    column = fold.add(fold.mul(stmt.col_step, columns), j)
    at = list(stmt.dst.starts)
    at[dims[0]], at[dims[1]] = fold.add(at[dims[0]], i), fold.add(at[dims[1]], j)
    pixel, inside = _pixel(stmt, row, column)
    zero = fold.const(0, stmt.image.dtype)
    value = fold.select(inside, Load(stmt.image.dtype, stmt.image, pixel), zero)
    store = Store(stmt.dst.buffer, tuple(at), fold.cast(value, stmt.dst.dtype))
    emit_parallel(state, Parallel((i, j), (rows, columns), (store,)), emit_body)


def _pixel(stmt: Im2col, row: Expr, column: Expr) -> tuple[tuple[Expr, ...], Expr]:
    """The image's indices for one element, and whether they lie in the image."""
    _, height, width, channels = stmt.image.shape
    out_height, out_width = _output(stmt, height), _output(stmt, width)
    taps = fold.const(stmt.kernel)
    image = _div(row, fold.mul(out_height, out_width))
    line, place = _mod(_div(row, out_width), out_height), _mod(row, out_width)
    channel, tap = _mod(column, channels), _div(column, channels)
    y = _coordinate(stmt, line, _div(tap, taps))
    x = _coordinate(stmt, place, _mod(tap, taps))
    inside = fold.binary("lt", tap, fold.const(stmt.kernel * stmt.kernel))
    for at, bound in ((y, height), (x, width)):
        inside = fold.binary("land", inside, fold.binary("ge", at, fold.const(0)))
        inside = fold.binary("land", inside, fold.binary("lt", at, bound))
    return (image, y, x, channel), inside


def _output(stmt: Im2col, extent: Expr) -> Expr:
    """The length of the output grid along one dimension of the image."""
    reach = stmt.dilation * (stmt.kernel - 1) + 1
    room = fold.add(extent, fold.const(2 * stmt.pad - reach))
    return fold.add(_div(room, fold.const(stmt.stride)), fold.const(1))


def _coordinate(stmt: Im2col, place: Expr, tap: Expr) -> Expr:
    moved = fold.add(
        fold.mul(place, fold.const(stmt.stride)), fold.mul(tap, fold.const(stmt.dilation))
    )
    return fold.sub(moved, fold.const(stmt.pad))


def _div(a: Expr, b: Expr) -> Expr:
    return fold.binary("floordiv", a, b)


def _mod(a: Expr, b: Expr) -> Expr:
    return fold.binary("floormod", a, b)

"""Owns reductions along one dimension, accumulated in the destination's dtype."""

from __future__ import annotations

import math

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import chosen, converted, odd_float32
from tileops.codegen.triton.elements import extents_of, load_region, store_element
from tileops.codegen.triton.expressions import extreme
from tileops.codegen.triton.space import Space
from tileops.codegen.triton.text import Val, convert, infix
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.stmt import Reduce, Scan

_INT32 = DType("int32")
_FLOAT32 = DType("float32")
_BOOL = DType("bool")

_REDUCERS = {
    "sum": "tl.sum",
    "abssum": "tl.sum",
    "max": "tl.max",
    "absmax": "tl.max",
    "min": "tl.min",
}
_CHOOSING = ("max", "min", "absmax")
_COMBINERS = {"bitand": "bit_and", "bitor": "bit_or", "bitxor": "bit_xor"}


def emit_reduce(ctx: Context, stmt: Reduce) -> None:
    """``dst = reduce(src, dim)``; not ``clear`` folds dst's old value in."""
    extents = extents_of(ctx, stmt.src)
    vars_ = ctx.synthetic_vars(len(extents))
    dtype = working_dtype(stmt)
    with ctx.over(vars_, extents) as space:
        tile = entering(ctx, stmt, load_region(ctx, stmt.src, range(len(extents)), vars_))
        if stmt.kind in ("absmax", "abssum"):
            tile = text.call("tl.abs", tile, dtype=dtype)
        axis = space.axis_of(vars_[stmt.dim].id)
        if axis is not None:
            tile = _without_padding(ctx, space, axis, tile, stmt)
        if space.rank:
            tile = Val(spread(tile, space.all_axes(), space.padded), dtype)
    result = tile if axis is None else reduced(ctx, stmt.kind, tile, axis, stmt.nan_propagate)
    _store(ctx, stmt, result, tuple(extents[d] for d, _ in stmt.pairs()))


def working_dtype(stmt: Reduce | Scan) -> DType:
    """The dtype of partial results: 8-bit floats are reduced in float32 and rounded once."""
    return _FLOAT32 if stmt.dst.dtype.is_fp8 else stmt.dst.dtype


def entering(ctx: Context, stmt: Reduce | Scan, tile: Val) -> Val:
    """The elements as ``working_dtype``; one that is chosen is rounded once on its way to dst."""
    if stmt.kind in _CHOOSING and stmt.dst.dtype.is_fp8 and tile.dtype == "float64":
        return odd_float32(ctx, tile)
    return converted(ctx, tile, working_dtype(stmt))


def leaving(ctx: Context, stmt: Reduce | Scan, result: Val) -> Val:
    """The result as it is stored: an element that is chosen among dst's own is not converted."""
    if stmt.kind in _CHOOSING and stmt.src.dtype == stmt.dst.dtype:
        return chosen(ctx, result, stmt.dst.dtype)
    return result


def _without_padding(ctx: Context, space: Space, axis: int, tile: Val, stmt: Reduce) -> Val:
    if space.extents[axis] == space.padded[axis]:
        return tile
    bound = Val(str(space.extents[axis]), _INT32, static=True)
    hit = infix("<", text.COMPARE, ctx.lane(space, axis), bound, _BOOL)
    neutral = neutral_operand(stmt.kind, tile.dtype, stmt.nan_propagate)
    return Val(
        f"tl.where({hit.text}, {tile.text}, {neutral.text})", tile.dtype, tile.axes | hit.axes
    )


def neutral_operand(kind: str, dtype: DType, nan_propagate: bool = False) -> Val:
    """The text of ``neutral_value``, as an operand of tl.where."""
    value = neutral_value(kind, dtype, nan_propagate)
    return text.strict(text.literal(fold.const(value, dtype)))


def neutral_value(kind: str, dtype: DType, nan_propagate: bool = False) -> bool | int | float:
    """The value beside which a reduction of ``kind`` gives the other one.

    For extremes of floats this is NaN: a number is preferred to it, and NaNs alone stay NaN.
    """
    if dtype.is_bool:
        return kind in ("min", "bitand")
    if dtype.is_float and kind in _CHOOSING and not nan_propagate:
        return math.nan
    if kind in ("sum", "abssum", "absmax", "bitor", "bitxor"):
        return 0
    if kind == "bitand":
        return -1 if dtype.is_signed else dtype.limits[1]
    if dtype.is_float:
        return float("inf") if kind == "min" else -float("inf")
    low, high = dtype.limits
    return high if kind == "min" else low


def reduced(ctx: Context, kind: str, tile: Val, axis: int, nan_propagate: bool = False) -> Val:
    """The reduced tile (without the dimension), in the tile's own dtype."""
    dtype = tile.dtype
    if nan_propagate and dtype.is_float and kind in _CHOOSING:
        helper = ctx.helper("nan_min" if kind == "min" else "nan_max")
        return Val(f"tl.reduce({tile.text}, {axis}, {helper})", dtype)
    if kind in _COMBINERS:
        helper = ctx.helper(_COMBINERS[kind])
        return Val(f"tl.reduce({tile.text}, {axis}, {helper})", dtype)
    if dtype.is_bool:
        tile = convert(tile, _INT32)
    found = Val(f"{_REDUCERS[kind]}({tile.text}, {axis})", _widened(kind, tile.dtype))
    return convert(found, dtype)


def _widened(kind: str, dtype: DType) -> DType:
    """Triton reduces narrow integers as 32-bit ones, and extremes of narrow floats in float32."""
    if dtype.is_float and dtype.bits < 32 and kind not in ("sum", "abssum"):
        return DType("float32")
    if dtype.is_integer and dtype.bits < 32:
        return _INT32 if dtype.is_signed else DType("uint32")
    return dtype


def _store(ctx: Context, stmt: Reduce, result: Val, extents: tuple[int, ...]) -> None:
    vars_ = ctx.synthetic_vars(len(extents))
    with ctx.over(vars_, extents) as space:
        result = Val(result.text, result.dtype, space.all_axes(), result.prec)
        dims = tuple(d for _, d in stmt.pairs())
        if not stmt.clear:
            old = convert(load_region(ctx, stmt.dst, dims, vars_), result.dtype)
            result = combined(ctx, stmt.kind, old, result, stmt.nan_propagate)
        result = leaving(ctx, stmt, result)
        store_element(ctx, stmt.dst.buffer, fold.region_indices(stmt.dst, dims, vars_), result)


def combined(ctx: Context, kind: str, old: Val, new: Val, nan_propagate: bool = False) -> Val:
    """The reduction of two values of one dtype, element by element."""
    dtype = new.dtype
    if kind == "absmax":
        old = text.call("tl.abs", old, dtype=dtype)
    if kind in ("sum", "abssum"):
        return infix("+", text.SUM, old, new, dtype)
    if nan_propagate and dtype.is_float:
        helper = ctx.helper("nan_min" if kind == "min" else "nan_max")
        return text.call(helper, old, new, dtype=dtype)
    if kind in _CHOOSING:
        return extreme("min" if kind == "min" else "max", old, new, dtype)
    symbol, prec = {
        "bitand": ("&", text.BIT_AND),
        "bitor": ("|", text.BIT_OR),
        "bitxor": ("^", text.BIT_XOR),
    }[kind]
    return infix(symbol, prec, old, new, dtype)

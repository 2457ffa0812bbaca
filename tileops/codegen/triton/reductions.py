"""Reductions, places of extremes and inclusive scans along one dimension."""

from __future__ import annotations

import math

from tileops.codegen.triton.elements import extents_of, load_region, store_region, without_padding
from tileops.codegen.triton.expressions import extreme
from tileops.codegen.triton.functions import chosen, converted, odd_float32
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, call, convert, infix, literal, number, strict
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import FLOAT32, INT32, DType
from tileops.ir import fold
from tileops.ir.stmt import ArgReduce, Reduce, Scan

_CHOOSING = ("max", "min", "absmax")
_BITWISE = {"bitand": ("&", "bit_and"), "bitor": ("|", "bit_or"), "bitxor": ("^", "bit_xor")}
_SCANNERS = {"sum": "add", "max": "larger", "min": "smaller"}


def emit_reduce(state: LaunchState, stmt: Reduce) -> None:
    """``dst = reduce(src, dim)``; not ``clear`` folds dst's old value in."""
    kind, nan = stmt.kind, stmt.nan_propagate
    extents = extents_of(state, stmt.src)
    with state.nest(extents) as vars_:
        space = state.space
        tile = _entering(state, stmt, load_region(state, stmt.src, range(len(extents)), vars_))
        if kind in ("absmax", "abssum"):
            tile = call("tl.abs", tile)
        axis = space.axis_of(vars_[stmt.dim].id)
        if axis is not None:
            tile = without_padding(state, axis, tile, neutral_operand(kind, tile.dtype, nan))
        if space.rank:
            tile = Val(spread(tile, space.all_axes(), space.padded), tile.dtype)
    result = tile if axis is None else reduced(state, kind, tile, axis, nan)
    with state.nest([extents[d] for d, _ in stmt.pairs()]) as vars_:
        result = Val(result.text, result.dtype, state.space.all_axes(), result.prec)
        result = state.from_other_space(result)
        dims = tuple(d for _, d in stmt.pairs())
        if not stmt.clear:
            old = convert(load_region(state, stmt.dst, dims, vars_), result.dtype)
            result = combined(state, kind, old, result, nan)
        store_region(state, stmt.dst, dims, vars_, _leaving(state, stmt, result))


def emit_arg_reduce(state: LaunchState, stmt: ArgReduce) -> None:
    """``dst`` is the place along ``dim`` of the largest or smallest element."""
    extents = extents_of(state, stmt.src)
    result = number(0)
    with state.nest(extents) as vars_:
        space = state.space
        axis = space.axis_of(vars_[stmt.dim].id)
        if axis is not None:
            tile = load_region(state, stmt.src, range(len(extents)), vars_)
            if tile.dtype.bits < 32:
                tile = converted(state, tile, FLOAT32 if tile.dtype.is_float else INT32)
            tile = without_padding(state, axis, tile, neutral_operand(stmt.kind, tile.dtype))
            both = (tile, state.lane(space, axis))
            operands = ", ".join(spread(v, space.all_axes(), space.padded) for v in both)
            helper = state.helper("first_largest" if stmt.kind == "max" else "first_least")
            result = Val(f"tl.reduce(({operands}), {axis}, {helper})[1]", INT32)
    with state.nest([extents[d] for d, _ in stmt.pairs()]) as vars_:
        if axis is not None:
            result = Val(result.text, INT32, state.space.all_axes())
        store_region(state, stmt.dst, tuple(d for _, d in stmt.pairs()), vars_, result)


def emit_scan(state: LaunchState, stmt: Scan) -> None:
    """Each element of ``dst`` is the sum or extreme of ``src`` up to it (reversed: from it)."""
    extents = extents_of(state, stmt.src)
    dims = range(len(extents))
    with state.nest(extents) as vars_:
        space = state.space
        tile = _entering(state, stmt, load_region(state, stmt.src, dims, vars_))
        axis = space.axis_of(vars_[stmt.dim].id)
        if axis is not None:
            if stmt.reverse:
                tile = without_padding(state, axis, tile, neutral_operand(stmt.kind, tile.dtype))
            full = spread(tile, space.all_axes(), space.padded)
            helper = state.helper(_SCANNERS[stmt.kind])
            found = f"tl.associative_scan({full}, {axis}, {helper}, reverse={stmt.reverse})"
            tile = Val(found, tile.dtype, space.all_axes())
        store_region(state, stmt.dst, dims, vars_, _leaving(state, stmt, tile))


def _entering(state: LaunchState, stmt: Reduce | Scan, tile: Val) -> Val:
    """The elements in the dtype of partial results: 8-bit floats are reduced in float32."""
    narrow = stmt.dst.dtype.is_fp8
    if narrow and stmt.kind in _CHOOSING and tile.dtype == "float64":
        return odd_float32(state, tile)  # what is chosen is rounded once on its way to dst
    return converted(state, tile, FLOAT32 if narrow else stmt.dst.dtype)


def _leaving(state: LaunchState, stmt: Reduce | Scan, result: Val) -> Val:
    """The result as it is stored: an element that is chosen among dst's own is not converted."""
    if stmt.kind in _CHOOSING and stmt.src.dtype == stmt.dst.dtype:
        return chosen(state, result, stmt.dst.dtype)
    return result


def neutral_operand(kind: str, dtype: DType, nan_propagate: bool = False) -> Val:
    """The value that changes nothing in a reduction of ``kind``."""
    return strict(literal(fold.const(_neutral(kind, dtype, nan_propagate), dtype)))


def _neutral(kind: str, dtype: DType, nan_propagate: bool) -> bool | int | float:
    if dtype.is_bool:
        return kind in ("min", "bitand")
    if dtype.is_float and kind in _CHOOSING and not nan_propagate:
        return math.nan  # a number is preferred to it, and NaNs alone stay NaN
    if kind in ("sum", "abssum", "absmax", "bitor", "bitxor"):
        return 0
    if kind == "bitand":
        return -1 if dtype.is_signed else dtype.limits[1]
    low, high = (-math.inf, math.inf) if dtype.is_float else dtype.limits
    return high if kind == "min" else low


def reduced(
    state: LaunchState, kind: str, tile: Val, axis: int, nan_propagate: bool = False
) -> Val:
    """The reduced tile (without the dimension), in the tile's own dtype."""
    dtype = tile.dtype
    helper = None
    if nan_propagate and dtype.is_float and kind in _CHOOSING:
        helper = "nan_min" if kind == "min" else "nan_max"
    elif kind in _BITWISE:
        _, helper = _BITWISE[kind]
    if helper is not None:
        return Val(f"tl.reduce({tile.text}, {axis}, {state.helper(helper)})", dtype)
    if dtype.is_bool:
        tile = convert(tile, INT32)
    function = f"tl.{kind.removeprefix('abs')}"
    return convert(Val(f"{function}({tile.text}, {axis})", _widened(kind, tile.dtype)), dtype)


def _widened(kind: str, dtype: DType) -> DType:
    """Triton reduces narrow integers as 32-bit ones, and extremes of narrow floats in float32."""
    if dtype.is_float and dtype.bits < 32 and kind not in ("sum", "abssum"):
        return FLOAT32
    if dtype.is_integer and dtype.bits < 32:
        return INT32 if dtype.is_signed else DType("uint32")
    return dtype


def combined(state: LaunchState, kind: str, old: Val, new: Val, nan_propagate: bool = False) -> Val:
    """The reduction of two values of one dtype, element by element."""
    dtype = new.dtype
    if kind == "absmax":
        old = call("tl.abs", old, dtype=dtype)
    if kind in ("sum", "abssum"):
        return infix("+", old, new, dtype)
    if nan_propagate and dtype.is_float:
        return call(state.helper("nan_min" if kind == "min" else "nan_max"), old, new, dtype=dtype)
    if kind in _CHOOSING:
        return extreme("min" if kind == "min" else "max", old, new, dtype)
    return infix(_BITWISE[kind][0], old, new, dtype)

"""Owns matrix products: operands widened exactly, products and sums in the accumulator's dtype."""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.elements import extents_of, load_region, store_element
from tileops.codegen.triton.expressions import emit_condition
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.text import Val, convert, infix, triton_type
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Gemm

_INT32 = DType("int32")
_BOOL = DType("bool")
_FLOAT16 = DType("float16")
_FLOAT32 = DType("float32")


def emit_gemm(ctx: Context, stmt: Gemm) -> None:
    """``c (+)= op(a) @ op(b)`` as one ``tl.dot``."""
    a = _operand(ctx, stmt.a, contracted=-2 if stmt.transpose_a else -1)
    b = _operand(ctx, stmt.b, contracted=-1 if stmt.transpose_b else -2)
    a, b = _widened(ctx, stmt, a, b)
    left = f"tl.trans({a.text})" if stmt.transpose_a else a.text
    right = f"tl.trans({b.text})" if stmt.transpose_b else b.text
    acc_dtype = _accumulator(ctx, stmt, a.dtype)
    vars_ = ctx.synthetic_vars(2)
    extents = extents_of(ctx, stmt.c)
    rank = len(extents)
    with ctx.over(vars_, extents[-2:]) as space:
        indices = fold.region_indices(stmt.c, (rank - 2, rank - 1), vars_)
        start = _start(ctx, stmt, vars_, acc_dtype)
        options = _options(ctx, stmt, a.dtype, acc_dtype)
        args = [left, right, *([] if start is None else [start]), *options]
        text_ = f"tl.dot({', '.join(args)})"
        if space.rank == 1:
            text_ = f"tl.reshape({text_}, {shape_text(space.padded)})"
        elif space.rank == 0:
            text_ = f"tl.sum({text_})"
        product = Val(text_, acc_dtype, space.all_axes())
        store_element(ctx, stmt.c.buffer, indices, convert(product, stmt.c.dtype))


def _operand(ctx: Context, region: Region, contracted: int) -> Val:
    """A matrix as a full tile, zero in the padding of the contracted dimension."""
    extents = extents_of(ctx, region)
    rank = len(extents)
    vars_ = ctx.synthetic_vars(2)
    with ctx.over(vars_, extents[-2:]) as space:
        tile = load_region(ctx, region, (rank - 2, rank - 1), vars_)
        if space.rank:
            tile = Val(spread(tile, space.all_axes(), space.padded), tile.dtype, space.all_axes())
        axis = space.axis_of(vars_[contracted].id)
        if axis is not None and space.extents[axis] != space.padded[axis]:
            bound = Val(str(space.extents[axis]), _INT32, static=True)
            hit = infix("<", text.COMPARE, ctx.lane(space, axis), bound, _BOOL)
            tile = Val(f"tl.where({hit.text}, {tile.text}, {_zero(tile)})", tile.dtype, tile.axes)
        tile = _as_matrix(tile, [space.axis_of(v.id) is not None for v in vars_])
        if axis is None:
            # One product a sum: the others are of zeros.
            lane = ctx.iota(32 if tile.dtype.bits == 8 else 16, 2 + contracted, 2)
            tile = Val(f"tl.where({lane} == 0, {tile.text}, {_zero(tile)})", tile.dtype)
    return tile


def _zero(tile: Val) -> str:
    return text.strict(Val("0" if tile.dtype.is_integer else "0.0", tile.dtype, static=True)).text


def _as_matrix(tile: Val, present: list[bool]) -> Val:
    """The tile with a dimension of extent 1 where the matrix has one."""
    if all(present):
        return tile
    if not any(present):
        return Val(f"tl.full((1, 1), {tile.text}, {triton_type(tile.dtype)})", tile.dtype)
    subscript = ", ".join(":" if p else "None" for p in present)
    return Val(f"{tile.at(text.ATOM)}[{subscript}]", tile.dtype)


def _widened(ctx: Context, stmt: Gemm, a: Val, b: Val) -> tuple[Val, Val]:
    """Both operands in the narrowest dtype of the tensor cores that holds each exactly."""
    if a.dtype == b.dtype and _has_instruction(ctx, a.dtype, stmt.c.dtype):
        return a, b
    for name in ("float16", "bfloat16", "float32", "float64"):
        wide = DType(name)
        if _holds(wide, a.dtype) and _holds(wide, b.dtype) and wide.bits <= stmt.c.dtype.bits:
            return convert(a, wide), convert(b, wide)
    raise ctx.unsupported(
        "a gemm of these dtypes has no exact form on this target",
        found=f"{stmt.a.dtype} x {stmt.b.dtype} -> {stmt.c.dtype}",
    )


def _has_instruction(ctx: Context, dtype: DType, acc: DType) -> bool:
    if dtype.is_fp8:
        return ctx.target.supports("gemm", dtype)
    if dtype.is_integer:
        return dtype == "int8" and acc.is_integer
    return str(dtype) in ("float16", "bfloat16", "tfloat32", "float32", "float64")


# (significand bits, largest exponent): a dtype holds another exactly if it has at least as many of
# both.
_FORMATS = {
    "float8_e4m3fn": (4, 8), "float8_e5m2": (3, 15), "float16": (11, 15), "bfloat16": (8, 127),
    "float32": (24, 127), "float64": (53, 1023), "tfloat32": (11, 127),
    "int8": (8, 7), "uint8": (8, 8), "bool": (1, 1),
}  # fmt: skip


def _holds(wide: DType, narrow: DType) -> bool:
    if wide == narrow:
        return True
    a, b = _FORMATS.get(str(wide)), _FORMATS.get(str(narrow))
    return a is not None and b is not None and a[0] >= b[0] and a[1] >= b[1]


def _accumulator(ctx: Context, stmt: Gemm, operand: DType) -> DType:
    """The dtype that tl.dot sums in.

    C's own, or float32 rounded once where there is no such form.
    """
    if stmt.c.dtype in ("float32", "float64", "int32"):
        return stmt.c.dtype
    if stmt.c.dtype == "float16" and operand == "float16":
        return _FLOAT16
    if operand.is_integer:
        return _INT32
    return _FLOAT32


def _start(ctx: Context, stmt: Gemm, vars_: tuple[Var, ...], acc: DType) -> str | None:
    clear = const_value(stmt.clear)
    if clear == 1:
        return None
    rank = len(stmt.c.extents)
    old = convert(load_region(ctx, stmt.c, (rank - 2, rank - 1), vars_), acc)
    old = _as_matrix(old, [ctx.space.axis_of(v.id) is not None for v in vars_])
    if clear == 0:
        return old.text
    return f"tl.where({emit_condition(ctx, stmt.clear).text}, {_zero(old)}, {old.text})"


def _options(ctx: Context, stmt: Gemm, operand: DType, acc: DType) -> list[str]:
    options = []
    if operand == "tfloat32":
        options.append('input_precision="tf32"')
    if operand == "float32":
        precision = ctx.options.get("tl.gemm_f32_precision", "tf32").strip("'\"")
        options.append(f'input_precision="{precision}"')
    if operand.is_fp8:
        # Hopper sums fp8 products in fewer bits unless told to add into float32 each time.
        options.append("max_num_imprecise_acc=0")
    if acc != "float32":
        options.append(f"out_dtype={triton_type(acc)}")
    return options

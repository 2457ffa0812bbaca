"""Owns matrix products: operands widened exactly, products and sums in the accumulator's dtype."""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.elements import extents_of, load_region, store_element
from tileops.codegen.triton.expressions import emit_condition
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.text import Val, call, convert, infix, triton_type
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Gemm

_INT32 = DType("int32")
_BOOL = DType("bool")
_FLOAT32 = DType("float32")


def emit_gemm(ctx: Context, stmt: Gemm) -> None:
    """``c (+)= op(a) @ op(b)`` as one ``tl.dot``."""
    a = _operand(ctx, stmt.a, contracted=-2 if stmt.transpose_a else -1)
    b = _operand(ctx, stmt.b, contracted=-1 if stmt.transpose_b else -2)
    a, b = _widened(ctx, stmt, a, b)
    left = call("tl.trans", a, dtype=a.dtype) if stmt.transpose_a else a
    right = call("tl.trans", b, dtype=b.dtype) if stmt.transpose_b else b
    vars_ = ctx.synthetic_vars(2)
    extents = extents_of(ctx, stmt.c)
    rank = len(extents)
    with ctx.over(vars_, extents[-2:]) as space:
        indices = fold.region_indices(stmt.c, (rank - 2, rank - 1), vars_)
        emit = _integer_product if a.dtype.is_integer else _float_product
        product = emit(ctx, stmt, left, right, vars_)
        text_ = product.text
        if space.rank == 1:
            text_ = f"tl.reshape({text_}, {shape_text(space.padded)})"
        elif space.rank == 0:
            text_ = f"tl.sum({text_})"
        prec = product.prec if space.rank == 2 else text.ATOM
        product = Val(text_, product.dtype, space.all_axes(), prec)
        store_element(ctx, stmt.c.buffer, indices, converted(ctx, product, stmt.c.dtype))


def _float_product(ctx: Context, stmt: Gemm, left: Val, right: Val, vars_: tuple[Var, ...]) -> Val:
    acc = _accumulator(stmt, left.dtype)
    start = _start(ctx, stmt, vars_, acc)
    return _dot(left, right, start, acc, _options(ctx, left.dtype))


def _integer_product(
    ctx: Context, stmt: Gemm, left: Val, right: Val, vars_: tuple[Var, ...]
) -> Val:
    """A product of 8-bit integers: tensor cores multiply signed ones and sum 32 bits.

    An unsigned x is s + 128 for a signed s: sums of rows and columns stand for the 128. A tile's
    own sum fits in 32 bits; what is added to 64 bits is widened first.
    """
    acc = DType("int64") if stmt.c.dtype.bits == 64 else _INT32
    start = _start(ctx, stmt, vars_, acc)
    signed = _signed(left), _signed(right)
    product = convert(_dot(*signed, start if acc == _INT32 else None, _INT32, []), acc)
    if left.dtype == "uint8":
        product = _plus(product, _shifts(right, 0, acc), acc)
    if right.dtype == "uint8":
        product = _plus(product, _shifts(signed[0], 1, acc), acc)
    return product if start is None or acc == _INT32 else _plus(product, start, acc)


def _signed(a: Val) -> Val:
    if a.dtype == "int8":
        return a
    return Val(f"({a.at(text.BIT_XOR)} ^ 128).to(tl.int8, bitcast=True)", DType("int8"))


def _shifts(a: Val, axis: int, acc: DType) -> Val:
    """128 times the sums of columns (axis 0) or rows, ready to be added to each row or column."""
    sums = f"tl.sum({convert(a, acc).text}, axis={axis}, keep_dims=True)"
    return Val(f"{sums} * 128", acc, prec=text.PRODUCT)


def _plus(a: Val, b: Val, dtype: DType) -> Val:
    return infix("+", text.SUM, a, b, dtype)


def _dot(left: Val, right: Val, start: Val | None, acc: DType, options: list[str]) -> Val:
    if acc != "float32":
        options = [*options, f"out_dtype={triton_type(acc)}"]
    args = [left.text, right.text, *([] if start is None else [start.text]), *options]
    return Val(f"tl.dot({', '.join(args)})", acc)


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
    c = stmt.c.dtype
    if c.is_integer and all(str(x.dtype) in ("int8", "uint8") for x in (a, b)):
        return a, b
    if a.dtype == b.dtype and c != "float64" and _has_instruction(ctx, a.dtype):
        return a, b
    names = ["float16", "bfloat16", "float32", "float64"]
    if c.is_integer or c == "float64":
        names = names[3:] if c == "float64" else []  # tl.dot sums other products in fewer bits
    if c == "float64" and min(a.dtype.bits, b.dtype.bits) < 32:
        names = []  # Triton 3.6 fails on operands that go from 16 bits to 64
    for wide in map(DType, names):
        if _holds(wide, a.dtype) and _holds(wide, b.dtype) and wide.bits <= c.bits:
            return convert(a, wide), convert(b, wide)
    raise ctx.unsupported(
        "a gemm of these dtypes has no exact form on this target",
        found=f"{stmt.a.dtype} x {stmt.b.dtype} -> {stmt.c.dtype}",
    )


def _has_instruction(ctx: Context, dtype: DType) -> bool:
    if dtype.is_fp8:
        return ctx.target.supports("gemm", dtype)
    return str(dtype) in ("float16", "bfloat16", "tfloat32", "float32", "float64")


# (significand bits, largest exponent): a dtype holds another exactly if it has at least as many of
# both.
_FORMATS = {
    "float8_e4m3fn": (4, 8), "float8_e5m2": (3, 15), "float16": (11, 15), "bfloat16": (8, 127),
    "float32": (24, 127), "float64": (53, 1023), "tfloat32": (11, 127),
}  # fmt: skip


def _holds(wide: DType, narrow: DType) -> bool:
    if wide == narrow:
        return True
    a, b = _FORMATS.get(str(wide)), _FORMATS.get(str(narrow))
    return a is not None and b is not None and a[0] >= b[0] and a[1] >= b[1]


def _accumulator(stmt: Gemm, operand: DType) -> DType:
    """The dtype that tl.dot sums floats in.

    C's own, or a wider one rounded once where there is no such form.
    """
    if operand == "float64":
        return operand
    if stmt.c.dtype == "float16" and operand == "float16":
        return operand
    return _FLOAT32


def _start(ctx: Context, stmt: Gemm, vars_: tuple[Var, ...], acc: DType) -> Val | None:
    clear = const_value(stmt.clear)
    if clear == 1:
        return None
    rank = len(stmt.c.extents)
    old = convert(load_region(ctx, stmt.c, (rank - 2, rank - 1), vars_), acc)
    old = _as_matrix(old, [ctx.space.axis_of(v.id) is not None for v in vars_])
    if clear == 0:
        return old
    return Val(f"tl.where({emit_condition(ctx, stmt.clear).text}, {_zero(old)}, {old.text})", acc)


def _options(ctx: Context, operand: DType) -> list[str]:
    if operand == "tfloat32":
        return ['input_precision="tf32"']
    if operand == "float32":
        precision = ctx.options.get("tl.gemm_f32_precision", "tf32").strip("'\"")
        return [f'input_precision="{precision}"']
    if operand.is_fp8:
        # Hopper sums fp8 products in fewer bits unless told to add into float32 each time.
        return ["max_num_imprecise_acc=0"]
    return []

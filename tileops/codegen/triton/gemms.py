"""Matrix products: operands widened exactly, products and sums in the accumulator's dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tileops.codegen.triton import text
from tileops.codegen.triton.elements import extents_of, load_region, store_region, without_padding
from tileops.codegen.triton.expressions import emit_condition
from tileops.codegen.triton.space import shape_text, subscript
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, call, convert, infix, number, strict, where
from tileops.codegen.triton.tiles import spread
from tileops.dtypes import FLOAT32, INT32, INT64, DType
from tileops.ir.expr import Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import Gemm


def emit_gemm(state: LaunchState, stmt: Gemm) -> None:
    """``c (+)= op(a) @ op(b)`` as one ``tl.dot``."""
    a = _operand(state, stmt.a, contracted=-2 if stmt.transpose_a else -1)
    b = _operand(state, stmt.b, contracted=-1 if stmt.transpose_b else -2)
    a, b = _widened(state, stmt, a, b)
    left = call("tl.trans", a) if stmt.transpose_a else a
    right = call("tl.trans", b) if stmt.transpose_b else b
    extents = extents_of(state, stmt.c)
    with state.nest(extents[-2:]) as vars_:
        space = state.space
        if a.dtype.is_integer:
            product = _integer_product(state, stmt, left, right, vars_)
        else:
            # tl.dot sums floats in C's dtype, or a wider one where there is no such form.
            own = a.dtype == "float64" or a.dtype == stmt.c.dtype == "float16"
            acc = a.dtype if own else FLOAT32
            product = _dot(
                left, right, _start(state, stmt, vars_, acc), acc, _options(state, a.dtype)
            )
        if space.rank == 1:
            product = Val(f"tl.reshape({product.text}, {shape_text(space.padded)})", product.dtype)
        elif space.rank == 0:
            product = call("tl.sum", product)
        product = replace(product, axes=space.all_axes())
        store_region(state, stmt.c, _last_two(stmt.c), vars_, product)


def _last_two(region: Region) -> tuple[int, int]:
    rank = len(region.extents)
    return rank - 2, rank - 1


def _integer_product(
    state: LaunchState, stmt: Gemm, left: Val, right: Val, vars_: Sequence[Var]
) -> Val:
    """A product of 8-bit integers: tensor cores multiply signed ones and sum 32 bits.

    An unsigned x is s + 128 for a signed s: sums of rows and columns stand for the 128. A tile's
    own sum fits in 32 bits; what is added to 64 bits is widened first.
    """
    acc = INT64 if stmt.c.dtype.bits == 64 else INT32
    start = _start(state, stmt, vars_, acc)
    signed = _signed(left), _signed(right)
    product = convert(_dot(*signed, start if acc == INT32 else None, INT32, []), acc)
    if left.dtype == "uint8":
        product = infix("+", product, _shifts(right, 0, acc))
    if right.dtype == "uint8":
        product = infix("+", product, _shifts(signed[0], 1, acc))
    return product if start is None or acc == INT32 else infix("+", product, start)


def _signed(a: Val) -> Val:
    if a.dtype == "int8":
        return a
    return Val(f"({a.at(text.BIT_XOR)} ^ 128).to(tl.int8, bitcast=True)", DType("int8"))


def _shifts(a: Val, axis: int, acc: DType) -> Val:
    """128 times the sums of columns (axis 0) or rows, ready to be added to each row or column."""
    sums = f"tl.sum({convert(a, acc).text}, axis={axis}, keep_dims=True)"
    return Val(f"{sums} * 128", acc, prec=text.PRODUCT)


def _dot(left: Val, right: Val, start: Val | None, acc: DType, options: list[str]) -> Val:
    if acc != "float32":
        options = [*options, f"out_dtype={text.triton_type(acc)}"]
    args = [left.text, right.text, *([] if start is None else [start.text]), *options]
    return Val(f"tl.dot({', '.join(args)})", acc)


def _operand(state: LaunchState, region: Region, contracted: int) -> Val:
    """A matrix as a full tile, zero in the padding of the contracted dimension."""
    with state.nest(extents_of(state, region)[-2:]) as vars_:
        space = state.space
        tile = load_region(state, region, _last_two(region), vars_)
        if space.rank:
            tile = Val(spread(tile, space.all_axes(), space.padded), tile.dtype, space.all_axes())
        axis = space.axis_of(vars_[contracted].id)
        if axis is not None:
            tile = without_padding(state, axis, tile, _zero(tile))
        tile = _as_matrix(state, tile, vars_)
        if axis is None:
            # One product a sum: the others are of zeros.
            lane = state.iota(32 if tile.dtype.bits == 8 else 16, 2 + contracted, 2)
            tile = where(infix("==", Val(lane, INT32), 0), tile, _zero(tile))
    return tile


def _zero(tile: Val) -> Val:
    return strict(number(0 if tile.dtype.is_integer else 0.0, tile.dtype))


def _as_matrix(state: LaunchState, tile: Val, vars_: Sequence[Var]) -> Val:
    """The tile with a dimension of extent 1 where the matrix has one."""
    present = [state.space.axis_of(v.id) is not None for v in vars_]
    if all(present):
        return tile
    if not any(present):
        return Val(f"tl.full((1, 1), {tile.text}, {text.triton_type(tile.dtype)})", tile.dtype)
    return Val(tile.at(text.ATOM) + subscript(present), tile.dtype)


def _widened(state: LaunchState, stmt: Gemm, a: Val, b: Val) -> tuple[Val, Val]:
    """Both operands in the narrowest dtype of the tensor cores that holds each exactly."""
    c = stmt.c.dtype
    if c.is_integer and all(str(x.dtype) in ("int8", "uint8") for x in (a, b)):
        return a, b
    is_fp8 = a.dtype.is_fp8
    has_instruction = state.target.supports("gemm", a.dtype) if is_fp8 else a.dtype.bits >= 16
    if a.dtype == b.dtype and a.dtype.is_float and c != "float64" and has_instruction:
        return a, b
    names = ["float16", "bfloat16", "float32", "float64"]
    if c == "float64":  # tl.dot sums other products in fewer bits
        # Triton 3.6 fails on operands that go from 16 bits to 64.
        names = [] if min(a.dtype.bits, b.dtype.bits) < 32 else ["float64"]
    for wide in map(DType, [] if c.is_integer else names):
        if _holds(wide, a.dtype) and _holds(wide, b.dtype) and wide.bits <= c.bits:
            return convert(a, wide), convert(b, wide)
    raise state.unsupported(
        "a gemm of these dtypes has no exact form on this target",
        found=f"{stmt.a.dtype} x {stmt.b.dtype} -> {stmt.c.dtype}",
    )


# Significand bits, largest exponent: a dtype holds another exactly if it has as many of both.
_FORMATS = {
    "float8_e4m3fn": (4, 8), "float8_e5m2": (3, 15), "float16": (11, 15), "bfloat16": (8, 127),
    "float32": (24, 127), "float64": (53, 1023), "tfloat32": (11, 127),
}  # fmt: skip


def _holds(wide: DType, narrow: DType) -> bool:
    if wide == narrow:
        return True
    a, b = _FORMATS.get(str(wide)), _FORMATS.get(str(narrow))
    return a is not None and b is not None and a[0] >= b[0] and a[1] >= b[1]


def _start(state: LaunchState, stmt: Gemm, vars_: Sequence[Var], acc: DType) -> Val | None:
    """What the products are added to; None for zero."""
    clear = const_value(stmt.clear)
    if clear == 1:
        return None
    old = convert(load_region(state, stmt.c, _last_two(stmt.c), vars_), acc)
    old = _as_matrix(state, old, vars_)
    if clear == 0:
        return old
    return where(emit_condition(state, stmt.clear), _zero(old), old)


def _options(state: LaunchState, operand: DType) -> list[str]:
    if operand == "tfloat32":
        return ['input_precision="tf32"']
    if operand == "float32":
        precision = state.options.get("tl.gemm_f32_precision", "tf32").strip("'\"")
        return [f'input_precision="{precision}"']
    if operand.is_fp8:
        # Hopper sums fp8 products in fewer bits unless told to add into float32 each time.
        return ["max_num_imprecise_acc=0"]
    return []

"""Owns elements that share a byte: two tiles of halves laid side by side, or a shift a lane."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.text import Val, infix
from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Call, Expr, Load, Var
from tileops.ir.walk import substitute, walk_expr
from tileops.passes.analyze_index import affine
from tileops.passes.packed_types import half, parity

_INT32 = DType("int32")
_BYTE = DType("uint8")
Emit = Callable[[Context, Expr], Val]


def emit_nibble(ctx: Context, expr: Call, emit: Emit) -> Val:
    """The halves of bytes that hold the elements ``k`` of ``nibble(byte, k)``, one a lane."""
    joined = _joined(ctx, expr, emit)
    if joined is not None:
        return joined
    byte, k = emit(ctx, expr.args[0]), emit(ctx, expr.args[1])
    one, four = Val("1", _INT32, static=True), Val("4", _INT32, static=True)
    odd = infix("&", text.BIT_AND, k, one, _INT32)
    shift = text.convert(infix("*", text.PRODUCT, odd, four, _INT32), _BYTE)
    moved = infix(">>", text.SHIFT, byte, shift, _BYTE)
    return infix("&", text.BIT_AND, moved, Val("15", _BYTE, static=True), _BYTE)


def _joined(ctx: Context, expr: Call, emit: Emit) -> Val | None:
    """Each byte loaded once: its low half in one lane, its high half in the next.

    None where the lanes of the last axis do not walk through the bytes in order.
    """
    load, k = expr.args
    space = ctx.space
    if not isinstance(load, Load) or not space.rank:
        return None
    var, extent, padded = space.vars[-1], space.extents[-1], space.padded[-1]
    parts = affine(k, (var.id,))
    if parts is None or parts.coefficient(var.id) != 1 or parity(parts.rest, ()) != 0:
        return None
    if extent % 2 or extent == 2 or 2 * ctx.padding(extent // 2) != padded:
        return None
    if _varies(ctx, (*load.indices[:-1], parts.rest)):
        return None
    mask = ctx.scope.mask
    if mask is not None and space.rank - 1 in mask.axes:
        return None
    (pair,) = ctx.synthetic_vars(1)
    place = half(substitute(k, {var.id: fold.mul(pair, fold.const(2))}), ())
    with ctx.over((*space.vars[:-1], pair), (*space.extents[:-1], extent // 2)):
        bytes_ = emit(ctx, Load(load.dtype, load.buffer, (*load.indices[:-1], place)))
        axes = bytes_.axes
        bytes_ = ctx.temporary("packed", bytes_)
    halves = f"tl.join({bytes_.text} & 15, {bytes_.text} >> 4)"
    return Val(f"tl.reshape({halves}, {shape_text(space.shape(axes))})", _BYTE, axes)


def _varies(ctx: Context, exprs: Iterable[Expr]) -> bool:
    """True if an expression may differ along the last axis of the space."""
    last = ctx.space.rank - 1
    for expr in exprs:
        for e in walk_expr(expr):
            if isinstance(e, Load):
                return True
            if isinstance(e, Var) and e.id in ctx.vars and last in ctx.vars[e.id].axes:
                return True
    return False

"""Arithmetic on 8-bit floats: done in float32, each result rounded once.

No GPU adds or multiplies them, and LLVM does not either. float32 holds each value, and a result
rounded to it rounds to 8 bits as the exact one would: it has more than twice the bits. Afterwards
an expression of such a dtype is an element, a variable, a constant, a conversion, a choice or a bit
cast, and nothing compares two of them.
"""

from __future__ import annotations

import dataclasses
import math

from tileops.dtypes import FLOAT32, UINT8, DType
from tileops.ir import fold
from tileops.ir.expr import Binary, Call, Cast, Const, Expr, Unary
from tileops.ir.program import Program
from tileops.ir.walk import map_body_exprs, map_children, map_launches
from tileops.passes.context import Context

# What has infinities keeps them only where nothing converts to it: conversions saturate.
_INFINITE = DType("float8_e5m2")


def round_fp8(program: Program, context: Context) -> Program:
    """``program`` without arithmetic on 8-bit floats."""
    return map_launches(program, lambda launch: map_body_exprs(launch.body, _rounded))


def _rounded(expr: Expr) -> Expr:
    if isinstance(expr, Const) and expr.dtype == _INFINITE and math.isinf(expr.value):
        return Call(expr.dtype, "reinterpret", (Const(UINT8, 0x7C if expr.value > 0 else 0xFC),))
    expr = map_children(expr, _rounded)
    match expr:
        case Call(name="reinterpret"):
            return expr
        case Binary(op="min" | "max") if expr.dtype == _INFINITE:
            return _extreme(expr)
        case Unary(op="neg", a=a) if expr.dtype == _INFINITE:
            return _with_bits("xor", a, 0x80)
        case Call(name="abs", args=(a,)) if expr.dtype == _INFINITE:
            return _with_bits("and", a, 0x7F)
        case Call(name="copysign", args=(a, b)) if expr.dtype == _INFINITE == b.dtype:
            magnitude, sign = _bits("and", a, 0x7F), _bits("and", b, 0x80)
            return Call(a.dtype, "reinterpret", (fold.binary("or", magnitude, sign),))
        case Binary(a=a, b=b) if _is_fp8(a) or _is_fp8(b):
            return _in_float32(expr, dataclasses.replace(expr, a=_wide(a), b=_wide(b)))
        case Unary(a=a) if _is_fp8(a):
            return _in_float32(expr, dataclasses.replace(expr, a=_wide(a)))
        case Call(args=args) if any(map(_is_fp8, args)):
            return _in_float32(expr, dataclasses.replace(expr, args=tuple(map(_wide, args))))
        case _:
            return expr


def _is_fp8(expr: Expr) -> bool:
    """True for the 8-bit floats but float8_e8m0fnu, whose arithmetic is that of its encoding."""
    return str(expr.dtype) in ("float8_e4m3fn", "float8_e5m2")


def _extreme(expr: Binary) -> Expr:
    """The operand that is larger, or smaller, or not NaN."""
    op = "gt" if expr.op == "max" else "lt"
    b = _wide(expr.b)
    first = fold.binary("lor", fold.binary(op, _wide(expr.a), b), fold.binary("ne", b, b))
    return fold.select(first, expr.a, expr.b)


def _with_bits(op: str, a: Expr, mask: int) -> Expr:
    return Call(a.dtype, "reinterpret", (_bits(op, a, mask),))


def _bits(op: str, a: Expr, mask: int) -> Expr:
    return fold.binary(op, Call(UINT8, "reinterpret", (a,)), Const(UINT8, mask))


def _wide(expr: Expr) -> Expr:
    return fold.cast(expr, FLOAT32) if _is_fp8(expr) else expr


def _in_float32(old: Expr, new: Expr) -> Expr:
    """``new``, whose operands are float32, with a result of the dtype of ``old``."""
    if not _is_fp8(old):
        return new
    return Cast(old.dtype, dataclasses.replace(new, dtype=FLOAT32))

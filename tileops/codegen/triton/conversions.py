"""Conversions that are rounded once where a GPU's own instructions would round twice."""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.text import Val
from tileops.dtypes import DType

_FLOAT16 = DType("float16")
_FLOAT32 = DType("float32")
_FLOAT64 = DType("float64")
# CUDA's conversions to float32 that round towards zero.
_TOWARDS_ZERO = {
    "float64": "double2float_rz",
    "int32": "int2float_rz",
    "uint32": "uint2float_rz",
    "int64": "ll2float_rz",
    "uint64": "ull2float_rz",
}


def converted(ctx: Context, a: Val, dtype: DType) -> Val:
    """``a`` converted to ``dtype`` with one rounding."""
    if dtype.is_fp8 and not a.dtype.is_fp8:
        return text.convert(_before_fp8(ctx, a), dtype)
    if dtype == "bfloat16" and a.dtype.is_integer and a.dtype.bits >= 32 and not _has_bf16(ctx):
        a = odd_float32(ctx, a)
    return text.convert(a, dtype)


def _has_bf16(ctx: Context) -> bool:
    """True where an instruction makes bfloat16 of an integer; elsewhere LLVM goes by float32."""
    return ctx.target.kind == "cuda" and ctx.target.capability >= 90


def _before_fp8(ctx: Context, a: Val) -> Val:
    """What is converted to an 8-bit float in place of ``a``.

    Integers that float32 does not hold are far beyond the range of these, which saturate.
    """
    if a.dtype == "float64":
        a = _odd(ctx, a) if ctx.target.kind == "cuda" else odd_float32(ctx, a)
    if ctx.target.kind == "cuda" and ctx.target.capability == 89 and a.dtype != "float16":
        # Triton 3.6 goes by float16 there, cut towards zero.
        wide = text.typed(text.convert(a, _FLOAT32))
        return text.call(ctx.helper("odd_float16"), wide, dtype=_FLOAT16)
    return a


def chosen(ctx: Context, a: Val, dtype: DType) -> Val:
    """``a``, which holds a value of ``dtype``, as that: float8_e5m2 keeps its infinities."""
    if dtype != "float8_e5m2" or a.dtype == dtype:
        return text.convert(a, dtype)
    return text.call(ctx.helper("e5m2_chosen"), a, dtype=dtype)


def odd_float32(ctx: Context, a: Val) -> Val:
    """A float64 or an integer of at least 32 bits as float32 rounded to odd.

    The value itself where float32 holds it, else the neighbour whose last bit is set. A narrower
    float nearest to it is then the one nearest to ``a``.
    """
    a = text.typed(a)
    if ctx.target.kind == "cuda":
        found = _odd(ctx, a)
        if a.dtype == "float64":
            return text.call(ctx.helper("with_subnormals"), a, found, dtype=_FLOAT32)
        return found
    if a.dtype.is_integer:
        kind, wide = ("signed", "int64") if a.dtype.is_signed else ("unsigned", "uint64")
        a = text.convert(a, DType(wide))
        a = text.call(ctx.helper(f"{kind}_odd_float64"), a, dtype=_FLOAT64)
    return text.call(ctx.helper("odd_float32"), a, dtype=_FLOAT32)


def _odd(ctx: Context, a: Val) -> Val:
    """``odd_float32`` by CUDA's functions, of which float64's makes no subnormal numbers."""
    ctx.helpers.add("libdevice")
    a = text.typed(a)
    cut = text.call(f"libdevice.{_TOWARDS_ZERO[str(a.dtype)]}", a, dtype=_FLOAT32)
    return text.call(ctx.helper("odd"), a, cut, dtype=_FLOAT32)

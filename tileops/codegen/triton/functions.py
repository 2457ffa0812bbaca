"""Owns math functions: which Triton or libdevice form computes each, and in which dtype."""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import odd_float32
from tileops.codegen.triton.text import Val, convert, infix
from tileops.dtypes import DType
from tileops.ir.expr import Call

_FLOAT32 = DType("float32")
_BOOL = DType("bool")

# Functions of tl that are as accurate as CUDA's own: exp2 is one instruction with 2 units in the
# last place, the rounded forms are exact, log and erf call libdevice underneath.
_TRITON = {
    "exp2": "tl.exp2",
    "log": "tl.log",
    "log2": "tl.log2",
    "sqrt": "tl.sqrt_rn",
    "rsqrt": "tl.rsqrt",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "erf": "tl.erf",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
    "fma": "tl.fma",
}
_FAST = {"exp": "tl.exp", "sqrt": "tl.sqrt"}
# tl.exp is exp2 of a rounded product: its error grows with the argument, libdevice's does not.
_LIBDEVICE = {
    "exp": "exp",
    "exp10": "exp10",
    "log10": "log10",
    "log1p": "log1p",
    "tan": "tan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "atan2": "atan2",
    "pow": "pow",
    "trunc": "trunc",
    "nearbyint": "rint",
    "round": "round",
    "copysign": "copysign",
}
_ROUNDED_OPS = ("add", "sub", "mul", "div", "fma", "sqrt", "rsqrt")
_INTEGER = {"popcount": "popc", "clz": "clz"}


def emit_call(ctx: Context, expr: Call, args: list[Val]) -> Val:
    """A function of MATH_FUNCTIONS applied to ``args``."""
    name, first = expr.name, args[0]
    if name == "reinterpret":
        return _reinterpret(first, expr.dtype)
    if name == "odd_float32":
        return odd_float32(ctx, first)
    if name.startswith(("e4m3_", "e5m2_")):
        return text.call(ctx.helper(name), text.typed(first), dtype=expr.dtype)
    if name in ("isnan", "isinf", "isfinite"):
        return _classify(ctx, name, first)
    if name in _INTEGER:
        return _bits(ctx, name, first, expr.dtype)
    if name == "abs":
        return text.call("tl.abs", _tensor(first), dtype=expr.dtype)
    if name == "pow" and expr.dtype.is_integer:
        raise ctx.unsupported("integer power is not supported here; multiply, or cast to a float")
    # Narrow floats are computed in float32 and rounded once.
    work = expr.dtype if expr.dtype.bits >= 32 else _FLOAT32
    args = [_tensor(convert(a, work)) for a in args]
    if name == "sigmoid":
        result = _sigmoid(ctx, args[0], work)
    else:
        result = text.call(_form(ctx, name, work), *args, dtype=work)
    return convert(result, expr.dtype)


def _form(ctx: Context, name: str, work: DType) -> str:
    fast = ctx.is_on("tl.enable_fast_math")
    if fast and name in _FAST:
        return _FAST[name]
    if name in _TRITON:
        if name == "sqrt" and work != "float32":
            return "tl.sqrt"
        return _TRITON[name]
    if name in _LIBDEVICE:
        ctx.helpers.add("libdevice")
        return f"libdevice.{_LIBDEVICE[name]}"
    if name.rpartition("_")[0] in _ROUNDED_OPS and ctx.target.kind == "cuda":
        ctx.helpers.add("libdevice")
        return f"libdevice.{name}"
    raise ctx.unsupported(f"the function `{name}` is not supported by the Triton path")


def _tensor(a: Val) -> Val:
    return text.typed(a) if a.static else a


def _sigmoid(ctx: Context, a: Val, work: DType) -> Val:
    negative = Val(f"-{a.at(text.UNARY)}", work, a.axes, text.UNARY)
    exp = text.call(_form(ctx, "exp", work), negative, dtype=work)
    one = Val("1.0", work, static=True)
    total = infix("+", text.SUM, one, exp, work)
    if work == "float32":
        return text.call("tl.div_rn", text.typed(one), total, dtype=work)
    return infix("/", text.PRODUCT, one, total, work)


def _reinterpret(a: Val, dtype: DType) -> Val:
    if a.dtype == dtype:
        return a
    a = _tensor(a)
    return Val(f"{a.at(text.ATOM)}.to({text.triton_type(dtype)}, bitcast=True)", dtype, a.axes)


def _classify(ctx: Context, name: str, a: Val) -> Val:
    if a.prec != text.ATOM:
        a = ctx.temporary("x", a)
    if name == "isnan":
        return infix("!=", text.COMPARE, a, a, _BOOL)
    magnitude = text.call(
        "tl.abs", _tensor(convert(a, _FLOAT32 if a.dtype.bits < 32 else a.dtype)), dtype=a.dtype
    )
    infinity = Val('float("inf")', a.dtype, static=True)
    return infix("==" if name == "isinf" else "<", text.COMPARE, magnitude, infinity, _BOOL)


def _bits(ctx: Context, name: str, a: Val, dtype: DType) -> Val:
    ctx.helpers.add("libdevice")
    work = DType("int64") if a.dtype.bits == 64 else DType("int32")
    unsigned = DType(f"uint{a.dtype.bits}")
    widened = convert(_reinterpret(a, unsigned), DType(f"u{work}"))
    widened = _reinterpret(widened, work)
    suffix = "ll" if work.bits == 64 else ""
    result = text.call(f"libdevice.{_INTEGER[name]}{suffix}", widened, dtype=DType("int32"))
    if name == "clz" and a.dtype.bits < 32:
        lead = Val(str(32 - a.dtype.bits), DType("int32"), static=True)
        result = infix("-", text.SUM, result, lead, DType("int32"))
    return convert(result, dtype)

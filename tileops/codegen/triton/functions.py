"""Math functions and conversions: which Triton or libdevice form computes each, in which dtype."""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, call, convert, infix, number, typed
from tileops.dtypes import FLOAT16, FLOAT32, FLOAT64, INT32, INT64, DType
from tileops.ir.expr import Call
from tileops.ir.operators import FLOAT_FUNCTIONS

# Functions of tl that are as accurate as CUDA's own: exp2 is one instruction with 2 units in the
# last place, the rounded forms are exact, log and erf call libdevice underneath.
_TRITON = ("exp2", "log", "log2", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "fma")
# tl.exp is exp2 of a rounded product: its error grows with the argument, libdevice's does not.
_FAST = {"exp": "tl.exp", "sqrt": "tl.sqrt"}
_ROUNDED_OPS = ("add", "sub", "mul", "div", "fma", "sqrt", "rsqrt")
_BITS = {"popcount": "popc", "clz": "clz"}
# CUDA's conversions to float32 that round towards zero.
_TOWARDS_ZERO = {
    "float64": "double2float_rz",
    "int32": "int2float_rz",
    "uint32": "uint2float_rz",
    "int64": "ll2float_rz",
    "uint64": "ull2float_rz",
}


def emit_call(state: LaunchState, expr: Call, args: list[Val]) -> Val:
    """A function of MATH_FUNCTIONS applied to ``args``."""
    name, first = expr.name, args[0]
    match name:
        case "reinterpret":
            return _reinterpret(first, expr.dtype)
        case "odd_float32":
            return odd_float32(state, first)
        case "isnan" | "isinf" | "isfinite":
            return _classify(state, name, first)
        case "popcount" | "clz":
            return _count_bits(state, name, first, expr.dtype)
        case "abs":
            return call("tl.abs", typed(first), dtype=expr.dtype)
        case "pow" if expr.dtype.is_integer:
            raise state.unsupported(
                "integer power is not supported here; multiply, or cast to a float"
            )
        case _ if name.startswith(("e4m3_", "e5m2_")):
            return call(state.helper(name), typed(first), dtype=expr.dtype)
    # Narrow floats are computed in float32 and rounded once.
    work = expr.dtype if expr.dtype.bits >= 32 else FLOAT32
    args = [typed(convert(a, work)) for a in args]
    if name == "sigmoid":
        return convert(_sigmoid(state, args[0]), expr.dtype)
    return convert(call(_form(state, name, work), *args), expr.dtype)


def _form(state: LaunchState, name: str, work: DType) -> str:
    if name in _FAST and state.is_on("tl.enable_fast_math"):
        return _FAST[name]
    if name == "sqrt":
        return "tl.sqrt_rn" if work == "float32" else "tl.sqrt"
    if name in _TRITON:
        return f"tl.{name}"
    if name == "nearbyint":
        return libdevice(state, "rint")
    is_rounded = name.rpartition("_")[0] in _ROUNDED_OPS and state.target.kind == "cuda"
    if is_rounded or name in FLOAT_FUNCTIONS:
        return libdevice(state, name)
    raise state.unsupported(f"the function `{name}` is not supported by the Triton path")


def libdevice(state: LaunchState, name: str) -> str:
    """Note that the kernel calls a function of libdevice and return its name in the text."""
    state.helpers.add("libdevice")
    return f"libdevice.{name}"


def _sigmoid(state: LaunchState, a: Val) -> Val:
    negative, one = Val(f"-{a.at(text.UNARY)}", a.dtype, a.axes), number(1.0, a.dtype)
    total = infix("+", one, call(_form(state, "exp", a.dtype), negative))
    if a.dtype == "float32":
        return call("tl.div_rn", typed(one), total)
    return infix("/", one, total)


def _reinterpret(a: Val, dtype: DType) -> Val:
    if a.dtype == dtype:
        return a
    a = typed(a)
    return Val(f"{a.at(text.ATOM)}.to({text.triton_type(dtype)}, bitcast=True)", dtype, a.axes)


def _classify(state: LaunchState, name: str, a: Val) -> Val:
    if a.prec != text.ATOM:
        a = state.temporary("x", a)
    if name == "isnan":
        return infix("!=", a, a)
    magnitude = call("tl.abs", typed(convert(a, FLOAT32 if a.dtype.bits < 32 else a.dtype)))
    infinity = Val('float("inf")', a.dtype, static=True)
    return infix("==" if name == "isinf" else "<", magnitude, infinity)


def _count_bits(state: LaunchState, name: str, a: Val, dtype: DType) -> Val:
    work = INT64 if a.dtype.bits == 64 else INT32
    widened = convert(_reinterpret(a, DType(f"uint{a.dtype.bits}")), DType(f"u{work}"))
    function = _BITS[name] + ("ll" if work == INT64 else "")
    result = call(libdevice(state, function), _reinterpret(widened, work), dtype=INT32)
    if name == "clz" and a.dtype.bits < 32:
        result = infix("-", result, 32 - a.dtype.bits)
    return convert(result, dtype)


# -- conversions that are rounded once where a GPU's own instructions would round twice ------------
def converted(state: LaunchState, a: Val, dtype: DType) -> Val:
    """``a`` converted to ``dtype`` with one rounding."""
    if dtype.is_fp8 and not a.dtype.is_fp8:
        return convert(_before_fp8(state, a), dtype)
    # From sm_90 on an instruction makes bfloat16 of an integer; elsewhere LLVM goes by float32.
    has_bf16 = state.target.kind == "cuda" and state.target.capability >= 90
    if dtype == "bfloat16" and a.dtype.is_integer and a.dtype.bits >= 32 and not has_bf16:
        a = odd_float32(state, a)
    return convert(a, dtype)


def _before_fp8(state: LaunchState, a: Val) -> Val:
    """What is converted to an 8-bit float in place of ``a``."""
    # Conversions saturate, and integers that float32 does not hold are far out of range.
    if a.dtype == "float64":
        a = _odd(state, a) if state.target.kind == "cuda" else odd_float32(state, a)
    if state.target.kind == "cuda" and state.target.capability == 89 and a.dtype != "float16":
        # Triton 3.6 goes by float16 there, cut towards zero.
        return call(state.helper("odd_float16"), typed(convert(a, FLOAT32)), dtype=FLOAT16)
    return a


def chosen(state: LaunchState, a: Val, dtype: DType) -> Val:
    """``a``, a value of ``dtype`` in a wider one, as ``dtype``; infinities of float8_e5m2 stay."""
    if dtype != "float8_e5m2" or a.dtype == dtype:
        return convert(a, dtype)
    return call(state.helper("e5m2_chosen"), a, dtype=dtype)


def odd_float32(state: LaunchState, a: Val) -> Val:
    """A float64 or an integer of at least 32 bits as float32 rounded to odd.

    That rounds to a narrower float as ``a`` does: what is not exact has its last bit set.
    """
    a = typed(a)
    if state.target.kind == "cuda":
        found = _odd(state, a)
        if a.dtype == "float64":
            return call(state.helper("with_subnormals"), a, found, dtype=FLOAT32)
        return found
    if a.dtype.is_integer:
        kind, wide = ("signed", "int64") if a.dtype.is_signed else ("unsigned", "uint64")
        a = call(state.helper(f"{kind}_odd_float64"), convert(a, DType(wide)), dtype=FLOAT64)
    return call(state.helper("odd_float32"), a, dtype=FLOAT32)


def _odd(state: LaunchState, a: Val) -> Val:
    """``odd_float32`` by CUDA's functions; the one for float64 makes no subnormal numbers."""
    a = typed(a)
    cut = call(libdevice(state, _TOWARDS_ZERO[str(a.dtype)]), a, dtype=FLOAT32)
    return call(state.helper("odd"), a, cut, dtype=FLOAT32)

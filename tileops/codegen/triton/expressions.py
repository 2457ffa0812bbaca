"""Owns expressions.

IR scalars, evaluated for every lane of the current space at once, as Triton text.
"""

from __future__ import annotations

from tileops.codegen.triton import text
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.functions import emit_call
from tileops.codegen.triton.packed import emit_nibble
from tileops.codegen.triton.text import Val, convert, infix
from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    HostAttr,
    Load,
    Select,
    Unary,
    Var,
)
from tileops.ir.walk import walk_expr
from tileops.passes.round_up import cheap_ceildiv

_BOOL = DType("bool")
_FLOAT32 = DType("float32")

_INFIX = {
    "add": ("+", text.SUM),
    "sub": ("-", text.SUM),
    "mul": ("*", text.PRODUCT),
    "and": ("&", text.BIT_AND),
    "or": ("|", text.BIT_OR),
    "xor": ("^", text.BIT_XOR),
    "shl": ("<<", text.SHIFT),
    "shr": (">>", text.SHIFT),
    "eq": ("==", text.COMPARE),
    "ne": ("!=", text.COMPARE),
    "lt": ("<", text.COMPARE),
    "le": ("<=", text.COMPARE),
    "gt": (">", text.COMPARE),
    "ge": (">=", text.COMPARE),
    "land": ("&", text.BIT_AND),
    "lor": ("|", text.BIT_OR),
}
_UNSIGNED_DIVISIONS = {
    "floordiv": "unsigned_div",
    "truncdiv": "unsigned_div",
    "ceildiv": "unsigned_ceildiv",
    "floormod": "unsigned_mod",
    "truncmod": "unsigned_mod",
}


def emit_expr(ctx: Context, expr: Expr) -> Val:
    """The value of ``expr`` in the current space."""
    match expr:
        case Const():
            return text.literal(expr)
        case Var():
            return _variable(ctx, expr)
        case HostAttr():
            return ctx.params.host(expr)
        case Binary():
            return _binary(ctx, expr)
        case Unary():
            return _unary(ctx, expr)
        case Cast(dtype=dtype, a=a):
            return converted(ctx, emit_expr(ctx, a), dtype)
        case Select():
            return _select(ctx, expr)
        case Call(name="nibble"):
            return emit_nibble(ctx, expr, emit_expr)
        case Call():
            return emit_call(ctx, expr, [emit_expr(ctx, a) for a in expr.args])
        case Load():
            return ctx.load_element(ctx, expr)
        case _:
            raise InternalError(f"codegen: unknown expression {type(expr).__name__}")


def _variable(ctx: Context, var: Var) -> Val:
    found = ctx.vars.get(var.id)
    if found is None:
        found = ctx.params.scalar(var)
    if found is None:
        raise InternalError(f"codegen: variable {var.name} has no value here")
    return found


def _binary(ctx: Context, expr: Binary) -> Val:
    cheap = cheap_ceildiv(expr, ctx.scope.ranges) if expr.op == "ceildiv" else None
    if cheap is not None:
        return emit_expr(ctx, cheap)
    a, b = emit_expr(ctx, expr.a), emit_expr(ctx, expr.b)
    if a.static and b.static and not _is_pythons_own(ctx, expr):
        a = text.typed(a)
    dtype = actual_dtype(expr.dtype, a, b)
    if expr.op in ("shl", "shr") and not ctx.scope.ranges.is_inside(expr.b, expr.dtype.bits):
        return _any_shift(ctx, expr.op, a, b, dtype)
    if expr.op in _INFIX:
        symbol, prec = _INFIX[expr.op]
        if expr.op in ("land", "lor"):
            a, b = _as_mask(a), _as_mask(b)
        return infix(symbol, prec, a, b, dtype)
    if expr.op in ("min", "max"):
        return extreme(expr.op, text.strict(a), text.strict(b), dtype)
    return _division(ctx, expr, a, b, dtype)


def _division(ctx: Context, expr: Binary, a: Val, b: Val, dtype: DType) -> Val:
    if expr.op == "div":
        return _divide(ctx, a, b, dtype)
    if dtype.is_float and expr.op in ("truncdiv", "floordiv"):
        return _whole_quotient(ctx, expr.op, a, b, dtype)
    if dtype.is_float:
        return _float_remainder(ctx, expr.op, a, b, dtype)
    if not _divides_safely(ctx, expr.b) or (expr.op == "ceildiv" and not dtype.is_signed):
        return _divide_by_any(ctx, expr.op, a, b, dtype)
    if expr.op in ("truncdiv", "truncmod"):
        return infix("//" if expr.op == "truncdiv" else "%", text.PRODUCT, a, b, dtype)
    if expr.op == "ceildiv":
        return text.call(ctx.helper("ceildiv"), a, b, dtype=dtype)
    return _floor_divide(ctx, expr, a, b, dtype)


def extreme(op: str, a: Val, b: Val, dtype: DType) -> Val:
    """The ``min`` or ``max`` of two values.

    tl.minimum and tl.maximum give the operand that is a number, as CUDA's fmin and fmax.
    """
    found = text.call("tl.minimum" if op == "min" else "tl.maximum", a, b, dtype=dtype)
    if dtype == "bfloat16":  # Triton 3.6 gives it in float32
        return convert(Val(found.text, _FLOAT32, found.axes), dtype)
    return found


def _float_remainder(ctx: Context, op: str, a: Val, b: Val, dtype: DType) -> Val:
    """The exact remainder; ``%`` of floats is off by the quotient's rounding on a GPU."""
    ctx.helpers.add("libdevice")
    work = dtype if dtype.bits >= 32 else _FLOAT32
    a, b = _tensor(convert(a, work)), _tensor(convert(b, work))
    name = "libdevice.fmod" if op == "truncmod" else ctx.helper("floormod_of_floats")
    return convert(text.call(name, a, b, dtype=work), dtype)


def _divides_safely(ctx: Context, divisor: Expr) -> bool:
    """True for an integer that is neither 0 nor -1: LLVM leaves those quotients open.

    A size divides what lies in a tensor of that size; where it is 0, nothing does.
    """
    if ctx.scope.ranges.of(divisor).is_beside(-1, 0):
        return True
    inputs = [e for e in walk_expr(divisor) if isinstance(e, Var | Load | Call)]
    return bool(inputs) and all(isinstance(e, Var) and ctx.params.is_size(e) for e in inputs)


def _divide_by_any(ctx: Context, op: str, a: Val, b: Val, dtype: DType) -> Val:
    """A quotient or remainder whose divisor may be 0 or -1, with the results of the CPU path."""
    if not dtype.is_signed:
        op = _UNSIGNED_DIVISIONS[op]
    a, b = (text.typed(convert(v, dtype)) for v in (a, b))
    return text.call(ctx.helper(f"{op}_by_any"), a, b, dtype=dtype)


def _any_shift(ctx: Context, op: str, a: Val, b: Val, dtype: DType) -> Val:
    """A shift whose count may be the width or more, or negative: LLVM leaves its result open."""
    kind = "unsigned_" if op == "shr" and not dtype.is_signed else ""
    return text.call(ctx.helper(f"{kind}{op}"), text.typed(a), text.typed(b), dtype=dtype)


def _is_pythons_own(ctx: Context, expr: Binary) -> bool:
    """True where Python's numbers, by which Triton computes static values, give the dtype's."""
    ranges = ctx.scope.ranges
    if expr.op in ("add", "sub", "mul"):
        return expr.dtype.is_integer and not ranges.wraps(expr)
    if expr.op in ("truncdiv", "truncmod"):
        return ranges.is_non_negative(expr.a) and ranges.is_non_negative(expr.b)
    return expr.op not in ("shl", "ceildiv")


def actual_dtype(dtype: DType, a: Val, b: Val) -> DType:
    """The dtype that the text really has: 64-bit where a size or block number is (``index64``)."""
    wide = DType("int64")
    return wide if dtype == "int32" and wide in (a.dtype, b.dtype) else dtype


def _as_mask(a: Val) -> Val:
    return a if a.dtype.is_bool else convert(a, _BOOL)


def _divide(ctx: Context, a: Val, b: Val, dtype: DType) -> Val:
    if dtype == "float32" and not ctx.is_on("tl.enable_fast_math"):
        # `/` on float32 is accurate to 2 units in the last place; div_rn rounds correctly.
        return text.call("tl.div_rn", _tensor(a), b, dtype=dtype)
    if dtype.bits < 32:  # Triton leaves the quotient of narrow floats in float32
        return convert(_divide(ctx, convert(a, _FLOAT32), convert(b, _FLOAT32), _FLOAT32), dtype)
    return infix("/", text.PRODUCT, a, b, dtype)


def _whole_quotient(ctx: Context, op: str, a: Val, b: Val, dtype: DType) -> Val:
    """The quotient of floats, rounded to an integer; Triton's ``//`` takes integers alone."""
    work = dtype if dtype.bits >= 32 else DType("float32")
    quotient = _tensor(_divide(ctx, convert(a, work), convert(b, work), work))
    if op == "floordiv":
        return convert(text.call("tl.floor", quotient, dtype=work), dtype)
    ctx.helpers.add("libdevice")
    return convert(text.call("libdevice.trunc", quotient, dtype=work), dtype)


def _tensor(a: Val) -> Val:
    return text.typed(a) if a.static else a


def _floor_divide(ctx: Context, expr: Binary, a: Val, b: Val, dtype: DType) -> Val:
    """Triton's ``//`` and ``%`` round towards zero.

    So they serve only where no operand is negative.
    """
    symbol = "//" if expr.op == "floordiv" else "%"
    ranges = ctx.scope.ranges
    if not expr.dtype.is_signed or (a.static and b.static):
        return infix(symbol, text.PRODUCT, a, b, dtype)
    if ranges.is_non_negative(expr.a) and ranges.is_non_negative(expr.b):
        return infix(symbol, text.PRODUCT, a, b, dtype)
    divisor = expr.b.value if isinstance(expr.b, Const) else 0
    if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
        # Arithmetic shift and mask are floor division by a power of two.
        if expr.op == "floordiv":
            amount = Val(str(divisor.bit_length() - 1), dtype, static=True)
            return infix(">>", text.SHIFT, a, amount, dtype)
        return infix("&", text.BIT_AND, a, Val(str(divisor - 1), dtype, static=True), dtype)
    return text.call(ctx.helper(expr.op), a, b, dtype=dtype)


def _unary(ctx: Context, expr: Unary) -> Val:
    a = emit_expr(ctx, expr.a)
    if expr.op == "neg":
        if a.dtype.is_float and not a.static:
            # Triton's -x is 0 - x, which makes the negative of 0.0 positive.
            return infix(
                "*", text.PRODUCT, a, Val("-1.0", a.dtype, static=True, prec=text.UNARY), a.dtype
            )
        return Val(f"-{a.at(text.UNARY)}", a.dtype, a.axes, text.UNARY, a.static)
    if expr.op == "not" or (expr.op == "invert" and a.dtype.is_bool):
        a = _as_mask(a)
        return Val(f"{a.at(text.BIT_OR)} == 0", _BOOL, a.axes, text.COMPARE, a.static)
    return Val(f"~{a.at(text.UNARY)}", a.dtype, a.axes, text.UNARY, a.static)


def _select(ctx: Context, expr: Select) -> Val:
    cond = _as_mask(emit_expr(ctx, expr.cond))
    if _reads_memory(ctx, expr.a) or _reads_memory(ctx, expr.b):
        # The branch not taken must not read memory: its loads are masked by the condition.
        if cond.prec != text.ATOM:
            cond = ctx.temporary("cond", cond)
        with ctx.nested(mask=both(ctx.scope.mask, cond)):
            a = emit_expr(ctx, expr.a)
        with ctx.nested(mask=both(ctx.scope.mask, inverted(cond))):
            b = emit_expr(ctx, expr.b)
    else:
        a, b = emit_expr(ctx, expr.a), emit_expr(ctx, expr.b)
    if a.static and b.static:
        a = text.typed(a)
    dtype = actual_dtype(expr.dtype, a, b)
    return text.call("tl.where", cond, text.strict(a), text.strict(b), dtype=dtype)


def _reads_memory(ctx: Context, expr: Expr) -> bool:
    found = (e.buffer for e in walk_expr(expr) if isinstance(e, Load))
    return any(not b.is_on_chip or ctx.memory.holds(b) for b in found)


def both(a: Val | None, b: Val | None) -> Val | None:
    """The conjunction of two masks; None stands for true."""
    if a is None or b is None:
        return b if a is None else a
    return infix("&", text.BIT_AND, a, b, _BOOL)


def inverted(a: Val) -> Val:
    """The complement of a mask."""
    return Val(f"{a.at(text.BIT_OR)} == 0", _BOOL, a.axes, text.COMPARE, a.static)


def emit_condition(ctx: Context, expr: Expr) -> Val:
    """``expr`` as a bool."""
    return _as_mask(emit_expr(ctx, expr))

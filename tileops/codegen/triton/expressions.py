"""Expressions: IR scalars, evaluated for every lane of the current space at once, as text."""

from __future__ import annotations

import math

from tileops.codegen.triton import nibbles, text
from tileops.codegen.triton.functions import converted, emit_call, libdevice
from tileops.codegen.triton.quotients import PACK
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, call, convert, infix, strict, typed
from tileops.dtypes import BOOL, FLOAT32, INT64, DType
from tileops.errors import InternalError
from tileops.ir.expr import Binary, Call, Cast, Const, Expr, HostAttr, Load, Select, Unary, Var
from tileops.ir.operators import INTEGER_DIVISIONS, LOGICAL, SYMBOLS
from tileops.ir.walk import walk_expr
from tileops.passes.analyze_index import cheap_ceildiv


def emit_expr(state: LaunchState, expr: Expr) -> Val:
    """The value of ``expr`` in the current space."""
    match expr:
        case Const():
            return text.literal(expr)
        case Var():
            found = state.vars.get(expr.id) or state.params.scalar(expr)
            if found is None:
                raise InternalError(f"codegen: variable {expr.name} has no value here")
            return found
        case HostAttr():
            return state.params.host(expr)
        case Binary():
            return _binary(state, expr)
        case Unary():
            return _unary(state, expr)
        case Cast(dtype=dtype, a=a):
            return nibbles.as_floats(state, a, dtype) or converted(
                state, emit_expr(state, a), dtype
            )
        case Select():
            return _select(state, expr)
        case Call(name="nibble"):
            return _nibble(state, expr)
        case Call():
            return emit_call(state, expr, [emit_expr(state, a) for a in expr.args])
        case Load():
            return state.load_element(state, expr)
        case _:
            raise InternalError(f"codegen: unknown expression {type(expr).__name__}")


# -- operators -------------------------------------------------------------------------------------
def _binary(state: LaunchState, expr: Binary) -> Val:
    if expr.op == "ceildiv" and (cheap := cheap_ceildiv(expr, state.scope.ranges)) is not None:
        return emit_expr(state, cheap)
    if (found := nibbles.operation(state, expr)) is not None:
        return found
    a, b = emit_expr(state, expr.a), emit_expr(state, expr.b)
    if a.static and b.static and not _is_pythons_own(state, expr):
        a = typed(a)
    dtype = actual_dtype(expr.dtype, a, b)
    if expr.op in ("shl", "shr") and not state.scope.ranges.is_inside(expr.b, expr.dtype.bits):
        # The count may be the width or more, or negative: LLVM leaves such results open.
        kind = "unsigned_" if expr.op == "shr" and not dtype.is_signed else ""
        return call(state.helper(f"{kind}{expr.op}"), typed(a), typed(b), dtype=dtype)
    if expr.op in LOGICAL:
        return infix("&" if expr.op == "land" else "|", convert(a, BOOL), convert(b, BOOL), dtype)
    if expr.op in ("min", "max"):
        return extreme(expr.op, strict(a), strict(b), dtype)
    if expr.op == "div" or expr.op in INTEGER_DIVISIONS:
        return _division(state, expr, a, b, dtype)
    return infix(SYMBOLS[expr.op], a, b, dtype)


def _is_pythons_own(state: LaunchState, expr: Binary) -> bool:
    """True if static values, which Triton computes as Python's numbers, are the dtype's."""
    ranges = state.scope.ranges
    if expr.op in ("add", "sub", "mul"):
        return expr.dtype.is_integer and not ranges.wraps(expr)
    if expr.op in ("truncdiv", "truncmod"):
        return ranges.is_non_negative(expr.a) and ranges.is_non_negative(expr.b)
    return expr.op not in ("shl", "ceildiv")


def actual_dtype(dtype: DType, a: Val, b: Val) -> DType:
    """The dtype that the text really has: 64-bit where a size or block number is (``index64``)."""
    return INT64 if dtype == "int32" and INT64 in (a.dtype, b.dtype) else dtype


def extreme(op: str, a: Val, b: Val, dtype: DType) -> Val:
    """The ``min`` or ``max`` of two values; of a number and a NaN, the number (as CUDA's fmin)."""
    found = call("tl.minimum" if op == "min" else "tl.maximum", a, b, dtype=dtype)
    if dtype == "bfloat16":  # Triton 3.6 gives it in float32
        return convert(Val(found.text, FLOAT32, found.axes), dtype)
    return found


def _division(state: LaunchState, expr: Binary, a: Val, b: Val, dtype: DType) -> Val:
    if dtype.is_float:
        return _divide_floats(state, expr.op, a, b, dtype)
    if not _divides_safely(state, expr.b) or (expr.op == "ceildiv" and not dtype.is_signed):
        # The divisor may be 0 or -1: the results are those of the CPU path.
        name = expr.op
        if not dtype.is_signed:
            name = f"unsigned_{name.removeprefix('floor').removeprefix('trunc')}"
        a, b = typed(convert(a, dtype)), typed(convert(b, dtype))
        return call(state.helper(f"{name}_by_any"), a, b, dtype=dtype)
    if expr.op in ("truncdiv", "truncmod"):
        return infix("//" if expr.op == "truncdiv" else "%", a, b, dtype)
    if expr.op == "ceildiv":
        return call(state.helper("ceildiv"), a, b, dtype=dtype)
    return _floor_divide(state, expr, a, b, dtype)


def _divides_safely(state: LaunchState, divisor: Expr) -> bool:
    """True for an integer that is neither 0 nor -1: LLVM leaves those quotients open."""
    if state.scope.ranges.of(divisor).is_beside(-1, 0):
        return True
    # A size divides indices of a tensor of that size; if it is 0, there are none.
    inputs = [e for e in walk_expr(divisor) if isinstance(e, Var | Load | Call)]
    return bool(inputs) and all(isinstance(e, Var) and state.params.is_size(e) for e in inputs)


def _floor_divide(state: LaunchState, expr: Binary, a: Val, b: Val, dtype: DType) -> Val:
    """Triton's ``//`` and ``%`` round towards zero: they serve where no operand is negative."""
    symbol = "//" if expr.op == "floordiv" else "%"
    are_counts = all(state.scope.ranges.is_non_negative(e) for e in (expr.a, expr.b))
    if are_counts or not expr.dtype.is_signed or (a.static and b.static):
        return infix(symbol, a, b, dtype)
    divisor = expr.b.value if isinstance(expr.b, Const) else 0
    if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
        # Arithmetic shift and mask are floor division by a power of two.
        if expr.op == "floordiv":
            return infix(">>", a, divisor.bit_length() - 1, dtype)
        return infix("&", a, divisor - 1, dtype)
    return call(state.helper(expr.op), a, b, dtype=dtype)


def _divide_floats(state: LaunchState, op: str, a: Val, b: Val, dtype: DType) -> Val:
    """A quotient, whole or not, or remainder; narrow floats are computed in float32."""
    # ``%`` of floats is off by the quotient's rounding on a GPU, and ``//`` takes integers alone.
    work = dtype if dtype.bits >= 32 else FLOAT32
    a, b = convert(a, work), convert(b, work)
    if op in ("truncmod", "floormod"):
        fmod = libdevice(state, "fmod")
        name = fmod if op == "truncmod" else state.helper("floormod_of_floats")
        return convert(call(name, typed(a), typed(b)), dtype)
    if work == "float32" and not state.is_on("tl.enable_fast_math"):
        # `/` on float32 is accurate to 2 units in the last place; both of these round correctly.
        elements = math.prod(state.space.shape(a.axes))
        is_shared = b.axes < a.axes and state.has_assembly and elements >= PACK
        quotient = (
            call(state.helper("shared_quotient"), a, typed(b))
            if is_shared
            else state.quotient(typed(a), b)
        )
    else:
        quotient = infix("/", a, b)
    if op == "floordiv":
        quotient = call("tl.floor", typed(quotient))
    elif op == "truncdiv":
        quotient = call(libdevice(state, "trunc"), typed(quotient))
    return convert(quotient, dtype)


def _unary(state: LaunchState, expr: Unary) -> Val:
    a = emit_expr(state, expr.a)
    if expr.op == "not" or (expr.op == "invert" and a.dtype.is_bool):
        return inverted(convert(a, BOOL))
    if expr.op == "neg" and a.dtype.is_float and not a.static:
        # Triton's -x is 0 - x, which makes the negative of 0.0 positive.
        return infix("*", a, Val("-1.0", a.dtype, static=True, prec=text.UNARY))
    symbol = "-" if expr.op == "neg" else "~"
    return Val(f"{symbol}{a.at(text.UNARY)}", a.dtype, a.axes, text.UNARY, a.static)


# -- conditions ------------------------------------------------------------------------------------
def _select(state: LaunchState, expr: Select) -> Val:
    cond = emit_condition(state, expr.cond)
    loaded = [e.buffer for side in (expr.a, expr.b) for e in walk_expr(side) if isinstance(e, Load)]
    if any(not b.is_on_chip or state.memory.holds(b) for b in loaded):
        # The branch not taken must not read memory: its loads are masked by the condition.
        if cond.prec != text.ATOM:
            cond = state.temporary("cond", cond)
        with state.nested(mask=both(state.scope.mask, cond)):
            a = emit_expr(state, expr.a)
        with state.nested(mask=both(state.scope.mask, inverted(cond))):
            b = emit_expr(state, expr.b)
    else:
        a, b = emit_expr(state, expr.a), emit_expr(state, expr.b)
    if a.static and b.static:
        a = typed(a)
    return call("tl.where", cond, strict(a), strict(b), dtype=actual_dtype(expr.dtype, a, b))


def both(a: Val | None, b: Val | None) -> Val | None:
    """The conjunction of two masks; None is true."""
    if a is None or b is None:
        return b if a is None else a
    return infix("&", a, b)


def inverted(a: Val) -> Val:
    """The complement of a mask."""
    return Val(f"{a.at(text.BIT_OR)} == 0", BOOL, a.axes, text.COMPARE, a.static)


def emit_condition(state: LaunchState, expr: Expr) -> Val:
    """``expr`` as a bool."""
    return convert(emit_expr(state, expr), BOOL)


def _nibble(state: LaunchState, expr: Call) -> Val:
    """The halves of bytes that hold the elements ``k`` of ``nibble(byte, k)``, one a lane."""
    if (read := nibbles.packed(state, expr)) is not None:
        return nibbles.numbers(state, read)
    byte, k = (emit_expr(state, a) for a in expr.args)
    return nibbles.half(byte, k)

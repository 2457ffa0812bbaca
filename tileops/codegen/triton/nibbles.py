"""Numbers of four bits, two in a byte: each byte is read once for the two lanes that share it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tileops.codegen.kernel_code import NIBBLES
from tileops.codegen.triton.space import shape_text
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.text import Val, convert, infix
from tileops.dtypes import INT32, UINT8, DType
from tileops.ir import fold
from tileops.ir.expr import Binary, Call, Cast, Const, Expr, Load, Var
from tileops.ir.program import const_value
from tileops.ir.walk import substitute, walk_expr
from tileops.passes.analyze_index import affine, parity
from tileops.passes.analyze_index import half as half_of

# Of each dtype that numbers become: the bits of 2^m whose last place is 1, and those of 1.
_FORMS = {"float16": ("f16", 0x6400, 0x3C00), "bfloat16": ("bf16", 0x4300, 0x3F80)}
# Bytes that one piece of assembly converts; Triton refuses tiles of fewer.
_BYTES = 4
# What a number may be lessened by: sums with it, and their difference, are exact in both dtypes.
_MOST_LESS = 127


def half(byte: Val, k: Val) -> Val:
    """The half of ``byte`` that holds element ``k``."""
    odd = infix("&", k, 1, INT32)
    shift = convert(infix("*", odd, 4), UINT8)
    return infix("&", infix(">>", byte, shift, UINT8), 15)


def operation(state: LaunchState, expr: Binary) -> Val | None:
    """The value of an operation that picks numbers or takes a constant from them as floats.

    None for any other.
    """
    match expr:
        case Binary(op="and") if (read := packed(state, expr)) is not None:
            return convert(numbers(state, read), expr.dtype)
        case Binary(op="sub", a=Cast(dtype=dtype, a=a), b=Const(value=less)):
            if dtype.is_float and less in range(_MOST_LESS + 1):
                return as_floats(state, a, dtype, int(less))
    return None


def numbers(state: LaunchState, read: Val) -> Val:
    """The numbers of the bytes ``read``, one a lane."""
    halves = f"tl.join({read.text} & 15, {read.text} >> 4)"
    return _spread(state, halves, UINT8, read)


def as_floats(state: LaunchState, expr: Expr, dtype: DType, less: int = 0) -> Val | None:
    """The numbers that ``expr`` names as floats, less a constant; None if it names none.

    The bits of 2^m with a number in the last places are 2^m and the number: two lanes are converted
    by one subtraction, exactly.
    """
    if dtype not in _FORMS or not state.has_assembly:
        return None
    read = state.packed.get(expr.id) if isinstance(expr, Var) else packed(state, expr)
    if read is None or math.prod(state.space.shape(read.axes)) < 2 * _BYTES:
        return None
    _, base, _ = _FORMS[str(dtype)]
    minus = _twice(0x8000 | (base + less)) - (1 << 32)  # an int32, as the sign is set
    found = f"{state.helper(f'numbers_as_{dtype}')}({read.text}, {minus})"
    return _spread(state, found, dtype, read)


def _spread(state: LaunchState, joined: str, dtype: DType, read: Val) -> Val:
    shape = shape_text(state.space.shape(read.axes))
    return Val(f"tl.reshape({joined}, {shape})", dtype, read.axes)


def packed(state: LaunchState, expr: Expr) -> Val | None:
    """The bytes whose numbers ``expr`` picks, loaded once for two lanes.

    None if it picks none, or if the last axis does not walk through them.
    """
    found = _picked(expr) if state.has_assembly or isinstance(expr, Call) else None
    space = state.space
    if found is None or not space.rank:
        return None
    load, k = found
    var, extent, padded = space.vars[-1], space.extents[-1], space.padded[-1]
    parts = affine(k, (var.id,))
    if parts is None or parts.coefficient(var.id) != 1 or parity(parts.rest) != 0:
        return None
    if extent % 2 or extent == 2 or 2 * state.padding(extent // 2) != padded:
        return None
    if _varies_in_row(state, (*load.indices[:-1], parts.rest)):
        return None
    mask = state.scope.mask
    if mask is not None and space.rank - 1 in mask.axes:
        return None
    (pair,) = state.synthetic_vars(1)
    place = half_of(substitute(k, {var.id: fold.mul(pair, fold.const(2))}))
    with state.over((*space.vars[:-1], pair), (*space.extents[:-1], extent // 2)):
        loaded = state.load_element(
            state, Load(load.dtype, load.buffer, (*load.indices[:-1], place))
        )
        return state.temporary("packed", loaded)


def _picked(expr: Expr) -> tuple[Load, Expr] | None:
    """The byte, and the place ``k`` of the half of it that ``expr`` picks; None if it picks none.

    That is what a pass calls a nibble, or ``tile[..., k // 2] >> k % 2 * 4 & 15``.
    """
    match expr:
        case Call(name="nibble", args=(Load() as load, k)):
            return load, k
        case Binary(op="and", a=Binary(op="shr", a=Load() as load, b=shift), b=Const(value=15)):
            place = _selector(shift)
            if place is not None and load.dtype == "uint8" and _is_half(load.indices[-1], place):
                return load, place
    return None


def _selector(shift: Expr) -> Expr | None:
    """The ``k`` of a shift by ``k % 2 * 4``."""
    while isinstance(shift, Cast) and shift.dtype.is_integer:
        shift = shift.a
    match shift:
        case Binary(op="mul", a=Binary(op="floormod", a=k, b=two), b=four):
            return k if (const_value(two), const_value(four)) == (2, 4) else None
    return None


def _is_half(index: Expr, k: Expr) -> bool:
    return index in (half_of(k), fold.binary("floordiv", k, fold.const(2, k.dtype)))


def _varies_in_row(state: LaunchState, exprs: Iterable[Expr]) -> bool:
    """True if an expression may differ along the last axis of the space."""
    last = state.space.rank - 1
    for e in (e for expr in exprs for e in walk_expr(expr)):
        moves = isinstance(e, Var) and e.id in state.vars and last in state.vars[e.id].axes
        if moves or isinstance(e, Load):
            return True
    return False


# -- device functions ------------------------------------------------------------------------------
def conversion(dtype: str) -> str:
    """The device function that converts the numbers of bytes to ``dtype``, as text."""
    kind, base, one = _FORMS[dtype]
    lines = [
        f"{NIBBLES} as {dtype}",
        "{",
        ".reg .b32 up, one, part<4>;",
        "shr.u32 up, $4, 4;",
        f"mov.b32 one, 0x{_twice(one):08X};",
    ]
    for i in range(4):
        lines += [
            f"prmt.b32 part{i}, $4, up, 0x{4 + i}{4 + i}{i}{i};",  # byte i, then its upper half
            f"lop3.b32 part{i}, part{i}, 0x000F000F, 0x{_twice(base):08X}, 0xEA;",  # and, or
            f"fma.rn.{kind}x2 part{i}, part{i}, one, ${5 + i};",
        ]
    lines += [*(f"mov.b32 ${i}, part{i};" for i in range(4)), "}"]
    assembly = "\n".join(f'        "{line}\\n"' for line in lines)
    return f'''def _numbers_as_{dtype}(halves, minus):
    """The numbers in the halves of bytes as {dtype}, each added to ``minus`` and a power of two."""
    pairs = tl.inline_asm_elementwise(
{assembly},
        "=&r,=&r,=&r,=&r,r,r,r,r,r",
        [halves, minus], tl.int32, True, 4,
    )
    low = pairs.to(tl.int16).to(tl.{dtype}, bitcast=True)
    return tl.join(low, (pairs >> 16).to(tl.int16).to(tl.{dtype}, bitcast=True))'''


def _twice(bits: int) -> int:
    """A word that holds 16 bits twice."""
    return bits << 16 | bits

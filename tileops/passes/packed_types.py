"""Owns what lowering knows of encoded dtypes: their forms, their halves of an index, their parity.

Two elements of a 4-bit dtype share a byte: element ``k`` of a row is the low half where ``k`` is
even.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Select, Unary, Var
from tileops.ir.printer import print_expr
from tileops.ir.program import const_value
from tileops.location import Location

BYTE = DType("uint8")
PAIR = "pair"  # Call(dtype, PAIR, (low, high)): the value of a store of two neighbours
E8M0 = DType("float8_e8m0fnu")

# What expressions and tiles of an encoded dtype hold: a type with every value of it. Both 4-bit
# integers lie in int8, so that a matrix product of them is one of int8.
CARRIERS = {
    "int4": DType("int8"),
    "uint4": DType("int8"),
    "float4_e2m1fn": DType("float16"),
    "float8_e8m0fnu": DType("float32"),
}


@dataclasses.dataclass(frozen=True)
class Form:
    """How a buffer of an encoded dtype is held.

    ``plain``: one carrier an element. ``coded``: one byte an element. ``packed``: two elements a
    byte along the last dimension.
    """

    kind: str
    logical: Buffer
    buffer: Buffer


def is_packed(dtype: DType) -> bool:
    """True for the dtypes of which two elements share a byte."""
    return dtype.bits == 4


def form_of(
    buffer: Buffer, kind: str, even: Collection[int] = (), loc: Location | None = None
) -> Form:
    """The buffer that holds ``buffer`` in the form ``kind``; it keeps id and name.

    ``even`` are the ids of variables that are always even.
    """
    if kind == "plain":
        held = dataclasses.replace(buffer, dtype=CARRIERS[str(buffer.dtype)])
        return Form(kind, buffer, held)
    if kind == "coded":
        return Form(kind, buffer, dataclasses.replace(buffer, dtype=BYTE))
    if parity(buffer.shape[-1], ()) == 1:
        raise UnsupportedConstructError(
            f"the last dimension of `{buffer.name}` holds two elements of {buffer.dtype} a byte",
            expected="an even extent",
            found=str(const_value(buffer.shape[-1])),
            location=loc,
        )
    shape = (*buffer.shape[:-1], half(buffer.shape[-1], ()))
    strides = _strides_in_bytes(buffer, even, loc)
    return Form(kind, buffer, dataclasses.replace(buffer, dtype=BYTE, shape=shape, strides=strides))


def _strides_in_bytes(
    buffer: Buffer, even: Collection[int], loc: Location | None
) -> tuple[Expr, ...] | None:
    if buffer.strides is None:
        return None
    *outer, last = buffer.strides
    if const_value(last) != 1 or any(parity(step, even) != 0 for step in outer):
        raise UnsupportedConstructError(
            f"the strides of `{buffer.name}`, which holds two elements of {buffer.dtype} a byte "
            "along its last dimension",
            expected="the last 1, the others even for certain",
            found=f"({', '.join(map(print_expr, buffer.strides))})",
            location=loc,
        )
    return (*(half(step, even) for step in outer), last)


def parity(expr: Expr, even: Collection[int]) -> int | None:
    """0 for an even and 1 for an odd expression, None where neither is known.

    ``even`` are the ids of variables that are always even.
    """
    match expr:
        case Const(value=value):
            return int(value) & 1
        case Var(id=n):
            return 0 if n in even else None
        case Cast(a=a) if a.dtype.is_integer and expr.dtype.is_integer:
            return parity(a, even)
        case Unary(op="neg", a=a):
            return parity(a, even)
        case Select(a=a, b=b):
            left, right = parity(a, even), parity(b, even)
            return left if left == right else None
        case Binary():
            return _binary_parity(expr, even)
        case _:
            return None


def _binary_parity(expr: Binary, even: Collection[int]) -> int | None:
    a, b = parity(expr.a, even), parity(expr.b, even)
    if expr.op in ("add", "sub"):
        return None if a is None or b is None else a ^ b
    if expr.op == "mul":
        if a == 0 or b == 0:
            return 0
        return 1 if a == b == 1 else None
    if expr.op in ("min", "max"):
        return a if a == b else None
    if expr.op in ("floormod", "truncmod"):
        return a if b == 0 else None
    if expr.op == "shl":
        amount = const_value(expr.b)
        return 0 if amount is not None and amount > 0 else None
    return None


def half(expr: Expr, even: Collection[int]) -> Expr:
    """``expr // 2``, rounded down, with even terms halved where they stand."""
    two = fold.const(2, expr.dtype)
    match expr:
        case Const(value=value):
            return fold.const(int(value) // 2, expr.dtype)
        case Binary(op="mul", a=a, b=Const(value=value)) if int(value) % 2 == 0:
            return fold.mul(a, fold.const(int(value) // 2, expr.dtype))
        case Binary(op="mul", a=Const(value=value), b=b) if int(value) % 2 == 0:
            return fold.mul(b, fold.const(int(value) // 2, expr.dtype))
        case Binary(op="add" | "sub" as op, a=a, b=b) if parity(b, even) == 0:
            return fold.binary(op, half(a, even), half(b, even))
        case Binary(op="add", a=a, b=b) if parity(a, even) == 0:
            return fold.add(half(a, even), half(b, even))
        case _:
            return fold.binary("floordiv", expr, two)


def pair(low: Expr, high: Expr) -> Expr:
    """The value of a store of two neighbouring elements."""
    return Call(low.dtype, PAIR, (low, high))

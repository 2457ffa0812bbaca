"""``tvm.tirx``, also ``tvm.tir``: scalar expressions of the language under TVM's names."""

from __future__ import annotations

from typing import Any

from tileops import language as T
from tileops.dialect.tvm.absent import absent
from tileops.language.value import to_expr, wrap

PrimExpr = T.PrimExpr
Cast = T.Cast
Select = T.Select
Min = min = T.min
Max = max = T.max
And = all = T.all
Or = any = T.any
Not = T.Not
if_then_else = T.if_then_else
floordiv = FloorDiv = T.floordiv
floormod = FloorMod = T.floormod
truncdiv = T.truncdiv
truncmod = T.truncmod
ceildiv = T.ceildiv
abs = T.abs
exp, exp2, log, log2, sqrt, rsqrt = T.exp, T.exp2, T.log, T.log2, T.sqrt, T.rsqrt
sin, cos, tan, tanh, sigmoid, erf = T.sin, T.cos, T.tan, T.tanh, T.sigmoid, T.erf
floor, ceil, trunc, round, pow = T.floor, T.ceil, T.trunc, T.round, T.pow
popcount, clz = T.popcount, T.clz


def const(value: float | bool, dtype: object = None) -> T.PrimExpr:
    """A constant of ``dtype``; by default int32 for ints and float32 for floats."""
    return wrap(to_expr(value)) if dtype is None else T.dtype(dtype)(value)


def reinterpret(dtype: object, value: object) -> Any:  # noqa: ANN401
    """The bits of ``value`` as ``dtype``, in TVM's order of arguments."""
    return T.reinterpret(value, dtype)


def __getattr__(name: str) -> object:
    raise absent("tvm.tirx", name)

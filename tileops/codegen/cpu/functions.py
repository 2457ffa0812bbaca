"""Calls of mathematical functions: which C++ function computes each, and in which type."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.cpu.scalar_types import computing, is_narrow_float, storage
from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.ir.expr import Call
from tileops.ir.operators import FLOAT_FUNCTIONS

_PREDICATES = ("isnan", "isinf", "isfinite")
_INTEGER = {"abs": "absolute", "popcount": "popcount", "clz": "count_leading_zeros"}
# On integers these are the identity.
_ROUNDINGS = ("floor", "ceil", "trunc", "nearbyint", "round")
# Each gives a value of the dtype of its arguments.
_EXACT = ("abs", "copysign")
_ROUNDINGS_OF = {"rn": "kNearest", "rd": "kDown", "ru": "kUp", "rz": "kToZero"}


def call_text(expr: Call, args: Sequence[str]) -> str:
    """The C++ text of a call whose arguments are ``args`` in their computing types."""
    name, source = expr.name, expr.args[0].dtype
    if name == "reinterpret":
        return _reinterpret(expr, args[0])
    if name == "nibble":
        return f"static_cast<u8>(({args[0]} >> (({args[1]} & 1) * 4)) & 15)"
    if name == "odd_float32":
        return f"narrowing({args[0]})"
    if name in _PREDICATES:
        constant = "true" if name == "isfinite" else "false"
        return f"fn_{name}({args[0]})" if source.is_float else constant
    if not source.is_float:
        return _integer_call(expr, args)
    op, _, mode = name.partition("_")
    if mode in _ROUNDINGS_OF:
        function = f"rounded_{op}<{_ROUNDINGS_OF[mode]}>"
    elif name in FLOAT_FUNCTIONS:
        function = f"fn_{name}"
    else:
        raise InternalError(f"cpu code generation: unknown function {name} of {source}")
    if not is_narrow_float(expr.dtype) or name in _EXACT:
        return f"{function}({', '.join(args)})"
    if name in ("fma", "fma_rn"):
        # In float64 the product is exact and the sum as good as exact: one rounding is left.
        args = [f"static_cast<f64>({a})" for a in args]
    return f"round_to<{storage(expr.dtype)}>({function}({', '.join(args)}))"


def _integer_call(expr: Call, args: Sequence[str]) -> str:
    source = expr.args[0].dtype
    if expr.name in _INTEGER:
        text = f"{_INTEGER[expr.name]}<{computing(source)}>({args[0]})"
        return text if expr.dtype == source else f"static_cast<{computing(expr.dtype)}>({text})"
    if expr.name in _ROUNDINGS:
        return args[0]
    if expr.name == "pow":
        return f"integer_power<{computing(expr.dtype)}>({args[0]}, {args[1]})"
    raise InternalError(f"cpu code generation: {expr.name} of {source}")


def _reinterpret(expr: Call, arg: str) -> str:
    source = expr.args[0].dtype
    stored = f"encode<{storage(source)}>({arg})" if is_narrow_float(source) else arg
    return reinterpreted(stored, expr.dtype)


def reinterpreted(stored: str, dtype: DType) -> str:
    """A stored element's bits as a value of ``dtype``, in its computing type."""
    text = f"bit_cast<{storage(dtype)}>({stored})"
    return f"widen({text})" if is_narrow_float(dtype) else text

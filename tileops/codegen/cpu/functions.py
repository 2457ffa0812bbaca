"""Calls of mathematical functions: which C++ function computes each, and in which type."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.cpu.scalar_types import computing, is_narrow_float, storage
from tileops.errors import InternalError
from tileops.ir.expr import Call

_PREDICATES = ("isnan", "isinf", "isfinite")
_INTEGER = {"abs": "absolute", "popcount": "popcount", "clz": "count_leading_zeros"}
# On integers these are the identity.
_ROUNDINGS = ("floor", "ceil", "trunc", "nearbyint", "round")
_FLOAT = (
    "abs", "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2",
    "sigmoid", "erf", "pow", "floor", "ceil", "trunc", "nearbyint", "round", "fma", "copysign",
)  # fmt: skip

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
        return f"fn_{name}({args[0]})" if source.is_float else _integer_predicate(name)
    if not source.is_float:
        return _integer_call(expr, args)
    op, _, mode = name.partition("_")
    if mode in _ROUNDINGS_OF:
        return _rounded(expr, f"rounded_{op}<{_ROUNDINGS_OF[mode]}>", args)
    if name not in _FLOAT:
        raise InternalError(f"cpu code generation: unknown function {name} of {source}")
    return _rounded(expr, f"fn_{name}", args)


def _rounded(expr: Call, function: str, args: Sequence[str]) -> str:
    if not is_narrow_float(expr.dtype) or expr.name in _EXACT:
        return f"{function}({', '.join(args)})"
    if expr.name in ("fma", "fma_rn"):
        # In float64 the product is exact and the sum as good as exact, so that one rounding is
        # left.
        args = [f"static_cast<f64>({a})" for a in args]
    return f"round_to<{storage(expr.dtype)}>({function}({', '.join(args)}))"


def _integer_predicate(name: str) -> str:
    return "true" if name == "isfinite" else "false"


def _integer_call(expr: Call, args: Sequence[str]) -> str:
    if expr.name in _INTEGER:
        kind = computing(expr.args[0].dtype)
        text = f"{_INTEGER[expr.name]}<{kind}>({args[0]})"
        return (
            text
            if expr.dtype == expr.args[0].dtype
            else f"static_cast<{computing(expr.dtype)}>({text})"
        )
    if expr.name in _ROUNDINGS:
        return args[0]
    if expr.name == "pow":
        return f"integer_power<{computing(expr.dtype)}>({args[0]}, {args[1]})"
    raise InternalError(f"cpu code generation: {expr.name} of {expr.args[0].dtype}")


def _reinterpret(expr: Call, arg: str) -> str:
    source, target = storage(expr.args[0].dtype), storage(expr.dtype)
    bits = f"encode<{source}>({arg})" if is_narrow_float(expr.args[0].dtype) else arg
    text = f"bit_cast<{target}>({bits})"
    return f"widen({text})" if is_narrow_float(expr.dtype) else text

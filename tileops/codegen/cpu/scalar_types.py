"""C++ types of dtypes, as they are stored and computed, and literals."""

from __future__ import annotations

import math

from tileops.dtypes import DType
from tileops.errors import UnsupportedOnTargetError
from tileops.ir.expr import Const


def storage(dtype: DType) -> str:
    """The C++ type of one stored element; UnsupportedOnTargetError for packed 4-bit types."""
    if dtype.bits < 8:
        raise UnsupportedOnTargetError(f"the CPU target has no storage of its own for {dtype}")
    return {"bool": "b8", "tfloat32": "f32"}.get(dtype, dtype.short)


def computing(dtype: DType) -> str:
    """The C++ type that expressions of ``dtype`` have: narrow floats are computed as float."""
    if dtype.is_bool:
        return "bool"
    return "f32" if is_narrow_float(dtype) else storage(dtype)


def widened(text: str, dtype: DType) -> str:
    """A stored element in its computing type."""
    return f"widen({text})" if dtype.is_bool or is_narrow_float(dtype) else text


def is_narrow_float(dtype: DType) -> bool:
    """True for floats of fewer than 32 bits: results are rounded after every operation."""
    return dtype.is_float and dtype.bits < 32


def literal(const: Const) -> str:
    """A constant in its computing type."""
    value, dtype = const.value, const.dtype
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    value = int(value)
    suffix = {"int64": "l", "uint64": "ul", "uint32": "u"}.get(str(dtype), "")
    if value == -(2**63):
        return "(-9223372036854775807l - 1)"
    if value == -(2**31) and not suffix:
        return "(-2147483647 - 1)"
    text = f"{value}{suffix}"
    if dtype.bits < 32:
        return f"static_cast<{storage(dtype)}>({text})"
    return f"({text})" if value < 0 else text


def _float_literal(value: float, dtype: DType) -> str:
    suffix = "" if dtype == "float64" else "f"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        text = f"__builtin_inf{suffix}()"
        if dtype == "float8_e4m3fn":  # has no infinities
            text = f"round_to<{storage(dtype)}>({text})"
        return f"(-{text})" if value < 0 else text
    if is_narrow_float(dtype):
        return f"round_to<{storage(dtype)}>({value.hex()})"
    text = value.hex() + suffix
    return f"({text})" if text.startswith("-") else text

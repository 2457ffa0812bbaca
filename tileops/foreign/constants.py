"""Compile-time arguments of foreign kernels as texts that a program's identity can hold."""

# ruff: noqa: ANN401 - any value that a kernel takes.
from __future__ import annotations

from typing import Any

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError
from tileops.foreign.registry import keep
from tileops.foreign.triton_source import is_launchable, kernel_of
from tileops.ir.extern import digest_of_parts


def text_of(value: Any, name: str) -> str:
    """The text of a compile-time value; ``registry.kept`` finds the value by it.

    ProgramTypeError, naming the parameter ``name``, for a value whose meaning no text has.
    """
    if _is_a_constexpr(value):
        value = value.value
    return keep(_text(value, name), value)


def _is_a_constexpr(value: Any) -> bool:
    kind = type(value)
    return kind.__name__ == "constexpr" and kind.__module__.startswith("triton.")


def _text(value: Any, name: str) -> str:
    if isinstance(value, DType):
        return f"dtype {value}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_text(item, name) for item in value)
        return f"{type(value).__name__}({inner})"
    if is_launchable(value) and hasattr(value, "params"):
        kernel = kernel_of(value)
        return f"function {kernel.name} " + digest_of_parts(
            kernel.language, kernel.name, kernel.parts
        )
    if type(value).__module__.startswith("triton."):
        return f"triton {value!r}"  # a dtype or a layout of Gluon's
    raise ProgramTypeError(
        f"the compile-time argument `{name}` of a foreign kernel must be a number, a text, None, a "
        "dtype, a tuple of these, or a jit function",
        found=f"a {type(value).__name__}",
    )

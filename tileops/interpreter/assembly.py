"""Inline assembly of generated kernels: what each piece computes, on the interpreter's values.

The first line of a piece is a comment that says what it computes, and its key here.
"""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl

from tileops.codegen.kernel_code import QUOTIENT, RECIPROCAL
from tileops.errors import InternalError


def _quotient(a: Any, b: Any, _reciprocal: Any) -> Any:
    return tl.div_rn(a, b)


_PIECES: dict[str, Callable[..., Any]] = {
    # Nothing but the next piece reads it, which divides.
    RECIPROCAL: lambda divisor: divisor,
    QUOTIENT: _quotient,
}


def inline_asm_elementwise(
    asm: str, constraints: str, args: list[Any], dtype: Any, is_pure: bool, pack: int
) -> Any:
    """The results of ``tl.inline_asm_elementwise``; InternalError for a piece that has no key."""
    key = asm.partition("\n")[0]
    if key not in _PIECES:
        raise InternalError(f"the interpreter does not know the assembly `{key}`")
    return _PIECES[key](*args)

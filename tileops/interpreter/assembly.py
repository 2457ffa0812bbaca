"""Inline assembly of generated kernels: what each piece computes, on the interpreter's values.

The first line of a piece is a comment that says what it computes, and its key here.
"""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as ti

from tileops.codegen.kernel_code import NIBBLES, QUOTIENT, RECIPROCAL
from tileops.errors import InternalError


def _quotient(a: Any, b: Any, _reciprocal: Any) -> Any:
    return tl.div_rn(a, b)


def _pairs(halves: Any, minus: Any, kind: Any, base: int) -> Any:
    """The two numbers of each byte, less a constant, in a word: the upper 16 bits of ``kind``."""
    data = halves.handle.data
    less = (int(getattr(minus, "value", minus)) & 0x7FFF) - base
    both = [(part.astype(np.float32) - less).astype(kind) for part in (data & 15, data >> 4)]
    bits = [np.ascontiguousarray(part).view(f"u{part.itemsize}").astype(np.uint32) for part in both]
    low, high = (part >> (8 * kind().itemsize - 16) for part in bits)
    words = (high << 16 | low).view(np.int32)
    return tl.tensor(ti.TensorHandle(words, tl.int32), tl.block_type(tl.int32, list(words.shape)))


_PIECES: dict[str, Callable[..., Any]] = {
    # Nothing but the next piece reads it, which divides.
    RECIPROCAL: lambda divisor: divisor,
    QUOTIENT: _quotient,
    f"{NIBBLES} as float16": lambda halves, minus: _pairs(halves, minus, np.float16, 0x6400),
    f"{NIBBLES} as bfloat16": lambda halves, minus: _pairs(halves, minus, np.float32, 0x4300),
}


def inline_asm_elementwise(
    asm: str, constraints: str, args: list[Any], dtype: Any, is_pure: bool, pack: int
) -> Any:
    """The results of ``tl.inline_asm_elementwise``; InternalError for a piece that has no key."""
    key = asm.partition("\n")[0]
    if key not in _PIECES:
        raise InternalError(f"the interpreter does not know the assembly `{key}`")
    return _PIECES[key](*args)

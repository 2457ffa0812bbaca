"""Layouts that programs make outside the language: hints that never change results.

The code generators choose the places of a tile's elements; ``T.annotate_layout`` accepts these.
All take the tile, or its shape, and raise ArgumentTypeError for what has no shape.
"""

from __future__ import annotations

from collections.abc import Callable

from tileops.errors import ArgumentTypeError
from tileops.language import Fragment, Layout

__all__ = [
    "Fragment",
    "Layout",
    "make_full_bank_swizzled_layout",
    "make_fully_replicated_layout_fragment",
    "make_gemm_fragment_8x8",
    "make_gemm_fragment_8x8_transposed",
    "make_half_bank_swizzled_layout",
    "make_linear_layout",
    "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
    "make_tcgen05mma_swizzled_layout",
    "make_volta_swizzled_layout",
    "make_wgmma_swizzled_layout",
]


def make_swizzled_layout(buffer: object, k_major: bool = True, allow_pad: bool = True) -> Layout:
    """The layout of a shared tile without bank conflicts, as a hint; ``buffer`` is the tile."""
    return _hint("make_swizzled_layout", buffer)


def make_volta_swizzled_layout(buffer: object, is_a: bool = True, k_inner: bool = True) -> Layout:
    """The layout of a matrix product's shared operand on Volta, as a hint."""
    return _hint("make_volta_swizzled_layout", buffer)


def make_wgmma_swizzled_layout(
    buffer: object, continuity: int | None = None, k_major: bool = True
) -> Layout:
    """The layout of a matrix product's shared operand on Hopper, as a hint."""
    return _hint("make_wgmma_swizzled_layout", buffer)


def make_tcgen05mma_swizzled_layout(
    buffer: object, continuity: int | None = None, k_major: bool = True
) -> Layout:
    """The layout of a matrix product's shared operand on Blackwell, as a hint."""
    return _hint("make_tcgen05mma_swizzled_layout", buffer)


def make_fully_replicated_layout_fragment(buffer: object, threads: int) -> Fragment:
    """The layout of a fragment of which each of ``threads`` threads has all, as a hint."""
    shape = _shape("make_fully_replicated_layout_fragment", buffer)
    return Fragment(shape, _identity, replicate=threads)


def make_gemm_fragment_8x8() -> Fragment:
    """The layout of an 8 by 8 fragment over the threads of a warp, two in a thread, as a hint."""
    return Fragment(
        (8, 8), forward_thread_fn=lambda i, j: i * 4 + j // 2, forward_index_fn=lambda i, j: j % 2
    )


def make_gemm_fragment_8x8_transposed() -> Fragment:
    """The transpose of ``make_gemm_fragment_8x8``, as a hint."""
    return Fragment(
        (8, 8), forward_thread_fn=lambda i, j: j * 4 + i // 2, forward_index_fn=lambda i, j: i % 2
    )


def _hint(function: str, buffer: object) -> Layout:
    return Layout(_shape(function, buffer), _identity)


def _make(function: str, what: str) -> Callable[[object], Layout]:
    def make(buffer: object) -> Layout:
        return _hint(function, buffer)

    make.__name__ = make.__qualname__ = function
    make.__doc__ = f"{what}, as a hint; ``buffer`` is the tile."
    return make


_SWIZZLED = "The layout of a shared tile that is swizzled over {} bytes"
make_full_bank_swizzled_layout = _make("make_full_bank_swizzled_layout", _SWIZZLED.format(128))
make_half_bank_swizzled_layout = _make("make_half_bank_swizzled_layout", _SWIZZLED.format(64))
make_quarter_bank_swizzled_layout = _make("make_quarter_bank_swizzled_layout", _SWIZZLED.format(32))
make_linear_layout = _make("make_linear_layout", "The row-major layout of a tile")


def _shape(function: str, buffer: object) -> tuple[object, ...]:
    shape = getattr(buffer, "shape", buffer)
    if not isinstance(shape, (tuple, list)):
        raise ArgumentTypeError(
            f"{function}: expected a tile or its shape, got {type(buffer).__name__}"
        )
    return tuple(shape)


def _identity(*indices: object) -> tuple[object, ...]:
    return indices

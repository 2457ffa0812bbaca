"""Owns the layouts that programs make outside the language: hints that never change results.

Where a tile's elements lie is chosen by the code generators; ``T.annotate_layout`` accepts these.
"""

from __future__ import annotations

from tileops.errors import ArgumentTypeError
from tileops.language import Fragment, Layout

__all__ = ["Fragment", "Layout", "make_linear_layout", "make_swizzled_layout"]


def make_swizzled_layout(buffer: object, k_major: bool = True, allow_pad: bool = True) -> Layout:
    """The layout of a shared tile without bank conflicts, as a hint; ``buffer`` is the tile.

    ArgumentTypeError if ``buffer`` has no shape.
    """
    return Layout(_shape("make_swizzled_layout", buffer), _identity)


def make_linear_layout(buffer: object) -> Layout:
    """The row-major layout of a tile, as a hint. ArgumentTypeError if ``buffer`` has no shape."""
    return Layout(_shape("make_linear_layout", buffer), _identity)


def _shape(function: str, buffer: object) -> tuple[object, ...]:
    shape = getattr(buffer, "shape", buffer)
    if not isinstance(shape, (tuple, list)):
        raise ArgumentTypeError(
            f"{function}: expected a tile or its shape, got {type(buffer).__name__}"
        )
    return tuple(shape)


def _identity(*indices: object) -> tuple[object, ...]:
    return indices

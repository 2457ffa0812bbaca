"""Owns the fit between a tile's dimensions and the axes of a space: permuting, expanding, spreading."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton.space import Space, shape_text
from tileops.codegen.triton.text import ATOM, Val
from tileops.dtypes import DType


def to_space(text: Val, shape: Sequence[int], axes: Sequence[int | None], space: Space) -> Val:
    """A tile laid out by dimensions as a value of ``space``.

    ``axes`` gives for each dimension of ``shape`` the axis of the space that it runs along, None where the
    dimension has one element. The axes are distinct.
    """
    kept = [a for a in axes if a is not None]
    out = text
    if not kept:
        return _reshaped(out, (), text.dtype)
    if any(a is None for a in axes):
        squeezed = tuple(n for n, a in zip(shape, axes, strict=True) if a is not None)
        out = Val(f"tl.reshape({out.text}, {shape_text(squeezed)})", text.dtype)
    order = sorted(range(len(kept)), key=lambda d: kept[d])
    out = permuted(out, order)
    present = set(kept)
    if len(kept) < space.rank:
        subscript = ", ".join(":" if a in present else "None" for a in range(space.rank))
        out = Val(f"{out.at(ATOM)}[{subscript}]", text.dtype)
    return Val(out.text, text.dtype, frozenset(a for a in kept if space.padded[a] > 1), out.prec)


def _reshaped(text: Val, axes: tuple[int, ...], dtype: DType) -> Val:
    # One element: its sum is itself.
    return Val(f"tl.sum({text.text})", dtype, frozenset(axes))


def permuted(text: Val, order: Sequence[int]) -> Val:
    """The tile with its dimensions in ``order``."""
    if list(order) == sorted(order):
        return text
    if list(order) == [1, 0]:
        return Val(f"tl.trans({text.text})", text.dtype)
    return Val(f"tl.permute({text.text}, {shape_text(tuple(order))})", text.dtype)


def to_tile(value: Val, space: Space, axes: Sequence[int | None]) -> Val:
    """A value of ``space`` laid out by a tile's dimensions, extent 1 where it does not vary.

    ``axes`` gives the axis of each dimension, None where the tile has one lane or the index is the same for
    all lanes. The value varies along no other axis. A scalar stays a scalar.
    """
    if value.is_scalar:
        return value
    kept = [a for a in axes if a is not None]
    if list(axes) == list(range(space.rank)):
        return value
    out = value
    if len(kept) < space.rank:
        inner = tuple(space.padded[a] if a in value.axes else 1 for a in sorted(kept))
        out = Val(f"tl.reshape({value.text}, {shape_text(inner)})", value.dtype)
    ranked = sorted(kept)
    out = permuted(out, [ranked.index(a) for a in kept])
    if len(kept) < len(axes):
        subscript = ", ".join("None" if a is None else ":" for a in axes)
        out = Val(f"{out.at(ATOM)}[{subscript}]", value.dtype)
    return Val(out.text, value.dtype, value.axes, out.prec)

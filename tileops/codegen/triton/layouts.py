"""Owns the fit between a tile's dimensions and the axes of a space: permuting and expanding."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton.space import Space, shape_text
from tileops.codegen.triton.text import ATOM, Val


def to_space(tile: Val, axes: Sequence[int], space: Space) -> Val:
    """A tile laid out by dimensions as a value of ``space``.

    ``axes`` gives the axis of each dimension.
    """
    order = sorted(range(len(axes)), key=lambda d: axes[d])
    out = permuted(tile, order)
    if len(axes) < space.rank:
        subscript = ", ".join(":" if a in axes else "None" for a in range(space.rank))
        out = Val(f"{out.at(ATOM)}[{subscript}]", tile.dtype)
    return Val(out.text, tile.dtype, frozenset(axes), out.prec)


def permuted(tile: Val, order: Sequence[int]) -> Val:
    """The tile with its dimensions in ``order``."""
    if list(order) == sorted(order):
        return tile
    if list(order) == [1, 0]:
        return Val(f"tl.trans({tile.text})", tile.dtype)
    return Val(f"tl.permute({tile.text}, {shape_text(tuple(order))})", tile.dtype)


def to_tile(value: Val, space: Space, axes: Sequence[int | None]) -> Val:
    """A value of ``space`` laid out by a tile's dimensions, extent 1 where it does not vary.

    ``axes`` gives the axis of each dimension, None where the index is the same for all lanes. The
    value varies along no other axis. A scalar stays a scalar.
    """
    if value.is_scalar or list(axes) == list(range(space.rank)):
        return value
    kept = [a for a in axes if a is not None]
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

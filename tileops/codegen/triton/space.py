"""Iteration spaces, the padded boxes of elementwise operations, and how tiles are laid in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tileops.codegen.triton.text import ATOM, Val
from tileops.ir.expr import Var

# Triton refuses larger tiles (TRITON_MAX_TENSOR_NUMEL, the same in 3.6 and 3.9).
MAX_ELEMENTS = 1 << 20


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n`` (1 for 0)."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Space:
    """Loop variables with their extents; ``padded`` are those of the tiles that hold them."""

    vars: tuple[Var, ...] = ()
    extents: tuple[int, ...] = ()
    padded: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.vars)

    def axis_of(self, var: int) -> int | None:
        """The axis of a variable id, or None."""
        return next((axis for axis, v in enumerate(self.vars) if v.id == var), None)

    def all_axes(self) -> frozenset[int]:
        """All axes; each has more than one lane."""
        return frozenset(range(self.rank))

    def shape(self, axes: frozenset[int]) -> tuple[int, ...]:
        """The shape of a value that varies along ``axes``."""
        return tuple(p if a in axes else 1 for a, p in enumerate(self.padded))


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as Python text, ``(128, 1)`` or ``(128,)``."""
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def subscript(present: Iterable[bool]) -> str:
    """``[:, None]``: a dimension of extent 1 where none of the tile is present."""
    return f"[{', '.join(':' if p else 'None' for p in present)}]"


def to_space(tile: Val, axes: Sequence[int], space: Space) -> Val:
    """A tile as a value of ``space``; ``axes`` gives the axis of each of its dimensions."""
    order = sorted(range(len(axes)), key=lambda d: axes[d])
    out = _permuted(tile, order)
    if len(axes) < space.rank:
        out = Val(out.at(ATOM) + subscript(a in axes for a in range(space.rank)), tile.dtype)
    return Val(out.text, tile.dtype, frozenset(axes), out.prec)


def _permuted(tile: Val, order: Sequence[int]) -> Val:
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
    out = _permuted(out, [ranked.index(a) for a in kept])
    if len(kept) < len(axes):
        out = Val(out.at(ATOM) + subscript(a is not None for a in axes), value.dtype)
    return Val(out.text, value.dtype, value.axes, out.prec)

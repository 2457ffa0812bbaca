"""Owns iteration spaces.

The box of points that one elementwise operation covers, padded to powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass

from tileops.ir.expr import Var

# Triton refuses larger tiles (TRITON_MAX_TENSOR_NUMEL, the same in 3.6 and 3.9).
MAX_ELEMENTS = 1 << 20


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n`` (1 for 0)."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Space:
    """Loop variables with their extents.

    ``padded`` are the extents of the tiles that stand for them.
    """

    vars: tuple[Var, ...] = ()
    extents: tuple[int, ...] = ()
    padded: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.vars)

    @property
    def elements(self) -> int:
        """How many lanes the padded box has."""
        out = 1
        for p in self.padded:
            out *= p
        return out

    def axis_of(self, var: int) -> int | None:
        """The axis of a variable id, or None."""
        for axis, v in enumerate(self.vars):
            if v.id == var:
                return axis
        return None

    def all_axes(self) -> frozenset[int]:
        """All axes; each has more than one lane."""
        return frozenset(range(self.rank))

    def shape(self, axes: frozenset[int]) -> tuple[int, ...]:
        """The shape of a value that varies along ``axes``."""
        return tuple(p if a in axes else 1 for a, p in enumerate(self.padded))


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as Python text, ``(128, 1)`` or ``(128,)``."""
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def expand_text(axis: int, rank: int) -> str:
    """The subscript that puts a one-dimensional tile at ``axis`` of ``rank``.

    ``[:, None]``, or nothing.
    """
    if rank == 1:
        return ""
    return "[" + ", ".join(":" if a == axis else "None" for a in range(rank)) + "]"

"""Integer arithmetic for host code of programs: ``cdiv``, ``next_power_of_2``."""

from __future__ import annotations

from tileops.errors import ArgumentError

__all__ = ["cdiv", "next_power_of_2"]


def cdiv(a: int, b: int) -> int:
    """The quotient ``a / b`` of integers, rounded up. ArgumentError for ``b == 0``."""
    if b == 0:
        raise ArgumentError(f"cdiv({a}, {b}): expected a divisor that is not zero")
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The least power of two that is at least ``n``; 1 for ``n`` below 1."""
    return 1 << max(n - 1, 0).bit_length()

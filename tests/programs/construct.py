"""A construct's program with its inputs and the result that it must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Construct:
    """``func`` is an eager program; ``expected`` computes its result from the inputs.

    ``relative`` bounds the error as a part of the largest expected value; 0 asks for equality.
    """

    func: Any
    inputs: Callable[[], Tensors]
    expected: Callable[..., torch.Tensor]
    relative: float = 0.0

    @property
    def id(self) -> str:
        return self.func.__name__

    def check(self, inputs: Tensors, got: torch.Tensor) -> None:
        """AssertionError where ``got`` is not the result for ``inputs``."""
        expected = self.expected(*inputs)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        if self.relative == 0.0:
            both_nan = got.cpu().isnan() & expected.isnan()
            same = (got.cpu() == expected) | both_nan
            assert same.all(), f"{self.id}: got {got}, expected {expected}"
            return
        bound = self.relative * float(expected.abs().max())
        error = float((got.cpu().double() - expected.double()).abs().max())
        assert error <= bound, f"{self.id}: error {error}, bound {bound}"


def ints(*shape: int, low: int = -9, high: int = 10) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=torch.int32)

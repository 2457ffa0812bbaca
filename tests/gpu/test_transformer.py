"""A two-layer transformer of tile programs trains on the GPU as torch's does on the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.programs.transformer import Programs, Torch, losses

pytestmark = pytest.mark.gpu

# Single precision, as in tests/programs: sums of at most 64 products in each of some 20 operations a
# step, and what a step's rounding does to the next ones.
TOLERANCE = 20 * 20 * 64 * torch.finfo(torch.float32).eps


def test_twenty_steps_in_one_graph() -> None:
    torch._dynamo.reset()
    expected = losses(Torch, "cpu", "eager")
    torch._dynamo.reset()
    got = losses(Programs, "cuda", "inductor")
    worst = max(abs(a - b) for a, b in zip(got, expected, strict=True))
    assert worst <= TOLERANCE, (worst, got, expected)
    assert got[-1] < 0.9 * got[0]

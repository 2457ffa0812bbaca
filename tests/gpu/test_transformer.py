"""A two-layer transformer of tile programs trains on the GPU as torch's does on the CPU."""

from __future__ import annotations

import pytest
import torch
from transformer import Programs, Torch, losses

pytestmark = pytest.mark.gpu

# The programs' products of float32 are TF32 on the GPU: 10 bits of fraction, over 20 steps of some
# 20 products whose rounding errors are random in sign.
TOLERANCE = 20 * 2.0**-11


def test_twenty_steps_in_one_graph() -> None:
    torch._dynamo.reset()
    expected = losses(Torch, "cpu", "eager")
    torch._dynamo.reset()
    got = losses(Programs, "cuda", "inductor")
    assert max(abs(a - b) for a, b in zip(got, expected, strict=True)) <= TOLERANCE
    assert got[-1] < 0.9 * got[0]

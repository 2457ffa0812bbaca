"""Every math function on the GPU, against float64."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.programs import mathematics

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_functions_are_within_their_bounds(dtype: str) -> None:
    a = mathematics.inputs(getattr(torch, dtype))
    mathematics.check(a, tileops.jit(mathematics.program(dtype))(a.cuda()))


def test_bits_and_integer_division() -> None:
    a = torch.randint(-(2**31), 2**31 - 1, (128,)).int()
    a[:4] = torch.tensor([0, -1, 2**31 - 1, -(2**31)])
    out = tileops.jit(mathematics.bits)(a.cuda())
    assert torch.equal(out.cpu(), mathematics.bits_expected(a))

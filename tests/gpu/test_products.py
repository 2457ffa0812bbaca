"""Matrix products into accumulators of any width on the GPU, exactly."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.programs.products import ACCUMULATED, expected, operands, product

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtypes", ACCUMULATED, ids="-".join)
@pytest.mark.parametrize("shape", [(32, 24, 40), (17, 1, 3)])
def test_products(dtypes: tuple[str, str], shape: tuple[int, int, int]) -> None:
    name = f"product_{'_'.join(dtypes)}_{shape[0]}"
    program = tileops.jit(product(*dtypes, shape), name=name)
    inputs = operands(*dtypes, shape)
    assert torch.equal(program(*(x.cuda() for x in inputs)).cpu(), expected(*inputs))

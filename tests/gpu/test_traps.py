"""The silent traps on the GPU."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.programs.constructs import Construct
from tests.programs.traps import TRAPS, beyond_tf32, float32_product

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.id)
def test_gpu(trap: Construct) -> None:
    inputs = trap.inputs()
    trap.check(inputs, tileops.jit(trap.func)(*(x.cuda() for x in inputs)))


def test_a_float32_product_is_tf32_unless_told() -> None:
    a, b = (x.cuda() for x in beyond_tf32())
    assert torch.equal(tileops.jit(float32_product)(a, b), torch.ones_like(a))
    exact = tileops.jit(float32_product, pass_configs={"tl.gemm_f32_precision": "ieee"})
    assert torch.equal(exact(a, b), a)

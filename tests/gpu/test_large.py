"""Tensors past 2^31 elements on the GPU: one and two dimensions, strides, outputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.op import large

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", [*large.CASES, large.an_output], ids=lambda case: case.__name__)
def test_gpu(case: Callable[[str], None]) -> None:
    case("cuda")
    torch.cuda.empty_cache()


def test_a_product_of_large_half_precision_tensors() -> None:
    """4.3 GB of float16: the last rows of a matrix of 2^31 elements, through copies and a product."""
    rows, columns = 2**17 + 1, 2**14
    a = torch.zeros(rows, columns, dtype=torch.float16, device="cuda")
    a[-3:] = torch.randn(3, columns, device="cuda").half()
    b = torch.randn(columns, 16, device="cuda").half()
    from examples import matmul

    out = matmul.matmul_dynamic(a, b, block_K=64)
    exact = a[-3:].double() @ b.double()
    # 2^14 float32 additions of exact products, each of 2^-22 of the sum of magnitudes, and the
    # rounding of the result to float16.
    bound = (columns + 2) * 2.0**-22 * (a[-3:].double().abs() @ b.double().abs())
    bound += 2.0**-11 * (exact.abs() + bound) + 2.0**-25
    assert ((out[-3:].double() - exact).abs() <= bound).all()
    assert not out[:-3].any()
    torch.cuda.empty_cache()

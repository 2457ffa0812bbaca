"""Operators of 8 and 4 bits on a GPU: exact to the roundings of their rules, and equal run to run."""

from __future__ import annotations

import pytest
import torch

from tests.ops.test_quantised_products import E4M3, dense, exact, operands, scales, weights
from tests.ops.test_quantised_rows import DTYPES, HALF_UNITS
from tileops import ops

pytestmark = pytest.mark.gpu


@DTYPES
@pytest.mark.parametrize("columns", [6, 2880, 16384 + 13])
def test_rows(dtype: torch.dtype, columns: int) -> None:
    """Half a unit of 8 bits, and a unit of the norm, which another program may round differently."""
    x, up = torch.randn(2, 300, columns, device="cuda").bfloat16()
    norm, product = ops.rms_norm(x, (columns,), eps=1e-6).double(), ops.silu_mul(x, up).double()
    for right, call in (
        (norm, lambda: ops.rms_norm_quant(x, (columns,), eps=1e-6, out_dtype=dtype)),
        (product, lambda: ops.silu_mul_quant(x, up, out_dtype=dtype)),
    ):
        out, scale = call()
        error = (out.double() * scale - right).abs()
        allowed = 2**-7 * right.abs()
        if dtype == torch.int8:
            allowed = allowed + 0.51 * scale
        else:
            relative, smallest = HALF_UNITS[dtype]
            allowed = allowed + 1.01 * torch.maximum(relative * right.abs(), smallest * scale)
        assert (error <= allowed).all()
        again = call()
        assert torch.equal(again[0].view(torch.uint8), out.view(torch.uint8))
        assert torch.equal(again[1], scale)


@pytest.mark.parametrize("by_row", [False, True], ids=["one", "rows"])
@pytest.mark.parametrize(("rows", "terms"), [(16, 4096), (300, 2880), (1000, 131)])
def test_scaled_mm(by_row: bool, rows: int, terms: int) -> None:
    """Tensor cores keep 13 bits behind the largest term of a sum; no term is above the sum of all."""
    a, b = operands(rows, 520, terms, E4M3, E4M3)
    given = (a.cuda(), b.t().cuda().t(), *(s.cuda() for s in scales(rows, 520, by_row)))
    right, sizes = (
        exact(*given),
        exact(given[0].double().abs(), given[1].double().abs(), *given[2:]),
    )
    found = ops.scaled_mm(*given, out_dtype=torch.float32)
    assert ((found - right).abs() <= 2**-11 * sizes).all()
    assert torch.equal(ops.scaled_mm(*given, out_dtype=torch.float32), found)


@pytest.mark.parametrize("rows", [1, 16, 300])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_int4_linear(rows: int, dtype: torch.dtype) -> None:
    """A rounding of the result, and those of a float32 sum of so many terms."""
    columns, group = 1030, 128
    codes, packed, scale, zeros = weights(520, columns, group, torch.bfloat16)
    x = torch.randn(rows, columns).to(dtype)
    w = dense(codes, scale, zeros, group, dtype).double()
    right, sizes = x.double() @ w.t(), x.double().abs() @ w.abs().t()
    given = [t.cuda() for t in (x, packed, scale, zeros)]
    found = ops.int4_linear(*given, group_size=group)
    bound = torch.finfo(dtype).eps * right.abs() + columns * 2**-23 * sizes
    assert ((found.cpu() - right).abs() <= bound).all()
    assert torch.equal(ops.int4_linear(*given, group_size=group), found)

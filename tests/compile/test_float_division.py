"""Division of floats to integers, and its remainders: the CPU path, the interpreter and torch agree."""

from __future__ import annotations

import pytest
import torch

import tileops.language as T
from tests.kit.interpreted import run


def divided(A, B, dtype: str):
    A: T.Tensor((256,), dtype)
    B: T.Tensor((256,), dtype)
    C = T.empty((5, 256), dtype)
    with T.Kernel(1):
        for i in T.Parallel(256):
            C[0, i] = T.fmod(A[i], B[i])
            C[1, i] = T.truncmod(A[i], B[i])
            C[2, i] = T.truncdiv(A[i], B[i])
            C[3, i] = A[i] // B[i]
            C[4, i] = A[i] % B[i]
    return C


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_quotients_and_remainders(dtype: str) -> None:
    kind = getattr(torch, dtype)
    a, b = (torch.randn(256) * 100).to(kind), torch.randn(256).to(kind)
    a[:3] = torch.tensor([torch.inf, -0.0, 30.0])
    b[3:5] = torch.tensor([torch.inf, 0.0])
    a[5:7], b[5:7] = torch.finfo(kind).max, 3.3  # their quotient is not exact in any width
    (got,) = run(divided, a, b, dtype=dtype)
    # The remainder of a truncated division is exact.
    torch.testing.assert_close(got[0], torch.fmod(a, b), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(got[1], got[0], rtol=0, atol=0, equal_nan=True)
    # A quotient that rounds to an integer from below may be one more than the exact one.
    quotient = (a.float() / b.float()).to(kind) if dtype == "float16" else a / b
    for row, rounded in ((2, torch.trunc), (3, torch.floor)):
        torch.testing.assert_close(
            got[row], rounded(quotient), rtol=2 * torch.finfo(kind).eps, atol=1.0, equal_nan=True
        )
    finite = a.isfinite() & b.isfinite() & (b != 0)
    r = torch.remainder(a.double(), b.double())[finite]
    # One more rounding, of a sum of at most |b|.
    near = (got[4][finite].double() - r).abs() <= b[finite].double().abs() * torch.finfo(kind).eps
    wraps = (got[4][finite].double() - r).abs() >= b[finite].double().abs() * 0.999
    assert (near | wraps).all()

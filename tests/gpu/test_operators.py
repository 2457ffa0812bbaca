"""Operators on a GPU are as exact as torch's operations there, and equal run to run."""

from __future__ import annotations

import pytest
import torch

from tests.ops.cases import CASES, Case
from tests.ops.exactness import require_as_exact_as_torch, with_gradients

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_sizes(case: Case, dtype: torch.dtype) -> None:
    for rows, columns in ((7, 96), (1000, 2880), (300, 4096)):
        require_as_exact_as_torch(case, rows, columns, dtype, "cuda")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_in_parts(case: Case) -> None:
    require_as_exact_as_torch(case, 40, 16384 + 13, torch.bfloat16, "cuda")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equal_calls_give_equal_bits(case: Case) -> None:
    """Where torch is asked for it, which attention alone looks at."""
    inputs = case.inputs(2000, 1024, torch.bfloat16, "cuda")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        first = with_gradients(case, case.call, inputs, 0)
        for _ in range(3):
            for a, b in zip(with_gradients(case, case.call, inputs, 0), first, strict=True):
                assert torch.equal(a, b)
    finally:
        torch.use_deterministic_algorithms(False)

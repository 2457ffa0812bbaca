"""Results and gradients are as exact as those of torch's operations in the same dtype."""

from __future__ import annotations

import pytest
import torch

from tests.ops.cases import CASES, OF_ROWS, TRAINED, Case
from tests.ops.exactness import require_as_exact_as_torch


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "rows", "columns"),
    [(torch.float16, 7, 96), (torch.bfloat16, 33, 131), (torch.float32, 33, 131)],
    ids=str,
)
def test_sizes(case: Case, dtype: torch.dtype, rows: int, columns: int) -> None:
    require_as_exact_as_torch(case, rows, columns, dtype, "cpu")


@pytest.mark.parametrize("case", OF_ROWS, ids=str)
def test_rows_in_parts(case: Case) -> None:
    require_as_exact_as_torch(case, 3, 16384 + 13, torch.bfloat16, "cpu")


@pytest.mark.parametrize("case", [c for c in CASES if c.info.name == "cross_entropy"], ids=str)
@pytest.mark.parametrize("shift", [1000.0, -3e5])
def test_logits_far_from_zero(case: Case, shift: float) -> None:
    """Probabilities depend on differences of logits alone."""
    require_as_exact_as_torch(case, 33, 131, torch.float32, "cpu", shift)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("size", [(0, 6), (1, 1), (5, 1)], ids=str)
def test_no_row_or_one_element(case: Case, size: tuple[int, int]) -> None:
    require_as_exact_as_torch(case, *size, torch.float32, "cpu")


@pytest.mark.parametrize("case", TRAINED, ids=str)
def test_gradients_in_float64(case: Case) -> None:
    inputs = case.form.leaves(case.inputs(2, 4, torch.float64, "cpu"))
    assert torch.autograd.gradcheck(case.call, inputs)

"""Every example program on the CPU, eager and lazy, against float64."""

from __future__ import annotations

import pytest
import torch

from tests.programs.cases import ATTENTION_CASES, CASES, SHORT_CASES, Case

# Lazily built attention is traced from another text but is the same program: a quarter of the sizes will do.
LAZY_CASES = tuple(c for n, c in enumerate(ATTENTION_CASES) if n % 4 == 0) + tuple(
    c for c in CASES if c not in ATTENTION_CASES
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_eager(case: Case) -> None:
    inputs = case.inputs()
    case.check(inputs, case.eager(*inputs, **case.options))


@pytest.mark.parametrize("case", LAZY_CASES, ids=lambda c: c.id)
def test_lazy(case: Case) -> None:
    inputs = case.inputs()
    case.check(inputs, case.lazy()(*inputs))


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda c: c.id)
def test_the_number_of_threads_does_not_change_the_result(case: Case) -> None:
    inputs = case.inputs()
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(case.eager(*inputs, **case.options))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])

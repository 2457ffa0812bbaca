"""Every example program on the GPU, eager and lazy, against float64."""

from __future__ import annotations

import pytest
import torch

from tests.programs.cases import ATTENTION_CASES, CASES, MATMUL_CASES, Case


def on_gpu(case: Case) -> tuple[object, ...]:
    return tuple(x.cuda() if isinstance(x, torch.Tensor) else x for x in case.inputs())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_eager(case: Case) -> None:
    inputs = on_gpu(case)
    out = case.eager(*inputs, **case.options)
    assert out.is_cuda
    case.check(inputs, out)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_lazy(case: Case) -> None:
    inputs = on_gpu(case)
    case.check(inputs, case.lazy()(*inputs))


@pytest.mark.parametrize("case", [*MATMUL_CASES[:4], *ATTENTION_CASES[-4:]], ids=lambda c: c.id)
def test_the_result_is_the_same_each_time(case: Case) -> None:
    """None of these programs uses atomics, so a result that moves is a race."""
    inputs = on_gpu(case)
    first = case.eager(*inputs, **case.options)
    for _ in range(5):
        assert torch.equal(case.eager(*inputs, **case.options), first)

"""Every example program on the GPU as a torch op: opcheck, and one Inductor graph that equals the call."""

from __future__ import annotations

import pytest
import torch

from tests.programs.cases import SHORT_CASES, Case


def on_gpu(case: Case) -> tuple[object, ...]:
    torch._dynamo.reset()
    return tuple(x.cuda() if isinstance(x, torch.Tensor) else x for x in case.inputs())


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda c: c.id)
def test_opcheck(case: Case) -> None:
    inputs = on_gpu(case)
    case.eager(*inputs, **case.options)
    torch.library.opcheck(case.eager.op, inputs, case.options)


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda c: c.id)
def test_one_graph_equals_the_call(case: Case) -> None:
    inputs = on_gpu(case)
    expected = case.eager(*inputs, **case.options)
    model = torch.compile(lambda *args: case.eager(*args, **case.options), fullgraph=True)
    assert torch.equal(model(*inputs), expected)

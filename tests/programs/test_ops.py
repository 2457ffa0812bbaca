"""Every example program as a torch op: opcheck, and one graph under torch.compile that equals the call."""

from __future__ import annotations

import pytest
import torch

from tests.programs.cases import SHORT_CASES, Case

SIZES = (1, 2, 5, 6, 17, 4096)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda c: c.id)
def test_opcheck_eager(case: Case) -> None:
    inputs = case.inputs()
    case.eager(*inputs, **case.options)
    torch.library.opcheck(case.eager.op, inputs, case.options)


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda c: c.id)
def test_opcheck_lazy(case: Case) -> None:
    torch.library.opcheck(case.lazy().op, case.inputs())


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda c: c.id)
def test_one_graph_equals_the_call(case: Case) -> None:
    inputs = case.inputs()
    expected = case.eager(*inputs, **case.options)
    model = torch.compile(
        lambda *args: case.eager(*args, **case.options), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(model(*inputs), expected)


@pytest.mark.parametrize("case", SHORT_CASES, ids=lambda c: c.id)
def test_a_lazy_kernel_in_one_graph(case: Case) -> None:
    inputs = case.inputs()
    kernel = case.lazy()
    model = torch.compile(lambda *args: kernel(*args), fullgraph=True, backend="aot_eager")
    assert torch.equal(model(*inputs), kernel(*inputs))


def test_dynamic_sizes_need_few_graphs_and_two_kernels() -> None:
    import tileops
    from examples import matmul

    graphs = torch._dynamo.testing.CompileCounter()
    model = torch.compile(
        lambda a, b: matmul.matmul_dynamic(a, b, block_N=32) + 1,
        fullgraph=True,
        dynamic=True,
        backend=graphs,
    )
    before = tileops.stats()
    for n in SIZES:
        a, b = torch.randn(n, 16).half(), torch.randn(16, 24).half()
        assert torch.equal(model(a, b), matmul.matmul_dynamic(a, b, block_N=32) + 1)
    after = tileops.stats()
    assert graphs.frame_count <= 3
    made = sum(after[k] - before[k] for k in ("compiles", "disk_hits"))
    assert made <= 2

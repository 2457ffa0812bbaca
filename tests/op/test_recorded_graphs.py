"""Recorded graphs keep gradients that only later calls ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.op.differentiable import scaled_product
from tests.programs import samples

Recorder = Callable[[torch.nn.Module, torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]


class Frozen(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled_product(self.weight, x, 2.0)


class OfAKernel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(12), requires_grad=False)
        self.kernel = samples.lazy_add(12, 16)
        self.kernel.register_autograd(lambda ctx, grad: (grad, grad))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel(self.weight, x.reshape(-1))


def exported(model: torch.nn.Module, x: torch.Tensor, *, strict: bool) -> Any:
    return torch.export.export(model, (x,), strict=strict).module()


RECORDERS: dict[str, Recorder] = {
    "export": lambda model, x: exported(model, x, strict=False),
    "strict export": lambda model, x: exported(model, x, strict=True),
    "make_fx of fake tensors": lambda model, x: make_fx(
        model, tracing_mode="fake", _allow_non_fake_inputs=True
    )(x),
    "make_fx of any sizes": lambda model, x: make_fx(
        model, tracing_mode="symbolic", _allow_non_fake_inputs=True
    )(x),
}


@pytest.mark.parametrize("kind", [Frozen, OfAKernel])
@pytest.mark.parametrize("recorder", RECORDERS)
def test_recorded_without_and_run_with_a_gradient(
    recorder: str, kind: Callable[[], torch.nn.Module]
) -> None:
    model, x = kind(), torch.randn(3, 4)
    model(x)  # a call before has settled which op plain calls take
    graph = RECORDERS[recorder](model, x)
    x = torch.randn(3, 4, requires_grad=True)
    out = graph(x)
    expected = model(x)
    assert torch.equal(out, expected)
    (got,) = torch.autograd.grad(out.sum(), x)
    (want,) = torch.autograd.grad(expected.sum(), x)
    assert torch.equal(got, want)


def test_an_op_has_one_name_in_recorded_graphs() -> None:
    model, x = Frozen(), torch.randn(3, 4)
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            graph = torch.export.export(model, (x,)).graph
        names = [str(n.target) for n in graph.nodes if n.op == "call_function"]
        assert names == ["tileops.grad_scaled_product.default"]


def test_an_op_has_one_name_in_compiled_graphs() -> None:
    model, x = Frozen(), torch.randn(3, 4)
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Any:
        seen.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return graph

    assert torch.equal(torch.compile(model, fullgraph=True, backend=backend)(x), model(x))
    assert seen == ["tileops.grad_scaled_product.default"]

"""What torch can put around an op: subclasses, hooks, checkpoints, transforms, modes, workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.op import differentiable
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, NotDifferentiableError


class Plain(torch.Tensor):
    """A subclass without a rule of its own."""


class Watching(torch.Tensor):
    seen: list[object] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_and_parameters() -> None:
    x, y = vector(8), vector(8)
    out = samples.axpy(x.as_subclass(Plain), y, 2.0)
    assert type(out) is Plain
    Watching.seen.clear()
    out = samples.axpy(x, y.as_subclass(Watching), 2.0)
    assert type(out) is Watching
    assert samples.axpy.op in Watching.seen
    assert samples.axpy(torch.nn.Parameter(x), y, 2.0).requires_grad
    with torch.no_grad():
        assert torch.equal(samples.axpy(torch.nn.Parameter(x), y, 2.0), 2 * x + y)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return differentiable.scaled_product(a, b, 2.0)


def by_hooks(a: torch.Tensor, b: torch.Tensor) -> None:
    seen: list[str] = []
    out = product(a, b)
    out.register_hook(lambda grad: seen.append("out") or grad)
    a.register_hook(lambda grad: seen.append("in"))
    a.register_post_accumulate_grad_hook(lambda p: seen.append("after"))
    out.sum().backward()
    assert seen == ["out", "in", "after"]


def by_saved_hooks(a: torch.Tensor, b: torch.Tensor) -> None:
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.numpy, torch.from_numpy):
        out = product(a, b)
    out.sum().backward()


def by_checkpoint(a: torch.Tensor, b: torch.Tensor, *, reentrant: bool = False) -> None:
    checkpoint = torch.utils.checkpoint.checkpoint
    checkpoint(lambda v: product(v, b), a, use_reentrant=reentrant).sum().backward()


def by_reentrant_checkpoint(a: torch.Tensor, b: torch.Tensor) -> None:
    by_checkpoint(a, b, reentrant=True)


def under_anomaly_detection(a: torch.Tensor, b: torch.Tensor) -> None:
    with torch.autograd.detect_anomaly():
        product(a, b).sum().backward()


@pytest.mark.parametrize(
    "way",
    [by_hooks, by_saved_hooks, by_checkpoint, by_reentrant_checkpoint, under_anomaly_detection],
)
def test_ways_to_a_gradient(way: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    way(a, b)
    assert torch.equal(a.grad, 2 * b)


def test_a_sparse_incoming_gradient() -> None:
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    grad = torch.randn(2, 3).relu()
    product(a, b).backward(grad.to_sparse())
    assert torch.equal(a.grad, 2 * b * grad)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.hessian])
def test_transforms_that_custom_operators_lack_are_named(transform: Any) -> None:
    for program, message in ((product, "torch.func's transforms"), (samples.axpy, "sample_axpy: ")):
        arguments = () if program is product else (1.0,)
        with pytest.raises(NotDifferentiableError, match=message):
            transform(lambda v, f=program, r=arguments: f(v, v, *r).sum())(
                torch.ones(2, 2) if program is product else vector(4)
            )


def test_lazily_negated_views() -> None:
    x, y = vector(8), vector(8)
    assert torch.equal(samples.axpy(torch._neg_view(x), y, 2.0), y - 2 * x)
    before = y.clone()
    for call in (samples.add_into, torch.ops.tileops.sample_add_into):
        with pytest.raises(ArgumentError, match=r"argument 'Y': .*resolve_neg"):
            call(x, torch._neg_view(y))
        with pytest.raises(ArgumentError, match=r"argument 'X': .*resolve_neg"):
            call(torch._neg_view(x), y)
    assert torch.equal(y, before)


def test_modes() -> None:
    x, y = vector(8), vector(8)
    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        samples.axpy(x, y, 2.0)
    assert seen == ["tileops.sample_axpy.default"]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert samples.axpy(mode.from_tensor(x), y, 2.0).shape == (8,)
        assert samples.counted(5).device.type == "cpu"
    # Tensors that traces make internally are not the user's.
    with torch.device("meta"):
        assert torch.equal(samples.axpy(x, y, 2.0, block_N=8), 2 * x + y)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(samples.axpy(x, y, 2.0), 2 * x + y)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_batched_write_names_the_op() -> None:
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    before = y.clone()
    with pytest.raises(RuntimeError, match="sample_add_into"):
        torch.func.vmap(samples.add_into)(x, y)
    assert torch.equal(y, before)


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, n: int) -> torch.Tensor:
        return samples.axpy(torch.full((4,), float(n)), torch.ones(4), 1.0)


def test_forked_workers_call_what_the_parent_has_called() -> None:
    Rows()[0]
    batches = torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2)
    assert torch.cat(list(batches))[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_old_tracer_records_the_op() -> None:
    x, y = vector(8), vector(8)
    with pytest.warns((DeprecationWarning, FutureWarning), match="torch.jit"):
        traced = torch.jit.trace(lambda a, b: samples.axpy(a, b, 2.0), (x, y))
    assert torch.equal(traced(y, x), 2 * y + x)


class Traced(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = samples.lazy_add(6)
        self.weight = torch.nn.Parameter(torch.randn(2, 3))

    def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        y = samples.axpy(x, x, factor)
        samples.add_into(x, y)
        return differentiable.scaled_product(self.weight, self.kernel(y, y).view(2, 3), factor)


def test_symbolic_traces_record_the_ops() -> None:
    model, x = Traced(), vector(6)
    graph = torch.fx.symbolic_trace(model)
    names = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert names == [
        "tileops.sample_axpy.default",
        "tileops.sample_add_into.default",
        f"tileops.{model.kernel.name}.default",
        "tileops.grad_scaled_product.default",
    ]
    out = graph(x, 2.0)
    assert torch.equal(out, model(x, 2.0))
    out.sum().backward()
    assert torch.equal(graph.weight.grad, 2 * (8 * x).view(2, 3))


def test_a_tensor_whose_storage_was_freed() -> None:
    x, freed = vector(8), vector(8)
    freed.untyped_storage().resize_(0)
    samples.axpy(x, x, 1.0)
    for call in (lambda: samples.axpy(x, freed, 1.0), lambda: samples.add_into(x, freed)):
        with pytest.raises(ArgumentError, match=r"argument 'Y': .*whose storage was freed"):
            call()

"""Ops without a registered gradient: calls run, and a backward pass that comes to one is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, NotDifferentiableError

KERNEL = samples.lazy_add(100, 32)
WAYS: dict[str, Callable[..., Any]] = {
    "function": lambda x, y: samples.axpy(x, y, 1.0),
    "function, by keyword": lambda x, y: samples.axpy(X=x, Y=y, alpha=1.0),
    "op": lambda x, y: torch.ops.tileops.sample_axpy(x, y, 1.0),
    "op, by keyword": lambda x, y: torch.ops.tileops.sample_axpy.default(X=x, Y=y, alpha=1.0),
    "kernel": lambda x, y: KERNEL(x, y),
    "kernel's op": lambda x, y: KERNEL.op(x, y),
    "two outputs": lambda x, y: samples.sum_difference(x[None], y[None])[1],
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def refuses(out: torch.Tensor, name: str = "") -> None:
    assert out.requires_grad
    with pytest.raises(NotDifferentiableError, match=rf"{name}.*register_autograd.*no_grad"):
        out.sum().backward()


@pytest.mark.parametrize("way", WAYS)
def test_a_call_runs_and_a_backward_pass_is_refused(way: str) -> None:
    call, x, y = WAYS[way], vector(100), vector(100)
    expected = call(x, y)
    assert not expected.requires_grad
    x.requires_grad_()
    out = call(x, y)
    assert torch.equal(out, expected)
    refuses(out)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = call(x, y)
        assert torch.equal(out, expected)
        assert not out.requires_grad


def test_the_error_names_the_op() -> None:
    x, y = vector(100).requires_grad_(), vector(100)
    refuses(samples.axpy(x, y, 1.0), "sample_axpy")
    refuses(KERNEL(x, y), KERNEL.name)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("way", ["function", "op", "kernel"])
def test_in_one_graph(way: str, backend: str) -> None:
    call, x, y = WAYS[way], vector(100).requires_grad_(), vector(100)
    region = torch.compile(lambda x, y: call(x * 2, y) * 3, fullgraph=True, backend=backend)
    out = region(x, y)
    # Three products and a sum, each rounded once; a compiler may fuse them.
    bound = 4 * torch.finfo(torch.float32).eps
    assert torch.allclose(out, call(x.detach() * 2, y) * 3, rtol=bound, atol=4 * bound)
    refuses(out)
    with torch.no_grad():
        assert not region(x, y).requires_grad


def test_what_does_not_reach_the_op_has_its_gradient() -> None:
    x, y = vector(100).requires_grad_(), vector(100)
    out = samples.axpy(x, y, 1.0)
    (x * 2 + out.detach()).sum().backward()
    assert torch.equal(x.grad, torch.full((100,), 2.0))


def test_an_exported_graph_refuses_as_well() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return samples.axpy(x, y, 1.0)

    x, y = vector(100), vector(100)
    graph = torch.export.export(Model(), (x, y)).module()
    refuses(graph(x.requires_grad_(), y))


def test_transforms_of_torch_func() -> None:
    x = vector(100)

    def square(v: torch.Tensor) -> torch.Tensor:
        return samples.axpy(v, v, 1.0)

    with pytest.raises(NotDifferentiableError, match="sample_axpy"):
        torch.func.grad(lambda v: square(v).sum())(x)
    with pytest.raises(NotDifferentiableError, match="sample_axpy"):
        torch.func.vjp(square, x)[1](x)
    with pytest.raises(NotDifferentiableError, match="sample_axpy"):
        torch.vmap(torch.func.grad(lambda v: square(v).sum()))(torch.randn(3, 8))
    with pytest.raises(NotDifferentiableError, match="forward-mode"):
        torch.func.jvp(lambda v: torch.ops.tileops.sample_axpy(v, v, 1.0), (x,), (x,))


@pytest.mark.parametrize("way", ["function", "op"])
def test_a_written_argument_gets_no_gradient(way: str) -> None:
    call = samples.add_into if way == "function" else torch.ops.tileops.sample_add_into
    x, y = vector(100).requires_grad_(), vector(100)
    expected = x.detach() + y
    call(x, y)
    assert torch.equal(y, expected)
    assert not y.requires_grad


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "inductor"])
def test_a_written_argument_that_has_a_gradient_loses_it_loudly(backend: str | None) -> None:
    def region(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = y * 2
        samples.add_into(x, z)
        return z * 3

    run = torch.compile(region, fullgraph=True, backend=backend) if backend else region
    x, y = vector(100), vector(100).requires_grad_()
    out = run(x, y)
    assert torch.equal(out, (x + y.detach() * 2) * 3)
    refuses(out, "sample_add_into")


@pytest.mark.parametrize("way", ["function", "op"])
def test_a_leaf_that_requires_grad_is_not_written(way: str) -> None:
    call = samples.add_into if way == "function" else torch.ops.tileops.sample_add_into
    x, y = vector(100), vector(100).requires_grad_()
    before = y.detach().clone()
    with pytest.raises(ArgumentError, match="argument 'Y' is a leaf that requires grad"):
        call(x, y)
    assert torch.equal(y, before)
    with torch.no_grad():
        call(x, y)
    assert torch.equal(y, x + before)


def test_integers_have_no_node() -> None:
    @tileops.jit(name="without_gradient_ranks")
    def ranks(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.int32)
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = T.cast(X[bx * 64 + i], T.int32)
        return Y

    assert not ranks(vector(8).requires_grad_()).requires_grad


def test_a_gradient_of_a_user_is_taken() -> None:
    """``torch.library`` knows the op by its name, and calls of the function are calls of it."""

    @tileops.jit(name="without_gradient_doubled")
    def doubled(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * 2
        return Y

    x = vector(100).requires_grad_()
    refuses(doubled(x))
    torch.library.register_autograd("tileops::without_gradient_doubled", lambda ctx, grad: grad * 2)
    for call in (doubled, torch.ops.tileops.without_gradient_doubled):
        (grad,) = torch.autograd.grad(call(x).sum(), x)
        assert torch.equal(grad, torch.full((100,), 2.0))
        region = torch.compile(lambda x, f=call: f(x) + 1, fullgraph=True, backend="aot_eager")
        (grad,) = torch.autograd.grad(region(x).sum(), x)
        assert torch.equal(grad, torch.full((100,), 2.0))


def test_torchs_switch_for_ops_without_a_gradient_counts() -> None:
    from torch.testing._internal.optests.autograd_registration import set_autograd_fallback_mode

    x, y = vector(100).requires_grad_(), vector(100)
    with set_autograd_fallback_mode("nothing"):
        assert not samples.axpy(x, y, 1.0).requires_grad
    torch.library.opcheck(
        torch.ops.tileops.sample_axpy.default, (x, y, 1.0),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )  # fmt: skip


BATCHED: dict[str, Callable[..., Any]] = {
    "rows": lambda call, x, y: torch.vmap(lambda v: call(v * 1, y))(x),
    "columns": lambda call, x, y: torch.vmap(
        lambda v: call(v.contiguous(), y), in_dims=1, out_dims=1
    )(x),
    "two levels": lambda call, x, y: torch.vmap(torch.vmap(lambda v: call(v, y)))(x[None]),
    "what is around": lambda call, x, y: torch.vmap(lambda v: call(x[0], y) * v)(x.detach()),
}


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
@pytest.mark.parametrize("how", BATCHED)
@pytest.mark.parametrize("way", ["function", "op"])
def test_a_gradient_outside_of_vmap_is_refused(way: str, how: str, backend: str | None) -> None:
    def region(x: torch.Tensor, y: torch.Tensor) -> Any:
        return BATCHED[how](WAYS[way], x, y)

    run = torch.compile(region, fullgraph=True, backend=backend) if backend else region
    x, y = torch.randn(3, 3), vector(3)
    expected = run(x, y)
    assert not expected.requires_grad
    out = run(x.clone().requires_grad_(), y)
    assert torch.equal(out, expected)
    refuses(out, "sample_axpy")
    with torch.no_grad():
        assert not run(x.clone().requires_grad_(), y).requires_grad


def test_an_error_inside_of_vmap_keeps_its_text() -> None:
    """Torch's warning of a missing rule made a SystemError of it."""
    x, y = torch.randn(8, 3, requires_grad=True), vector(8)
    with pytest.raises(ArgumentError, match="expected a contiguous tensor"):
        torch.vmap(lambda v: samples.axpy(v, y, 1.0), in_dims=1)(x)


def test_a_batching_rule_of_a_user_is_refused_as_well() -> None:
    made = tileops.jit(name="without_gradient_batched")(samples.axpy.func)
    made.register_vmap(
        lambda info, in_dims, x, y, alpha: (
            made(x.movedim(in_dims[0], 0).reshape(-1), y.repeat(info.batch_size), alpha).view(
                info.batch_size, -1
            ),
            0,
        )
    )
    x, y = torch.randn(3, 8, requires_grad=True), vector(8)
    for call in (made, torch.ops.tileops.without_gradient_batched):
        refuses(torch.vmap(lambda v, call=call: call(v, y, 1.0))(x), "without_gradient_batched")


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a view of a leaf": lambda leaf: leaf[100:],
    "a view of a view of a leaf": lambda leaf: leaf[50:][50:],
    "a part of several": lambda leaf: (leaf * 1).split(100)[1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("way", ["function", "op"])
def test_a_view_that_torch_would_refuse_is_not_written(way: str, view: str) -> None:
    call = samples.add_into if way == "function" else torch.ops.tileops.sample_add_into
    x, leaf = vector(100), vector(200).requires_grad_()
    y = VIEWS[view](leaf)
    before = y.detach().clone()
    with pytest.raises(ArgumentError, match="sample_add_into: argument 'Y' is a view"):
        call(x, y)
    assert torch.equal(y, before)
    with torch.no_grad():
        call(x, y)
    assert torch.equal(y, x + before)


def test_a_view_of_what_is_no_leaf_is_written() -> None:
    x, base = vector(100), vector(200).requires_grad_() * 1
    before = base.detach().clone()
    samples.add_into(x, base[100:])
    assert torch.equal(base[100:], x + before[100:])
    refuses(base, "sample_add_into")

"""Registered gradients: values, double backward, layouts of gradients, torch.compile, refusals."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.autograd import forward_ad

import tileops
import tileops.language as T
from tests.op.differentiable import matrix, scaled_product, split
from tests.programs import samples
from tileops.errors import ArgumentError, ArgumentTypeError, NotDifferentiableError


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def gradients(function, inputs, weight):
    out = function(*inputs)
    return torch.autograd.grad((out * weight).sum(), inputs)


def test_gradcheck_and_gradgradcheck_in_float64() -> None:
    x, y = (matrix(3, 5, dtype=torch.float64) for _ in range(2))

    def call(a, b):
        return scaled_product(a, b, 0.5, dtype="float64")

    assert torch.autograd.gradcheck(call, (x, y))
    assert torch.autograd.gradgradcheck(call, (x, y))


def test_the_op_and_the_function_have_the_same_gradient() -> None:
    x, y = matrix(4, 7), matrix(4, 7)
    weight = torch.randn(4, 7)
    op = torch.ops.tileops.grad_scaled_product
    expected = gradients(lambda a, b: 3.0 * a * b, (x, y), weight)
    for call in (scaled_product, op):
        got = gradients(lambda a, b, call=call: call(a, b, 3.0), (x, y), weight)
        for g, e in zip(got, expected, strict=True):
            # three products and their roundings, whatever their order
            assert torch.allclose(g, e, rtol=4 * torch.finfo(torch.float32).eps, atol=0)


@pytest.mark.parametrize("layout", ["expanded", "transposed", "strided"])
def test_incoming_gradients_of_any_layout(layout: str) -> None:
    x, y = matrix(6, 6), matrix(6, 6)
    out = scaled_product(x, y, 1.0)
    grad = {
        "expanded": torch.tensor(2.0).expand(6, 6),
        "transposed": torch.randn(6, 6).t(),
        "strided": torch.randn(6, 12)[:, ::2],
    }[layout]
    dx, dy = torch.autograd.grad(out, (x, y), grad)
    assert torch.equal(dx, grad * y)
    assert torch.equal(dy, grad * x)


def test_only_the_needed_gradients_are_computed() -> None:
    x, y = matrix(3, 3), torch.randn(3, 3)
    before = tileops.stats()["launches"]
    out = scaled_product(x, y, 1.0)
    out.sum().backward()
    assert torch.equal(x.grad, y)
    assert y.grad is None
    assert tileops.stats()["launches"] - before == 2


def test_a_tensor_used_twice() -> None:
    x = matrix(3, 3)
    out = scaled_product(scaled_product(x, x, 1.0), x, 1.0)
    out.sum().backward()
    # x^3: three products of the gradient are summed
    assert torch.allclose(x.grad, 3 * x.detach() ** 2, rtol=8 * torch.finfo(torch.float32).eps)


def test_two_outputs_of_which_one_is_used() -> None:
    x = torch.randn(50, requires_grad=True)
    p, q = split(x)
    (dx,) = torch.autograd.grad(p.sum() * 2 + q.sum() * 3, x)
    assert torch.equal(dx, torch.where(x > 0, 2.0, 3.0))
    _, q = split(x)
    (dx,) = torch.autograd.grad(q.sum(), x)
    assert torch.equal(dx, torch.where(x > 0, 0.0, 1.0))


def test_a_backward_without_a_gradient_of_its_own_refuses_to_be_differentiated() -> None:
    x = torch.randn(50, requires_grad=True)
    p, q = split(x)
    (dx,) = torch.autograd.grad((p * p + q).sum(), x, create_graph=True)
    with pytest.raises(NotDifferentiableError, match="grad_split_backward"):
        dx.sum().backward()


def test_calls_that_need_no_gradient_pass_its_rule_by(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = matrix(3, 3), matrix(3, 3)
    op = torch.ops.tileops.grad_scaled_product.default
    seen: list[str] = []
    redispatch = torch._ops.OpOverload.redispatch

    def counted(self, keyset, *args, **kwargs):
        seen.append(str(self))
        return redispatch(self, keyset, *args, **kwargs)

    # What torch's rule for a gradient in Python goes on with.
    monkeypatch.setattr(torch._ops.OpOverload, "redispatch", counted)
    for call in (scaled_product, torch.ops.tileops.grad_scaled_product, op):
        seen.clear()
        assert not call(x.detach(), y.detach(), 1.0).requires_grad
        with torch.no_grad():
            assert not call(x, y, 1.0).requires_grad
        assert not seen
        assert call(x, y.detach(), 1.0).requires_grad
        assert seen == [str(op)]


def test_calls_with_and_without_a_gradient_share_their_kernels() -> None:
    x, y = matrix(3, 3), matrix(3, 3)
    scaled_product(x, y, 1.0)
    before = tileops.stats()
    scaled_product(x.detach(), y.detach(), 1.0)
    torch.ops.tileops.grad_scaled_product(x, y, 1.0)
    after = tileops.stats()
    assert [after[k] - before[k] for k in ("compiles", "disk_hits", "loads")] == [0, 0, 0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_in_one_graph(backend: str) -> None:
    x, y = matrix(4, 6), matrix(4, 6)

    def model(a, b):
        p, q = split((scaled_product(a, b, 0.5) + a).reshape(-1))
        return (p * 2 + q).sum()

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    expected = torch.autograd.grad(model(x, y), (x, y))
    got = torch.autograd.grad(compiled(x, y), (x, y))
    for g, e in zip(got, expected, strict=True):
        assert torch.allclose(g, e, rtol=4 * torch.finfo(torch.float32).eps, atol=1e-7)


def test_dynamic_sizes_in_one_graph() -> None:
    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    model = torch.compile(
        lambda a, b: scaled_product(a, b, 2.0), fullgraph=True, dynamic=True, backend=graphs
    )
    for n in (2, 3, 17, 100):
        x, y = matrix(5, n), matrix(5, n)
        model(x, y).sum().backward()
        assert torch.equal(x.grad, 2 * y)
    assert graphs.frame_count <= 2


def test_opcheck() -> None:
    op = torch.ops.tileops.grad_scaled_product.default
    torch.library.opcheck(op, (matrix(4, 6), matrix(4, 6), 0.5))
    torch.library.opcheck(op, (torch.randn(0, 6), matrix(0, 6), 0.5), {"block_N": 64})
    torch.library.opcheck(op, (torch.randn(4, 6), torch.randn(4, 6), 0.5))
    torch.library.opcheck(split.op, (torch.randn(9, requires_grad=True),))


def test_a_first_call_in_a_backward_thread() -> None:
    @tileops.jit(name="grad_first_in_backward")
    def negate(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = -X[bx * 64 + i]
        return Y

    seen: list[threading.Thread] = []

    class Negated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return -x

        @staticmethod
        def backward(ctx, grad):
            seen.append(threading.current_thread())
            return negate(grad.contiguous())

    x = torch.randn(100, requires_grad=True)

    def work() -> None:
        Negated.apply(x).sum().backward()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert torch.equal(x.grad, torch.full((100,), -1.0))
    assert seen != [threading.main_thread()]


def test_a_program_registered_at_its_first_call() -> None:
    @tileops.jit(name="grad_late")
    def double(X, dtype):
        N = T.dynamic("N")
        X: T.Tensor((N,), dtype)
        Y = T.empty((N,), dtype)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * 2
        return Y

    double.register_autograd(lambda ctx, grad: grad * 2)
    x = torch.randn(10, requires_grad=True)
    double(x, "float32").sum().backward()
    assert torch.equal(x.grad, torch.full((10,), 2.0))
    assert torch.equal(double(x.detach(), "float32"), 2 * x.detach())
    region = torch.compile(lambda x: double(x, "float32"), fullgraph=True, backend="aot_eager")
    (dx,) = torch.autograd.grad(region(x).sum(), x)
    assert torch.equal(dx, x.grad)


def test_a_later_registration_replaces_the_earlier() -> None:
    @tileops.jit(name="grad_replaced")
    def same(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i]
        return Y

    x = torch.randn(10, requires_grad=True)
    for factor in (1.0, 5.0):
        same.register_autograd(lambda ctx, grad, factor=factor: grad * factor)
        (dx,) = torch.autograd.grad(same(x).sum(), x)
        assert torch.equal(dx, torch.full((10,), factor))


def test_a_gradient_registered_after_a_compiled_call() -> None:
    @tileops.jit(name="grad_after_compile")
    def double(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * 2
        return Y

    region = torch.compile(lambda x: double(x) + 1, fullgraph=True, backend="aot_eager")
    x = torch.ones(4)
    assert torch.equal(region(x), torch.full((4,), 3.0))
    double.register_autograd(lambda ctx, grad: grad * 2)
    x.requires_grad_()
    region(x).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 2.0))


def test_a_kernel_of_a_lazy_function() -> None:
    kernel = samples.lazy_add(96, 32)
    x, y = (torch.randn(96, requires_grad=True) for _ in range(2))
    with pytest.raises(NotDifferentiableError, match="register_autograd"):
        kernel(x, y).sum().backward()
    kernel.register_autograd(lambda ctx, grad: (grad, grad))
    (kernel(x, y) * 3).sum().backward()
    assert torch.equal(x.grad, torch.full((96,), 3.0))
    region = torch.compile(lambda x, y: kernel(x, y) * 3, fullgraph=True, backend="aot_eager")
    (dx,) = torch.autograd.grad(region(x, y).sum(), x)
    assert torch.equal(dx, x.grad)


@pytest.mark.parametrize("with_gradient", [False, True])
def test_a_tangent_is_refused_and_not_dropped(with_gradient: bool) -> None:
    x, tangent = torch.randn(3, 5), torch.ones(3, 5)
    kernel = samples.lazy_add(5, 64)

    def function(a):
        return scaled_product(a, x, 0.5) if with_gradient else samples.axpy(a[0], x[0], 0.5)

    for call in (function, lambda a: kernel(a[0], x[0])):
        with pytest.raises(NotDifferentiableError, match="forward-mode"):
            torch.func.jvp(call, (x,), (tangent,))
        with forward_ad.dual_level():
            with pytest.raises(NotDifferentiableError, match="forward-mode"):
                call(forward_ad.make_dual(x, tangent))
            assert torch.equal(call(x), call(x.clone()))  # what has no tangent runs
    assert torch.equal(function(x), function(x.clone()))


def test_what_can_have_no_gradient() -> None:
    with pytest.raises(ArgumentError, match="writes 'Y'"):
        samples.add_into.register_autograd(lambda ctx: None)
    with pytest.raises(ArgumentTypeError, match="backward must be a function"):
        samples.axpy.register_autograd(3)
    with pytest.raises(ArgumentError, match="of a kernel"):
        samples.lazy_add.register_autograd(lambda ctx, grad: grad)

    @tileops.jit(name="grad_declared_none", differentiable=False)
    def program(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i]
        return Y

    with pytest.raises(ArgumentError, match="differentiable=False"):
        program.register_autograd(lambda ctx, grad: grad)

"""Optional tensors: ``Tensor?`` in the schema, None in the program, a program for each choice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import ArgumentError, ArgumentTypeError, CompileMissError
from tileops.op.spec import OpSpec


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@tileops.jit(name="optional_affine")
def affine(X, scale=None, bias=None, block_N: int = 64):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    scale: T.Tensor((N,), T.float32)
    bias: T.Tensor((N,), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            value = X[bx, by * block_N + i]
            if scale is not None:
                value = value * scale[by * block_N + i]
            if bias is not None:
                value = value + bias[by * block_N + i]
            Y[bx, by * block_N + i] = value
    return Y


@tileops.jit(name="optional_then_scalar")
def shifted(X, offset=None, alpha: T.float32 = 1.0, block_N: int = 64):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    offset: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            value = X[bx * block_N + i] * alpha
            Y[bx * block_N + i] = value if offset is None else value + offset[bx * block_N + i]
    return Y


def reference(x, scale, bias):
    out = x if scale is None else x * scale
    return out if bias is None else out + bias


def test_schema() -> None:
    assert str(affine.op._schema) == (
        "tileops::optional_affine(Tensor X, Tensor? scale=None, Tensor? bias=None, *, "
        "int? block_N=None) -> Tensor"
    )
    assert str(shifted.op._schema) == (
        "tileops::optional_then_scalar(Tensor X, Tensor? offset, float alpha, *, "
        "int? block_N=None) -> Tensor"
    )


@pytest.mark.parametrize("program", [affine, shifted])
def test_the_spec_survives_its_json(program: tileops.JITImpl) -> None:
    spec = program._eager.op.spec
    assert OpSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    copying = replace(spec, copies_inputs=True)
    assert OpSpec.from_json(copying.to_json()) == copying


@pytest.mark.parametrize("with_scale", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_values(with_scale: bool, with_bias: bool) -> None:
    x = torch.randn(5, 100)
    scale = torch.randn(100) if with_scale else None
    bias = torch.randn(100) if with_bias else None
    expected = reference(x, scale, bias)
    assert torch.equal(affine(x, scale, bias), expected)
    assert torch.equal(affine(x, bias=bias, scale=scale, block_N=32), expected)
    assert torch.equal(torch.ops.tileops.optional_affine(x, scale, bias), expected)
    torch.library.opcheck(affine.op, (x, scale, bias))


def test_left_out() -> None:
    x, y = torch.randn(3, 10), torch.randn(10)
    assert torch.equal(affine(x), x)
    assert torch.equal(affine(x, y), x * y)
    assert torch.equal(shifted(x[0]), x[0])
    assert torch.equal(shifted(x[0], alpha=2.0), x[0] * 2)
    assert torch.equal(shifted(x[0], y, 2.0), x[0] * 2 + y)


def test_in_one_graph() -> None:
    x, y = torch.randn(3, 10), torch.randn(10)

    def model(x, y):
        return affine(x, bias=y) + affine(x) + shifted(x[0], None, 3.0)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, y), model(x, y))


def test_gradient() -> None:
    def backward(ctx, grad):
        needed = ctx.needs_input_grad
        return grad * ctx.scale if ctx.scale is not None else grad, None, needed[2] and grad.sum(0)

    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]

    affine.register_autograd(backward, setup_context=setup_context)
    x, y = torch.randn(3, 10, requires_grad=True), torch.randn(10, requires_grad=True)
    (affine(x, None, y) * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 10), 2.0))
    assert torch.equal(y.grad, torch.full((10,), 6.0))
    assert not affine(x.detach(), None, y.detach()).requires_grad


def test_a_kernel_without_the_tensor() -> None:
    x, y = torch.randn(4, 32), torch.randn(32)
    assert torch.equal(affine.compile(M=4, N=32, scale=None)(x, y), x + y)
    assert torch.equal(affine.compile(x, None, None)(x), x)


def test_what_is_given_is_checked() -> None:
    x = torch.randn(3, 10)
    with pytest.raises(ArgumentError, match="argument 'bias': expected dimension 0 to be 10"):
        affine(x, None, torch.randn(9))
    with pytest.raises(ArgumentTypeError, match="argument 'scale': expected a tensor, got float"):
        affine(x, 2.0)
    with pytest.raises(ArgumentTypeError, match="argument 'X': expected a tensor, got NoneType"):
        affine(None)


def test_warmup_of_tensors_that_are_left_out() -> None:
    x, scale = torch.randn(5, 72), torch.randn(72)
    forms = [(affine, x, None, None), (affine, x, scale, None), (affine, x, None, scale)]
    assert tileops.warmup(forms) == 6
    with tileops.option.strict():
        assert torch.equal(affine(x), x)
        assert torch.equal(affine(x, scale), x * scale)
        assert torch.equal(affine(x, bias=scale), x + scale)
        with pytest.raises(CompileMissError):
            affine(x, scale, scale)

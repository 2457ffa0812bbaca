"""A linear layer: its gradients, what it saves, few rows, errors, roles on Hopper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.kit.schedules import HOPPER
from tests.ops.recorded import recorded
from tileops import ops
from tileops.codegen import gpu
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.compiler import compile_kernel
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import decompositions
from tileops.ops.programs.linear import ACTIVATIONS, FEW_ROWS
from tileops.ops.programs.linear import linear as program

X, W, B, R = (torch.randn(n, dtype=torch.float64) for n in ((5, 7), (9, 7), (9,), (5, 9)))


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 1, 2, 3)], ids=str)
def test_some_gradients(activation: str | None, wanted: tuple[int, ...]) -> None:
    def gradients(layer: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        x, w, b, r = (t.clone().requires_grad_(n in wanted) for n, t in enumerate((X, W, B, R)))
        out = layer(x, w, b, activation=activation, residual=r)
        leaves = [t for n, t in enumerate((x, w, b, r)) if n in wanted]
        return (out.detach(), *torch.autograd.grad(out.square().sum(), leaves))

    for a, b in zip(gradients(ops.linear), gradients(decompositions.linear), strict=True):
        torch.testing.assert_close(a, b)


def test_products_are_saved_for_the_gradient_of_an_activation_alone() -> None:
    def saved(*tensors: torch.Tensor, **options: Any) -> int:
        (call,) = recorded(lambda: ops.linear(*tensors, **options), (), {})
        return call.op(*call.arguments, **call.options)[1].numel()

    assert saved(X, W, activation="gelu") == 0  # recorded without gradients
    op = getattr(torch.ops, ops.NAMESPACE).linear
    assert op(X, W, None, None, activation="gelu")[1].shape == (5, 9)
    assert op(X, W, None, None)[1].numel() == 0
    leaf = X.clone().requires_grad_()
    for with_products in (False, True):
        out, _ = op(leaf, W, None, None, activation="gelu", with_products=with_products)
        (d,) = torch.autograd.grad(out.sum(), leaf)
        expected = decompositions.linear(leaf, W, activation="gelu")
        torch.testing.assert_close(d, *torch.autograd.grad(expected.sum(), leaf))


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (0,), (FEW_ROWS + 3,)])
def test_leading_dimensions(leading: tuple[int, ...]) -> None:
    x = torch.randn(*leading, 7, dtype=torch.float64)
    torch.testing.assert_close(ops.linear(x, W, B), torch.nn.functional.linear(x, W, B))


def test_flops() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    with FlopCounterMode(display=False) as counter:
        ops.linear(x, w, B, activation="silu").sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 5 * 7 * 9


def code_of(
    rows: int, *, beside: bool, dtype: torch.dtype = torch.bfloat16, **options: Any
) -> KernelCode:
    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    others = (empty(1024), empty(rows, 1024)) if beside else (None, None)
    made = program.get_tir(empty(rows, 512), empty(1024, 512), *others, **options)
    return gpu.generate(made, HOPPER, Specialization(fast=True))


def test_a_sum_of_float32_is_one_of_short_sums() -> None:
    """Beside torch's, whose libraries divide long sums, one of 4,096 terms lost 2.5 times as much."""
    text = code_of(512, beside=False, dtype=torch.float32).source
    assert "sums = tl.dot(" in text
    assert "acc = acc + sums" in text
    assert "acc = acc + sums" not in code_of(512, beside=False).source


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_roles_on_hopper(beside: bool, activation: str) -> None:
    code = code_of(512, beside=beside, activation=activation)
    (launch,) = code.launches
    assert launch.language == "gluon"
    assert "math 2 x 4 warps" in launch.notes[0]
    # With erf a thread keeps two registers in memory, once a tile.
    assert compile_kernel(code, HOPPER, {}).launches[0].spills <= 8


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.linear(X[0, 0], W), ArgumentError, "input: .* got a number"),
        (lambda: ops.linear(X, W.t()), ArgumentError, r"weight: .* 7\), got \(7, 9\)"),
        (lambda: ops.linear(X, W.float()), ArgumentTypeError, "weight: .* float64, got float32"),
        (lambda: ops.linear(X, W, B[:3]), ArgumentError, r"bias: .* \(9,\), got \(3,\)"),
        (lambda: ops.linear(X, W, residual=X), ArgumentError, r"residual: .* \(5, 9\), got \(5, 7\)"),
        (lambda: ops.linear(X, W, activation="tanh"), ArgumentError, "activation: .* got 'tanh'"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"linear: {text}"):
        call()

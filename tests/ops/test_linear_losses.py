"""The loss of a linear layer: chunks, FLOPs, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tileops import ops
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import linear_losses

X, W = torch.randn(10, 6, dtype=torch.float64), torch.randn(7, 6, dtype=torch.float64)
TARGET = torch.arange(10) % 7


def gradients() -> tuple[torch.Tensor, ...]:
    x, w = (t.clone().requires_grad_() for t in (X, W))
    bias = torch.linspace(0, 1, 7, dtype=torch.float64, requires_grad=True)
    loss = ops.linear_cross_entropy(x, w, TARGET, linear_bias=bias, z_loss=0.1)
    return (loss, *torch.autograd.grad(loss, (x, w, bias)))


def test_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gradients()
    monkeypatch.setattr(linear_losses, "CHUNK_BYTES", 3 * 7 * 8)  # three rows
    sizes = [s.stop - s.start for s in linear_losses._chunks(X, W)]
    assert sizes == [3, 3, 3, 3]
    for a, b in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)], ids=str)
def test_flops_of_the_gradients_that_are_wanted(wanted: tuple[int, ...]) -> None:
    inputs = [t.clone().requires_grad_(n in wanted) for n, t in enumerate((X, W))]
    with FlopCounterMode(display=False) as counter:
        loss = ops.linear_cross_entropy(*inputs, TARGET)
        assert counter.get_total_flops() == 2 * 10 * 6 * 7
        torch.autograd.grad(loss, [inputs[n] for n in wanted])
    assert counter.get_total_flops() == (2 + len(wanted)) * 2 * 10 * 6 * 7


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.linear_cross_entropy(X[None], W, TARGET), ArgumentError, "input: .* one or two"),
        (lambda: ops.linear_cross_entropy(X, W.t(), TARGET), ArgumentError, r"linear_weight: .* \(6, 7\)"),
        (lambda: ops.linear_cross_entropy(X, W.float(), TARGET), ArgumentTypeError, "linear_weight: .* float32"),
        (lambda: ops.linear_cross_entropy(X, W, TARGET[:3]), ArgumentError, r"target: .* got \(3,\)"),
        (lambda: ops.linear_cross_entropy(X, W, TARGET, linear_bias=X[0]), ArgumentError, "linear_bias: "),
        (lambda: ops.linear_cross_entropy(X, W, TARGET, reduction="m"), ArgumentError, "reduction: .* 'm'"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"linear_cross_entropy: {text}"):
        call()

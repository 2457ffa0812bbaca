"""Rotary embedding: layouts, shapes of the angles, gradients, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tileops import ops
from tileops.errors import ArgumentError, ArgumentTypeError

B, H, G, S, D = 2, 4, 2, 5, 8


def partner(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def eager(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    cos, sin = (a.unsqueeze(-3) for a in (cos, sin))
    return x * cos + partner(x, interleaved) * sin


def inputs(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(B, heads, S, D, dtype=dtype) for heads in (H, G))


def few() -> tuple[torch.Tensor, ...]:
    """Queries, keys, cosines and sines for numerical derivatives, which take a call an element."""
    angles = torch.randn(2, 2, 4, dtype=torch.float64)  # halves that differ
    heads = (torch.randn(1, n, 2, 4, dtype=torch.float64).requires_grad_() for n in (2, 1))
    return *heads, *angles


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize("shape", [(S, D), (1, S, D), (B, S, D)], ids=str)
def test_the_shapes_of_the_angles(shape: tuple[int, ...], interleaved: bool) -> None:
    cos, sin = torch.randn(2, *shape, dtype=torch.float64)
    q, k = inputs()
    new = ops.rope(q, k, cos, sin, interleaved=interleaved)
    for x, y in zip((q, k), new, strict=True):
        torch.testing.assert_close(y, eager(x, cos, sin, interleaved))


def test_one_rounding() -> None:
    cos, sin = torch.randn(2, S, D)
    q, k = inputs(torch.bfloat16)
    for x, y in zip((q, k), ops.rope(q, k, cos, sin), strict=True):
        exact = eager(x.double(), cos.double(), sin.double(), False)
        assert (y.double() - exact).abs().max() <= torch.finfo(
            torch.bfloat16
        ).eps * exact.abs().max()


def test_layouts() -> None:
    cos, sin = torch.randn(2, S, D, dtype=torch.float64)
    q, k = inputs()
    expected = ops.rope(q, k, cos, sin)
    views = [x.transpose(1, 2).contiguous() for x in (q, k)]
    for a, b in zip(ops.rope(*views, cos, sin, unsqueeze_dim=2), expected, strict=True):
        assert torch.equal(a.transpose(1, 2), b)
    for a, b in zip(ops.rope(*(v.transpose(1, 2) for v in views), cos, sin), expected, strict=True):
        assert torch.equal(a, b)
    strided = [torch.stack((x, x), -1).flatten(-2)[..., ::2] for x in (q, k)]
    for a, b in zip(ops.rope(*strided, cos, sin), expected, strict=True):
        assert torch.equal(a, b)


def test_positions() -> None:
    cos, sin = torch.randn(2, 20, D, dtype=torch.float64)
    positions = torch.tensor([[3, 0, 19, 7, 7], [1, 2, 3, 4, 5]])
    q, k = inputs()
    new = ops.rope(q, k, cos, sin, position_ids=positions)
    torch.testing.assert_close(new[0], eager(q, cos[positions], sin[positions], False))


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
def test_gradients(interleaved: bool) -> None:
    """The gradient is a rotation, which has a gradient."""
    q, k, cos, sin = few()

    def call(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ops.rope(q, k, cos, sin, interleaved=interleaved)

    assert torch.autograd.gradcheck(call, (q, k))
    assert torch.autograd.gradgradcheck(call, (q, k))


def test_no_position() -> None:
    q, k, angles = torch.zeros(B, H, 0, D), torch.zeros(B, G, 0, D), torch.zeros(0, D)
    assert ops.rope(q, k, angles, angles)[0].shape == q.shape


Q, K = inputs(torch.float32)
ANGLES = torch.zeros(S, D)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.rope(Q, K[:1], ANGLES, ANGLES), ArgumentError, "rope: key: .* but for heads"),
        (
            lambda: ops.rope(Q[0], K, ANGLES, ANGLES),
            ArgumentError,
            "rope: query: .* four dimensions",
        ),
        (
            lambda: ops.rope(Q, K.double(), ANGLES, ANGLES),
            ArgumentError,
            "rope: key: .* dtype of query",
        ),
        (
            lambda: ops.rope(Q, K, ANGLES[:3], ANGLES[:3]),
            ArgumentError,
            r"rope: cos: .* got \(3, 8\)",
        ),
        (lambda: ops.rope(Q, K, ANGLES, ANGLES[:3]), ArgumentError, r"rope: sin: .* got \(3, 8\)"),
        (
            lambda: ops.rope(Q, K, ANGLES.int(), ANGLES),
            ArgumentTypeError,
            "rope: cos: .* got int32",
        ),
        (
            lambda: ops.rope(Q, K, ANGLES, ANGLES, unsqueeze_dim=0),
            ArgumentError,
            "unsqueeze_dim: .* 0",
        ),
        (
            lambda: ops.rope(Q, K, ANGLES.clone().requires_grad_(), ANGLES),
            ArgumentError,
            "rope: cos, sin: expected tensors without gradients",
        ),
    ],
)
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_the_op_takes_angles_of_one_or_every_batch() -> None:
    with pytest.raises(ArgumentError, match=r"rope: .*cos"):
        torch.ops.tileops_ops.rope(Q, K, *torch.zeros(2, B + 1, S, D), per_batch=True)
    with pytest.raises(ArgumentError, match=r"rope: .*cos"):
        torch.ops.tileops_ops.rope(Q, K, *torch.zeros(2, B, S, D))

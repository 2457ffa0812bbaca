"""Attention of packed sequences: each is as if it were alone; schedules on Hopper; errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.kit.schedules import HOPPER
from tileops import ops
from tileops.codegen import gpu
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops.programs.varlen_attention import varlen_attention, varlen_attention_backward

OF_QUERIES = torch.tensor([0, 3, 3, 143, 150], dtype=torch.int32)
OF_KEYS = torch.tensor([0, 5, 9, 149, 149], dtype=torch.int32)


def packed() -> list[torch.Tensor]:
    """Sequences with more and with fewer keys than queries, without a query, without a key."""
    shapes = ((150, 4, 8), (149, 2, 8), (149, 2, 12), (4,))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("right", [0, -1])
@pytest.mark.parametrize("starts", [torch.int32, torch.int64], ids=str)
def test_each_sequence_is_as_if_it_were_alone(right: int, starts: torch.dtype) -> None:
    q, k, v, sinks = packed()
    cu_q, cu_k = OF_QUERIES.to(starts), OF_KEYS.to(starts)
    out, lse = ops.varlen_attention(
        q, k, v, cu_q, cu_k, 140, 140, window_size=(-1, right), sinks=sinks, return_lse=True
    )
    alone = []
    for (a, b), (c, d) in zip(
        pairwise(OF_QUERIES.tolist()), pairwise(OF_KEYS.tolist()), strict=True
    ):
        # The alignment of the last query and the last key, which is_causal does not have.
        at = torch.arange(a, b)[:, None] - a + (d - c) - (b - a)
        hidden = torch.arange(c, d) - c > at if right == 0 else torch.zeros(b - a, d - c).bool()
        k_, v_ = (x[c:d].repeat_interleave(2, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[a:b], k_) * 8**-0.5
        scores = scores.masked_fill(hidden, -torch.inf)
        every = torch.cat((scores, sinks[:, None, None].expand(4, b - a, 1)), -1)
        weights = every.softmax(-1)[..., :-1]
        alone.append((torch.einsum("hqk,khd->qhd", weights, v_), every.logsumexp(-1)))
    expected = torch.cat([x for x, _ in alone]), torch.cat([x for _, x in alone], 1)
    torch.testing.assert_close((out, lse), expected)
    grads = [torch.randn_like(x) for x in expected]
    found = torch.autograd.grad((out, lse), (q, k, v, sinks), grads)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (q, k, v, sinks), grads))


def test_one_tensor_of_starts_and_no_sequence() -> None:
    q, k, v = (x[:149] for x in packed()[:3])
    one = ops.varlen_attention(q, k, v, OF_KEYS, None, 140, 140)
    assert torch.equal(one, ops.varlen_attention(q, k, v, OF_KEYS, OF_KEYS, 149, 149))
    empty = ops.varlen_attention(q[:0], k[:0], v[:0], OF_KEYS[:1], None, 0, 0)
    assert empty.shape == (0, 4, 12)


@pytest.mark.parametrize("width", [64, 128, 256])
def test_roles_on_hopper(width: int) -> None:
    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")

    q, k = empty(512, 4, width), empty(512, 2, width)
    starts = torch.empty(3, dtype=torch.int32, device="meta")
    sums = torch.empty(4, 512, device="meta")
    for program, inputs, languages in (
        (varlen_attention, (q, k, k, starts, starts, None), ["gluon"]),
        (
            varlen_attention_backward, (q, q, q, k, k, starts, starts, sums, None),
            ["triton", "gluon", "gluon"],
        ),
    ):  # fmt: skip
        made = program.get_tir(*inputs, scale=width**-0.5, right=0)
        code = gpu.generate(made, HOPPER, Specialization(fast=True))
        assert [launch.language for launch in code.launches] == languages


Q, K, V, _ = (x.detach() for x in packed())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((Q[0], K, V, OF_QUERIES, OF_KEYS, 9, 9), ArgumentError, r"query: .* got \(4, 8\)"),
        ((Q, K.float(), V, OF_QUERIES, OF_KEYS, 9, 9), ArgumentTypeError, "key: .* got float32"),
        ((Q, K, V[:3], OF_QUERIES, OF_KEYS, 9, 9), ArgumentError, r"value: .* \(149, 2\), got \(3, 2\)"),
        ((Q[:, :3], K, V, OF_QUERIES, OF_KEYS, 9, 9), ArgumentError, "key: .* query's 3 .* got 2"),
        ((Q, K, V, OF_QUERIES.float(), OF_KEYS, 9, 9), ArgumentTypeError, "cu_seq_q: .*int32 or int64"),
        ((Q, K, V, OF_QUERIES, OF_KEYS[:2], 9, 9), ArgumentError, r"cu_seq_k: .* got \(2,\)"),
        ((Q, K, V, OF_QUERIES, OF_KEYS, 9.5, 9), ArgumentTypeError, "max_q: .* got float"),
        ((Q, K, V, OF_QUERIES, OF_KEYS, 9, -1), ArgumentError, "max_k: expected 0 or more, got -1"),
    ],
)  # fmt: skip
def test_what_does_not_fit(arguments: Any, error: type[Exception], text: str) -> None:
    call: Callable[..., Any] = ops.varlen_attention
    with pytest.raises(error, match=f"varlen_attention: {text}"):
        call(*arguments)

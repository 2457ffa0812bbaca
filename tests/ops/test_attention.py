"""Attention: edges, layouts, masks that hide whole rows, sinks, and its schedules on Hopper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.kit.schedules import HOPPER
from tests.ops.recorded import recorded
from tileops import ops
from tileops.codegen import gpu, triton
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import decompositions
from tileops.ops.programs.attention import attention
from tileops.ops.programs.attention_gradient import attention_backward
from tileops.testing.interpreter import interpret
from tileops.testing.simulation import simulate

Tensors = list[torch.Tensor]
INF, NAN = float("inf"), float("nan")


def heads(*lengths: int, count: int = 4, width: int = 8, dtype: Any = torch.float64) -> Tensors:
    """Queries of ``count`` heads, keys and values of two; ``lengths`` are theirs."""
    of_queries, of_keys = lengths[0], lengths[-1]
    return [
        torch.randn(2, count, of_queries, width).to(dtype).requires_grad_(),
        *(torch.randn(2, 2, of_keys, width).to(dtype).requires_grad_() for _ in range(2)),
    ]


def agree(inputs: Tensors, **options: Any) -> None:
    """Results and gradients of the operator and of torch's operations are close."""
    found, expected = (
        call(*inputs[:3], **options) for call in (ops.attention, decompositions.attention)
    )
    found, expected = ((x if isinstance(x, tuple) else (x,)) for x in (found, expected))
    grads = [torch.randn_like(x) for x in expected]
    leaves = [*inputs, *([options["sinks"]] if "sinks" in options else [])]
    for results in (
        (found, expected),
        (torch.autograd.grad(x, leaves, grads) for x in (found, expected)),
    ):
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("lengths", [(5, 9), (9, 5), (1, 1), (1, 140), (140, 1), (3, 0), (0, 3)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window_size": (2, -1)}], ids=str)
def test_lengths(lengths: tuple[int, int], options: dict[str, Any]) -> None:
    agree(heads(*lengths), **options)


def test_a_query_that_sees_nothing_gives_zero() -> None:
    """Queries from 8 on are too far behind the last key."""
    q, k, v = heads(12, 5)
    out, lse = ops.attention(q, k, v, window_size=(3, 0), return_lse=True)
    assert torch.equal(lse.isinf(), (torch.arange(12) >= 8).expand(2, 4, 12))
    assert not out[..., 8:, :].any()
    grads = torch.autograd.grad(out.sum() + lse[..., :8].sum(), (q, k, v))
    assert all(g.isfinite().all() for g in grads)
    assert not grads[0][..., 8:, :].any()
    agree([q, k, v], window_size=(3, 0), sinks=torch.randn(4, dtype=torch.float64).requires_grad_())


@pytest.mark.parametrize("shift", [-400.0, 400.0])
def test_large_scores_stay_finite(shift: float) -> None:
    """exp of the log sums, or of their negatives, is infinite in float32."""
    q, k, v = (x.detach() for x in heads(20, 20, count=2, dtype=torch.float32))
    q[..., 0], k[..., 0] = shift, 1.0
    inputs = [q, k, v, torch.tensor([0.0, 300.0])]

    def results(call: Callable[..., Any], dtype: torch.dtype) -> Tensors:
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        out = call(*leaves[:3], scale=1.0, sinks=leaves[3])
        return [out.detach(), *torch.autograd.grad(out.sum(), leaves)]

    exact = results(decompositions.attention, torch.float64)
    for a, b in zip(results(ops.attention, torch.float32), exact, strict=True):
        # A score of 400 is off by half a unit, 2^-16, and so is the logarithm of a weight. Each
        # result is a sum of 20 products with weights.
        atol = 20 * 2**-16 * max(1.0, float(b.abs().max()))
        torch.testing.assert_close(a.double(), b, rtol=0, atol=atol)


def test_nan_and_infinity_come_through() -> None:
    q, k, v = (x.detach() for x in heads(6, 6, count=2))
    q[0, 0, 2, 0], k[0, 1, 3, 0], v[1, 0, 5, 0] = NAN, INF, NAN
    q[0, 1, 4, 0] = 1.0
    found = ops.attention(q, k, v)
    expected = (q @ k.mT * 8**-0.5).softmax(-1) @ v  # torch's own function gives 0 for NaN
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.isnan().any()
    assert not found.isnan().all()


@pytest.mark.parametrize("scale", [1.0, 0.0, -0.7, 1e-30])
def test_scales(scale: float) -> None:
    agree(heads(7, 7), is_causal=True, scale=scale)


@pytest.mark.parametrize("sink", [-INF, 50.0])
def test_sinks_of_any_size(sink: float) -> None:
    agree(heads(5, 5), is_causal=True, sinks=torch.full((4,), sink).double().requires_grad_())


def test_leading_dimensions_and_layouts() -> None:
    q, k, v = (x.detach() for x in heads(5, 7))
    expected = ops.attention(q, k, v)
    assert expected.transpose(1, 2).is_contiguous()
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(ops.attention(*turned), expected)
    assert torch.equal(ops.attention(q[0], k[0], v[0]), expected[0])
    many = ops.attention(*(x.unsqueeze(0).expand(3, *x.shape) for x in (q, k, v)))
    assert torch.equal(many, expected.expand(3, *expected.shape))
    packed = torch.stack([torch.cat([x, x], 1)[:, :4] for x in (q, q, q)], 2)  # as of one product
    assert torch.equal(ops.attention(*packed.unbind(2)), ops.attention(q, q, q))


@pytest.mark.parametrize("options", [{"is_causal": True}, {"softcap": 3.0}], ids=str)
def test_gradients_with_and_without_atomic_additions(options: dict[str, Any]) -> None:
    """The heads of 128 elements of 16 bits, whose gradients one pass makes."""
    q, k, v = (x.detach() for x in heads(70, 70, width=128, dtype=torch.bfloat16))
    turned = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    right = 0 if "is_causal" in options else -1
    given = {"scale": 0.1, "right": right, "softcap": options.get("softcap", 0.0)}
    out, sums = attention(*turned, **given)
    found = [
        attention_backward(out, out, *turned, sums, deterministic=d, **given)[:3]
        for d in (True, False)
    ]
    # One sum of 64 terms more or less in float32, then one rounding.
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=2**-7, atol=2**-10)


def test_log_sums_are_made_for_gradients_alone() -> None:
    q, k, v = heads(5, 5)

    def size(call: Callable[..., Any]) -> int:
        (made,) = recorded(call, (q, k, v), {})
        return 0 if not made.options["with_log_sum"] else 1

    assert size(ops.attention) == 0
    assert size(lambda *x: ops.attention(*x, return_lse=True)) == 1
    op = getattr(torch.ops, ops.NAMESPACE).attention
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    for a, b in zip(
        *(torch.autograd.grad(op(*turned, with_log_sum=w)[0].sum(), (q, k, v)) for w in (0, 1)),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_flops() -> None:
    q, k, v = heads(5, 9)
    with FlopCounterMode(display=False) as counter:
        out = ops.attention(q, k, v)
        assert counter.get_total_flops() == 4 * 2 * 4 * 5 * 9 * 8
        out.sum().backward()
    assert counter.get_total_flops() == 3.5 * 4 * 2 * 4 * 5 * 9 * 8


@pytest.mark.parametrize("is_causal", [True, False])
def test_an_export_for_any_length(is_causal: bool) -> None:
    class Layer(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return ops.attention(q, k, v, is_causal=is_causal)

    length = torch.export.Dim("length", min=2, max=4096)
    q, k, v = (x.detach() for x in heads(20, 20))
    exported = torch.export.export(Layer(), (q, k, v), dynamic_shapes=({2: length},) * 3).module()
    for n in (20, 33, 128):
        q, k, v = (x.detach() for x in heads(n, n))
        assert torch.equal(exported(q, k, v), ops.attention(q, k, v, is_causal=is_causal))


# -- on a GPU, without one -----------------------------------------------------------------------
@pytest.mark.parametrize(
    "options", [{"right": 0, "clips": False}, {"left": 3, "softcap": 2.0}], ids=str
)
def test_the_text_for_a_gpu(options: dict[str, Any]) -> None:
    """The interpreter's results are those of the CPU path, but for the order of sums."""
    q, k, v = (torch.randn(1, 70, h, 16) for h in (2, 1, 1))
    out, sums = attention(q, k, v, scale=0.3, **options)
    program = attention.get_tir(q, k, v, None, scale=0.3, **options)
    code = triton.generate(program, HOPPER, Specialization(fast=False))
    found = interpret(code, program, q, k, v)
    for a, b in zip(found, (out, sums), strict=True):
        torch.testing.assert_close(a[:, :, :70], b[:, :, :70])


def code_of(width: int, value_width: int, program: Any = attention, **options: Any) -> KernelCode:
    def empty(heads: int, columns: int) -> torch.Tensor:
        return torch.empty(1, 256, heads, columns, dtype=torch.bfloat16, device="meta")

    inputs = [empty(4, width), empty(2, width), empty(2, value_width)]
    if program is attention_backward:
        out, sums = empty(4, value_width), torch.empty(1, 4, 256, device="meta")
        inputs = [out, out, *inputs, sums]
    made = program.get_tir(*inputs, None, scale=width**-0.5, **options)
    return gpu.generate(made, HOPPER, Specialization(fast=True))


WIDTHS = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)]


@pytest.mark.parametrize(("width", "value_width"), WIDTHS)
@pytest.mark.parametrize(
    "options",
    [{"right": 0, "clips": False}, {"clips": True}, {"right": 0, "left": 127}, {"right": 0, "softcap": 50.0}],
    ids=str,
)  # fmt: skip
def test_the_forward_pass_runs_in_two_groups(
    width: int, value_width: int, options: dict[str, Any]
) -> None:
    (launch,) = code_of(width, value_width, **options).launches
    assert launch.language == "gluon"
    assert "math 2 x 4 warps" in launch.notes[0]


@pytest.mark.parametrize(("width", "value_width"), WIDTHS)
def test_the_gradients_run_in_roles(width: int, value_width: int) -> None:
    code = code_of(width, value_width, attention_backward, right=0, deterministic=True)
    assert [launch.language for launch in code.launches] == ["triton", "gluon", "gluon"]


def test_one_pass_makes_all_gradients_of_128_elements() -> None:
    """Its additions leave by TMA."""
    code = code_of(128, 128, attention_backward, right=0, deterministic=False)
    assert [launch.language for launch in code.launches] == ["triton", "gluon", "triton"]
    assert "staged %dQ_sum" in code.launches[1].notes[0]
    assert "gl.atomic_add" not in code.source


@pytest.mark.parametrize(("width", "deterministic"), [(96, True), (128, False)])
def test_the_roles_of_the_gradients_on_real_numbers(width: int, deterministic: bool) -> None:
    """Heads that share keys, one part of a head after the other, and additions by TMA."""
    q, k = (torch.randn(1, 96, n, width).bfloat16() for n in (2, 1))
    given: dict[str, Any] = {"scale": 0.1, "right": 0, "clips": False}
    out, sums = attention(q, k, k, **given)
    given["deterministic"] = deterministic
    expected = attention_backward(out, out, q, k, k, sums, **given)[:3]
    made = attention_backward.get_tir(out, out, q, k, k, sums, None, **given)
    found = simulate(made, out, out, q, k, k, sums, seed=0)[:3]
    for a, b in zip(found, expected, strict=True):
        # Sums in another order: a unit in the last place of the largest.
        assert (a.double() - b.double()).abs().max() <= 2**-8 * b.double().abs().max()


# -- errors --------------------------------------------------------------------------------------
Q, K, V = (x.detach() for x in heads(3, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.attention(1, K, V), ArgumentTypeError, "query: expected a tensor, got int"),
        (lambda: ops.attention(Q[0, 0], K, V), ArgumentError, r"query: .* got \(3, 8\)"),
        (lambda: ops.attention(Q, K.float(), V), ArgumentTypeError, "key: .* float64, got float32"),
        (lambda: ops.attention(Q, K[:1], V), ArgumentError, r"key: .* \(2,\).* got the shape \(1, 2, 3, 8\)"),
        (lambda: ops.attention(Q, K[..., :4], V), ArgumentError, "key: expected D = 8 .* got 4"),
        (lambda: ops.attention(Q, K, V[:, :, :2]), ArgumentError, r"value: .* \(2, 3\), got \(2, 2\)"),
        (lambda: ops.attention(Q[:, :3], K, V), ArgumentError, "key: .* query's 3 are a multiple, got 2"),
        (lambda: ops.attention(Q, K, V, K), ArgumentError, "attn_mask: expected None"),
        (lambda: ops.attention(Q, K, V, dropout_p=0.1), ArgumentError, "dropout_p: expected 0.0, got 0.1"),
        (lambda: ops.attention(Q, K, V, window_size=3), ArgumentTypeError, "window_size: .* got 3"),
        (lambda: ops.attention(Q, K, V, window_size=(-2, 0)), ArgumentError, r"window_size: .* \(-2, 0\)"),
        (lambda: ops.attention(Q, K, V, scale=NAN), ArgumentError, "scale: .* got nan"),
        (lambda: ops.attention(Q, K, V, softcap=0.0), ArgumentError, "softcap: .* got 0.0"),
        (lambda: ops.attention(Q, K, V, sinks=Q), ArgumentError, r"sinks: .* \(4,\), got \(2, 4, 3, 8\)"),
        (lambda: ops.attention(Q, K, V, deterministic=1), ArgumentTypeError, "deterministic: .* got 1"),
        (lambda: ops.attention(*(torch.zeros(1, 1, 1, 300) for _ in "qkv")), ArgumentError, "query: .* 256, got 300"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"attention: {text}"):
        call()

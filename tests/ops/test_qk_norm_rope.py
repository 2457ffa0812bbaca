"""The rotation of norms: the results of both operators, layouts, some gradients, graphs, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kit.schedules import HOPPER
from tileops import ops
from tileops.codegen import gpu
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops.programs import rope as programs

B, H, G, S, D = 2, 4, 2, 5, 8


def inputs(dtype: torch.dtype = torch.float32, columns: int = D) -> tuple[torch.Tensor, ...]:
    shapes = (B, H, S, columns), (B, G, S, columns), (columns,), (columns,)
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def apart(
    q: Any, k: Any, w: Any, v: Any, cos: Any, sin: Any, interleaved: bool = False, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    q, k = (ops.rms_norm(x, x.shape[-1:], a, 1e-6, **options) for x, a in ((q, w), (k, v)))
    return ops.rope(q, k, cos, sin, interleaved=interleaved)


@pytest.mark.parametrize(
    ("dtype", "columns", "options"),
    [
        (torch.float16, 2, {}),
        (torch.bfloat16, 130, {"rounding": "llama"}),
        (torch.float32, 8, {"weight_offset": 1.0}),
        (torch.float64, 12, {}),
    ],
    ids=str,
)
def test_bits_of_both_operators(dtype: torch.dtype, columns: int, options: Any) -> None:
    given = [x.requires_grad_() for x in inputs(dtype, columns)]
    angles = torch.randn(2, S, columns)
    for interleaved in (False, True):
        found = ops.qk_norm_rope(*given, *angles, eps=1e-6, interleaved=interleaved, **options)
        right = apart(*given, *angles, interleaved, **options)
        gradients = [torch.randn_like(x) for x in found]
        for a, b in zip(found, right, strict=True):
            assert torch.equal(a, b)
        for a, b in zip(
            torch.autograd.grad(found, given, gradients),
            torch.autograd.grad(right, given, gradients),
            strict=True,
        ):
            assert torch.equal(a, b)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 3), (2, 3)], ids=str)
def test_some_gradients(wanted: tuple[int, ...]) -> None:
    given = [x.requires_grad_(n in wanted) for n, x in enumerate(inputs(torch.float64))]
    angles = torch.randn(2, S, D, dtype=torch.float64)
    leaves = [given[n] for n in wanted]

    def total(pair: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return sum((x.sin().sum() for x in pair), torch.zeros(()))

    found = torch.autograd.grad(total(ops.qk_norm_rope(*given, *angles, eps=1e-6)), leaves)
    for a, b in zip(found, torch.autograd.grad(total(apart(*given, *angles)), leaves), strict=True):
        assert torch.equal(a, b)


def test_layouts_and_positions() -> None:
    q, k, w, v = inputs()
    angles = torch.randn(2, 20, D)
    positions = torch.tensor([[3, 0, 19, 7, 7], [1, 2, 3, 4, 5]])
    right = ops.qk_norm_rope(q, k, w, v, *angles[:, positions])
    found = ops.qk_norm_rope(q, k, w, v, *angles, position_ids=positions)
    turned = [x.transpose(1, 2).contiguous() for x in (q, k)]
    last = ops.qk_norm_rope(*turned, w, v, *angles, position_ids=positions, unsqueeze_dim=2)
    wide = [torch.stack((x, x), -1).flatten(-2)[..., ::2] for x in (q, k, w, v)]
    strided = ops.qk_norm_rope(*wide, *angles, position_ids=positions)
    for n in range(2):
        assert torch.equal(found[n], right[n])
        assert torch.equal(last[n].transpose(1, 2), right[n])
        assert torch.equal(strided[n], right[n])
    assert ops.qk_norm_rope(q[:, :, :0], k[:, :, :0], w, v, *angles[:, :0])[0].shape == (B, H, 0, D)


def test_special_heads() -> None:
    """NaN stays in its head; a head of zeros stays 0."""
    q, k, w, v = inputs()
    q[0, 1, 2, 3], q[1, 0, 0] = float("nan"), 0.0
    new, _ = ops.qk_norm_rope(q, k, w, v, *torch.randn(2, S, D))
    bad = torch.zeros(B, H, S, dtype=torch.bool)
    bad[0, 1, 2] = True
    assert torch.equal(new.isnan().all(-1), bad)
    assert torch.equal(new.isnan().any(-1), bad)
    assert not new[1, 0, 0].any()


class Module(torch.nn.Module):
    def forward(self, *tensors: torch.Tensor) -> Any:
        return ops.qk_norm_rope(*tensors)


def test_graphs() -> None:
    """Compiled for any number of positions, and exported."""
    _, _, w, v = inputs()

    def of(count: int) -> tuple[torch.Tensor, ...]:
        return (
            torch.randn(B, H, count, D), torch.randn(B, G, count, D), w, v,
            *torch.randn(2, count, D),
        )  # fmt: skip

    torch._dynamo.reset()
    s = torch.export.Dim("s")
    with ops.compile_mode("opaque"):
        compiled = torch.compile(Module(), fullgraph=True, dynamic=True, backend="aot_eager")
        shapes = ({2: s}, {2: s}, None, None, {0: s}, {0: s})
        exported = torch.export.export(Module(), of(4), dynamic_shapes={"tensors": shapes})
        for count in (5, 17):
            given = of(count)
            for run in (compiled, exported.module()):
                for a, b in zip(run(*given), ops.qk_norm_rope(*given), strict=True):
                    assert torch.equal(a, b)


@pytest.mark.parametrize("columns", [64, 80, 128, 256])
def test_registers_on_hopper(columns: int) -> None:
    def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    angles = empty(1, 4096, columns, dtype=torch.float32)
    made = programs.qk_norm_rope.get_tir(
        empty(1, 32, 4096, columns), empty(1, 8, 4096, columns), angles, angles,
        empty(columns), empty(columns),
    )  # fmt: skip
    compiled = compile_kernel(gpu.generate(made, HOPPER, Specialization(fast=True)), HOPPER, {})
    assert [launch.spills for launch in compiled.launches] == [0, 0]


Q, K, W, V = inputs()
ANGLES = torch.zeros(2, S, D)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.qk_norm_rope(Q, K, W[:3], V, *ANGLES), ArgumentError, r"query_weight: .* got \(3,\)"),
        (lambda: ops.qk_norm_rope(Q, K, W, V.half(), *ANGLES), ArgumentTypeError, "key_weight: .* float16"),
        (lambda: ops.qk_norm_rope(Q, K, W, 1.0, *ANGLES), ArgumentTypeError, "key_weight: .* got float"),
        (lambda: ops.qk_norm_rope(Q, K[:1], W, V, *ANGLES), ArgumentError, "key: .* but for heads"),
        (lambda: ops.qk_norm_rope(Q[..., :0], K, W, V, *ANGLES), ArgumentError, "query: .* not 0, got"),
        (lambda: ops.qk_norm_rope(Q, K, W, V, *ANGLES[:, :3]), ArgumentError, r"cos: .* got \(3, 8\)"),
        (lambda: ops.qk_norm_rope(Q, K, W, V, *ANGLES, rounding="up"), ArgumentError, "rounding: .* 'up'"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"qk_norm_rope: {text}"):
        call()

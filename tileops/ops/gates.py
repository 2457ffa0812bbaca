"""Gated activations of two tensors, with gradients."""

from __future__ import annotations

from typing import Any

import torch

from tileops.ops import arguments, choosing, decompositions, shapes
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import gates as programs
from tileops.ops.sharding import by_rows


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``, where ``silu(x) = x / (1 + exp(-x))``.

    After Shazeer, "GLU Variants Improve Transformer", 2020. The activation is computed in float32
    (float64 for float64) and rounded before the product, as two separate operations would.

    gate, up: of one shape and dtype: float16, bfloat16, float32 or float64.

    Returns a tensor like ``gate``. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    _check("silu_mul", gate, up)
    if choosing.decomposes("silu_mul", gate.shape[-1] if gate.dim() else 1, (gate, up)):
        return decompositions.silu_mul(gate, up)
    out: torch.Tensor = programs.silu_mul(gate, up)
    return out


def gelu_mul(gate: torch.Tensor, up: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """``gelu(gate) * up``, where ``gelu(x) = x * (1 + erf(x / sqrt(2))) / 2``.

    After Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; ``approximate="tanh"`` takes
    ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``. The rest is as in ``silu_mul``.
    """
    _check("gelu_mul", gate, up)
    arguments.is_one_of("gelu_mul", "approximate", approximate, programs.APPROXIMATIONS)
    if choosing.decomposes("gelu_mul", gate.shape[-1] if gate.dim() else 1, (gate, up)):
        return decompositions.gelu_mul(gate, up, approximate)
    out: torch.Tensor = programs.gelu_mul(gate, up, approximate=approximate)
    return out


def _check(op: str, gate: torch.Tensor, up: torch.Tensor) -> None:
    arguments.is_float(op, "gate", gate)
    arguments.is_like(op, "up", up, "gate", gate)


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.kind = keyword_only_inputs.get("approximate", programs.SILU)


def _backward(ctx: Any, d_out: Any) -> tuple[Any, ...]:
    d_gate, d_up = programs.gate_backward(d_out, *ctx.saved_tensors, kind=ctx.kind)
    return d_gate, d_up


for _program in (programs.silu_mul, programs.gelu_mul):
    _program.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
_BACKWARD = {"gate_backward": by_rows((0, 1, 2), "rr", any_dimension=True)}
_BENCH = (
    BenchShape(4096, 768, "an expert of Qwen3 30B-A3B"),
    BenchShape(4096, 14336, "Llama 3 8B"),
    BenchShape(16384, 14336, "Llama 3 8B"),
    BenchShape(8192, 28672, "Llama 3 70B"),
)
INFOS = (
    OpInfo(
        "silu_mul", silu_mul, decompositions.silu_mul, (Form("plain", shapes.rows(2)),),
        "`silu(gate) * up`", programs.silu_mul, (0, 1),
        {"silu_mul": by_rows((0, 1), "r", any_dimension=True), **_BACKWARD},
        lambda inputs, outputs: inputs, _BENCH,
    ),
    OpInfo(
        "gelu_mul", gelu_mul, decompositions.gelu_mul,
        (
            Form("plain", shapes.rows(2)),
            Form("tanh", shapes.rows(2), lambda gate, up: ((gate, up, "tanh"), {})),
        ),
        "`gelu(gate) * up`", programs.gelu_mul, (0, 1),
        {"gelu_mul": by_rows((0, 1), "r", any_dimension=True)},
        lambda inputs, outputs: inputs, _BENCH,
    ),
)  # fmt: skip
register(INFOS)

"""Gated activations of two tensors, with gradients."""

from __future__ import annotations

from typing import Any

import torch

from tileops.ops import arguments, batching
from tileops.ops.programs import gates as programs


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``, where ``silu(x) = x / (1 + exp(-x))``.

    After Shazeer, "GLU Variants Improve Transformer", 2020. The activation is computed in float32
    (float64 for float64) and rounded before the product, as two separate operations would.

    gate, up: of one shape and dtype: float16, bfloat16, float32 or float64.

    Returns a tensor like ``gate``. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    _check("silu_mul", gate, up)
    out: torch.Tensor = programs.silu_mul(gate, up)
    return out


def gelu_mul(gate: torch.Tensor, up: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """``gelu(gate) * up``, where ``gelu(x) = x * (1 + erf(x / sqrt(2))) / 2``.

    After Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; ``approximate="tanh"`` takes
    ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``. The rest is as in ``silu_mul``.
    """
    _check("gelu_mul", gate, up)
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
    _program.register_vmap(batching.by_rows(_program, (0, 1)))

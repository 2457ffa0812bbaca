"""RMSNorm and LayerNorm, alone and of a sum with a residual, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tileops.ops import arguments, choosing, decompositions, shapes
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import norms as programs
from tileops.ops.programs.norm_gradients import layer_norm_backward, rms_norm_backward
from tileops.ops.programs.rows import workers
from tileops.ops.sharding import by_rows


def rms_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
    eps: float | None = None, *, weight_offset: float = 0.0, rounding: str = "torch",
) -> torch.Tensor:  # fmt: skip
    """``input / sqrt(mean(input^2) + eps) * (weight + weight_offset)``, over the last dimensions.

    After Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. Computed in float32
    (float64 for float64) and rounded once; ``rounding="llama"`` rounds the quotient to the dtype of
    ``input`` before the product, as Llama's code does. Gemma's norm has ``weight_offset=1``.

    input:            (..., *normalized_shape), float16, bfloat16, float32 or float64.
    normalized_shape: the last dimensions of ``input``.
    weight:           of shape ``normalized_shape``, of any of these dtypes; None for ones.
    eps:              None for the difference of 1 and the next number of the accumulator's dtype.

    Returns a tensor like ``input``. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    x, w, _, eps = prepared("rms_norm", input, normalized_shape, weight, None, eps)
    arguments.is_one_of("rms_norm", "rounding", rounding, programs.ROUNDINGS)
    if choosing.decomposes("rms_norm", x.shape[-1], (input, weight)):
        return decompositions.rms_norm(
            input, normalized_shape, weight, eps, weight_offset=weight_offset, rounding=rounding
        )
    out: torch.Tensor = programs.rms_norm(x, w, eps, weight_offset, rounding=rounding)
    return out.view(input.shape)


def add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None, eps: float | None = None, *,
    weight_offset: float = 0.0, rounding: str = "torch",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``sum = input + residual`` and ``rms_norm(sum, ...)``; returns ``(norm, sum)``.

    ``residual`` has the shape and the dtype of ``input``. The norm is taken of the rounded sum, as
    two separate operations would. The rest is as in ``rms_norm``.
    """
    x, w, _, eps = prepared("add_rms_norm", input, normalized_shape, weight, None, eps)
    r = _residual("add_rms_norm", input, residual, x)
    arguments.is_one_of("add_rms_norm", "rounding", rounding, programs.ROUNDINGS)
    if choosing.decomposes("add_rms_norm", x.shape[-1], (input, residual, weight)):
        return decompositions.add_rms_norm(
            input, residual, normalized_shape, weight, eps,
            weight_offset=weight_offset, rounding=rounding,
        )  # fmt: skip
    out, total = programs.add_rms_norm(x, r, w, eps, weight_offset, rounding=rounding)
    return out.view(input.shape), total.view(input.shape)


def layer_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, eps: float = 1e-5,
) -> torch.Tensor:  # fmt: skip
    """``(input - mean) / sqrt(variance + eps) * weight + bias``, over the last dimensions.

    After Ba, Kiros and Hinton, "Layer Normalization", 2016; the variance is that of the population.
    Computed in float32 (float64 for float64) and rounded once.

    input:            (..., *normalized_shape), float16, bfloat16, float32 or float64.
    normalized_shape: the last dimensions of ``input``.
    weight, bias:     of shape ``normalized_shape`` and one dtype; None for ones and zeros.

    Returns a tensor like ``input``. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    x, w, b, eps = prepared("layer_norm", input, normalized_shape, weight, bias, eps)
    if choosing.decomposes("layer_norm", x.shape[-1], (input, weight, bias)):
        return decompositions.layer_norm(input, normalized_shape, weight, bias, eps)
    out: torch.Tensor = programs.layer_norm(x, w, b, eps)
    return out.view(input.shape)


def add_layer_norm(
    input: torch.Tensor, residual: torch.Tensor, normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``sum = input + residual`` and ``layer_norm(sum, ...)``; returns ``(norm, sum)``.

    ``residual`` has the shape and the dtype of ``input``. The norm is taken of the rounded sum, as
    two separate operations would. The rest is as in ``layer_norm``.
    """
    x, w, b, eps = prepared("add_layer_norm", input, normalized_shape, weight, bias, eps)
    r = _residual("add_layer_norm", input, residual, x)
    if choosing.decomposes("add_layer_norm", x.shape[-1], (input, residual, weight, bias)):
        return decompositions.add_layer_norm(input, residual, normalized_shape, weight, bias, eps)
    out, total = programs.add_layer_norm(x, r, w, b, eps)
    return out.view(input.shape), total.view(input.shape)


def prepared(
    op: str, input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None,
    bias: torch.Tensor | None, eps: float | None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, float]:  # fmt: skip
    """The arguments with the normalised dimensions as one, and the value of ``eps``."""
    arguments.is_float(op, "input", input)
    columns = arguments.normalised_columns(op, input, normalized_shape)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None:
            arguments.is_float(op, name, tensor)
            arguments.has_shape(op, name, tensor, normalized_shape)
    if len(normalized_shape) > 1:
        input = input.reshape(*input.shape[: input.dim() - len(normalized_shape)], columns)
        weight = weight if weight is None else weight.reshape(columns)
        bias = bias if bias is None else bias.reshape(columns)
    if eps is None:
        wide = torch.float64 if input.dtype == torch.float64 else torch.float32
        eps = torch.finfo(wide).eps
    return input, weight, bias, eps


def _residual(
    op: str, input: torch.Tensor, residual: torch.Tensor, prepared: torch.Tensor
) -> torch.Tensor:
    arguments.is_like(op, "residual", residual, "input", input)
    return residual.reshape(prepared.shape)


# -- gradients ---------------------------------------------------------------------------------
def _save_rms_norm(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    X, W, ctx.eps, ctx.offset = inputs
    ctx.save_for_backward(X, W)
    ctx.rounding = keyword_only_inputs["rounding"]


def _save_add_rms_norm(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    _, _, W, ctx.eps, ctx.offset = inputs
    ctx.save_for_backward(output[1], W)
    ctx.rounding = keyword_only_inputs["rounding"]


def rms_norm_gradients(
    ctx: Any, dY: Any, X: Any, W: Any, dS: Any, wants_weight: bool
) -> tuple[Any, Any]:
    """The gradients of ``X`` and ``W``; ``ctx`` has the options of the norm."""
    dX, dW = rms_norm_backward(
        dY, X, W, dS, ctx.eps, ctx.offset,
        rounding=ctx.rounding, weight_gradient=wants_weight, workers=workers(X),
    )  # fmt: skip
    return dX, dW if wants_weight else None


def _rms_norm_backward(ctx: Any, dY: Any) -> tuple[Any, ...]:
    X, W = ctx.saved_tensors
    dX, dW = rms_norm_gradients(ctx, dY, X, W, None, ctx.needs_input_grad[1])
    return dX, dW, None, None


def _add_rms_norm_backward(ctx: Any, dY: Any, dS: Any) -> tuple[Any, ...]:
    X, W = ctx.saved_tensors
    dX, dW = rms_norm_gradients(ctx, dY, X, W, dS, ctx.needs_input_grad[2])
    return dX, dX, dW, None, None


def _save_layer_norm(ctx: Any, inputs: Any, output: Any) -> None:
    X, W, B, ctx.eps = inputs
    ctx.save_for_backward(X, W, B)


def _save_add_layer_norm(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, W, B, ctx.eps = inputs
    ctx.save_for_backward(output[1], W, B)


def _layer_norm_gradients(ctx: Any, dY: Any, dS: Any, wants: Sequence[bool]) -> tuple[Any, ...]:
    X, W, B = ctx.saved_tensors
    dX, dW, dB = layer_norm_backward(
        dY, X, W, B, dS, ctx.eps,
        weight_gradient=wants[0], bias_gradient=wants[1], workers=workers(X),
    )  # fmt: skip
    return dX, dW if wants[0] else None, dB if wants[1] else None


def _layer_norm_backward(ctx: Any, dY: Any) -> tuple[Any, ...]:
    return *_layer_norm_gradients(ctx, dY, None, ctx.needs_input_grad[1:3]), None


def _add_layer_norm_backward(ctx: Any, dY: Any, dS: Any) -> tuple[Any, ...]:
    dX, dW, dB = _layer_norm_gradients(ctx, dY, dS, ctx.needs_input_grad[2:4])
    return dX, dX, dW, dB, None


for _program, _backward, _save in (
    (programs.rms_norm, _rms_norm_backward, _save_rms_norm),
    (programs.add_rms_norm, _add_rms_norm_backward, _save_add_rms_norm),
    (programs.layer_norm, _layer_norm_backward, _save_layer_norm),
    (programs.add_layer_norm, _add_layer_norm_backward, _save_add_layer_norm),
):
    _program.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
def _norm(count: int, **options: Any) -> Any:
    """The arguments of a norm of the first ``count`` tensors with the rest as weights."""

    def arguments(*tensors: torch.Tensor) -> Any:
        columns = (tensors[0].shape[-1],)
        return (*tensors[:count], columns, *tensors[count:]), options

    return arguments


def _bias_alone(x: torch.Tensor, bias: torch.Tensor) -> Any:
    return (x, (x.shape[-1],), None, bias), {}


_RMS_BACKWARD = {"rms_norm_backward": by_rows((0, 1, 3), "rw")}
_LAYER_BACKWARD = {"layer_norm_backward": by_rows((0, 1, 4), "rww")}
_BENCH = (
    BenchShape(65536, 1024, "short rows"),
    BenchShape(4096, 2880, "GPT-OSS"),
    BenchShape(16384, 4096, "Llama 3 8B"),
    BenchShape(16384, 8192, "Llama 3 70B"),
    BenchShape(4096, 16384, "wide rows"),
    BenchShape(2048, 32768, "wider rows"),
)
INFOS = (
    OpInfo(
        "rms_norm", rms_norm, decompositions.rms_norm,
        (
            Form("plain", shapes.rows(1, 1), _norm(1, eps=1e-6)),
            Form("alone", shapes.rows(1), _norm(1)),
            Form("gemma", shapes.rows(1, 1), _norm(1, eps=1e-6, weight_offset=1.0)),
            Form("llama", shapes.rows(1, 1), _norm(1, eps=1e-6, rounding="llama")),
        ),
        "RMSNorm; `rounding=\"llama\"` as in Llama's code, `weight_offset=1` as in Gemma's",
        programs.rms_norm, (0,), {"rms_norm": by_rows((0,), "r"), **_RMS_BACKWARD},
        lambda inputs, outputs: inputs, _BENCH,
    ),
    OpInfo(
        "add_rms_norm", add_rms_norm, decompositions.add_rms_norm,
        (Form("plain", shapes.rows(2, 1), _norm(2, eps=1e-6)),),
        "the sum with a residual and its RMSNorm: `(norm, sum)`",
        programs.add_rms_norm, (0, 1), {"add_rms_norm": by_rows((0, 1), "rr")},
        lambda inputs, outputs: (outputs[1], inputs[2]), _BENCH,
    ),
    OpInfo(
        "layer_norm", layer_norm, decompositions.layer_norm,
        (
            Form("plain", shapes.rows(1, 2), _norm(1)),
            Form("bias", shapes.rows(1, 1), _bias_alone),
        ),
        "LayerNorm",
        programs.layer_norm, (0,), {"layer_norm": by_rows((0,), "r"), **_LAYER_BACKWARD},
        lambda inputs, outputs: inputs[:2], _BENCH,
    ),
    OpInfo(
        "add_layer_norm", add_layer_norm, decompositions.add_layer_norm,
        (Form("plain", shapes.rows(2, 2), _norm(2)),),
        "the sum with a residual and its LayerNorm: `(norm, sum)`",
        programs.add_layer_norm, (0, 1), {"add_layer_norm": by_rows((0, 1), "rr")},
        lambda inputs, outputs: (outputs[1], inputs[2]), _BENCH,
    ),
)  # fmt: skip
register(INFOS)

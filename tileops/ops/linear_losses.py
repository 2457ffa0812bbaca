"""The loss of a linear layer without its logits: cross entropy of a few rows at a time.

The matrix products are torch's, whose libraries are the fastest for them. The logits of a chunk of
rows are made, used and dropped, and made again for the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tileops.errors import ArgumentError
from tileops.ops import NAMESPACE, arguments, choosing, decompositions
from tileops.ops.autocasting import lowered
from tileops.ops.chunks import CHUNK_BYTES
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.losses import REDUCTIONS, CrossEntropy, check
from tileops.ops.programs import cross_entropy as programs


def linear_cross_entropy(
    input: torch.Tensor, linear_weight: torch.Tensor, target: torch.Tensor, *,
    linear_bias: torch.Tensor | None = None, weight: torch.Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0,
    softcap: float | None = None, z_loss: float = 0.0, return_aux: bool = False,
) -> torch.Tensor | CrossEntropy:  # fmt: skip
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)`` without the logits.

    At most 256 MiB of logits are there at a time, and as much of their gradients. The loss is
    float32 (float64 for float64); the gradient of the weight is summed in float32.

    input:         (in_features,) or (N, in_features), float16, bfloat16, float32 or float64.
    linear_weight: (C, in_features), of the dtype of ``input``.
    target:        class numbers, int64, () or (N,).
    linear_bias:   (C,), of the dtype of ``input``; None for none.
    ignore_index:  None for -100.

    The other arguments are those of ``tileops.ops.cross_entropy``. Under autocast the product is
    computed in its dtype. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    op = "linear_cross_entropy"
    given = {"input": input, "linear_weight": linear_weight, "linear_bias": linear_bias}
    for name, value in given.items():
        if value is not None:
            arguments.is_float(op, name, value)
    input, linear_weight, linear_bias = lowered(input, linear_weight, linear_bias)
    _check(op, input, linear_weight, linear_bias)
    shape = (*input.shape[:-1], linear_weight.shape[0])
    check(op, input, shape, target, weight, label_smoothing, softcap)
    arguments.is_one_of(op, "reduction", reduction, REDUCTIONS)
    ignored = -100 if ignore_index is None else ignore_index
    if choosing.decomposes(op, shape[-1], (input, linear_weight)):
        found = decompositions.linear_cross_entropy(
            input, linear_weight, target, linear_bias=linear_bias, weight=weight,
            reduction=reduction, ignore_index=ignored, label_smoothing=label_smoothing,
            softcap=softcap, z_loss=z_loss, return_aux=return_aux,
        )  # fmt: skip
        return CrossEntropy(*found) if return_aux else found
    loss, log_sum, _, counted = _forward(
        input.reshape(-1, input.shape[-1]), linear_weight, target.reshape(-1), linear_bias, weight,
        ignored, label_smoothing, z_loss, softcap or 1.0, softcap is not None, label_smoothing > 0,
    )  # fmt: skip
    if reduction == "mean":
        loss = loss.sum() / counted.sum()
    elif reduction == "sum":
        loss = loss.sum()
    else:
        loss = loss.view(target.shape)
    return CrossEntropy(loss, log_sum.view(target.shape)) if return_aux else loss


def _check(
    op: str, input: torch.Tensor, linear_weight: torch.Tensor, linear_bias: torch.Tensor | None
) -> None:
    if input.dim() not in (1, 2):
        raise ArgumentError(
            f"{op}: input: expected one or two dimensions, got {tuple(input.shape)}"
        )
    if linear_weight.dim() != 2 or linear_weight.shape[1] != input.shape[-1]:
        raise ArgumentError(
            f"{op}: linear_weight: expected (classes, {input.shape[-1]}), "
            f"got {tuple(linear_weight.shape)}"
        )
    arguments.has_shape(op, "linear_bias", linear_bias, linear_weight.shape[:1])
    for name, value in (("linear_weight", linear_weight), ("linear_bias", linear_bias)):
        if value is not None:
            arguments.has_dtype(op, name, value, "input", input)


# -- ops -----------------------------------------------------------------------------------------
def _chunks(input: torch.Tensor, linear_weight: torch.Tensor) -> Iterator[slice]:
    row_bytes = max(1, linear_weight.shape[0] * input.element_size())
    rows = max(1, CHUNK_BYTES // row_bytes)
    return (slice(first, first + rows) for first in range(0, input.shape[0], rows))


@torch.library.custom_op(f"{NAMESPACE}::linear_cross_entropy", mutates_args=())
def _forward(
    input: torch.Tensor, linear_weight: torch.Tensor, target: torch.Tensor,
    linear_bias: torch.Tensor | None, weight: torch.Tensor | None, ignore_index: int,
    label_smoothing: float, z_loss: float, softcap: float, has_cap: bool, is_smooth: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Loss, logarithm of the sum in two parts, and weight of each row."""
    results = _empty_results(input)
    for rows in _chunks(input, linear_weight):
        logits = F.linear(input[rows], linear_weight, linear_bias)
        found = programs.cross_entropy(
            logits, target[rows], weight, ignore_index, label_smoothing, z_loss, softcap,
            has_cap=has_cap, is_smooth=is_smooth,
        )  # fmt: skip
        for result, part in zip(results, found, strict=True):
            result[rows] = part
    return results


def _empty_results(
    input: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    wide = decompositions.wide(input.dtype)
    made = [input.new_empty(input.shape[0], dtype=wide) for _ in range(4)]
    return made[0], made[1], made[2], made[3]


@_forward.register_fake
def _(
    input: torch.Tensor, *others: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _empty_results(input)


@torch.library.custom_op(f"{NAMESPACE}::linear_cross_entropy_backward", mutates_args=())
def _gradients(
    d_loss: torch.Tensor, d_log_sum: torch.Tensor, input: torch.Tensor,
    linear_weight: torch.Tensor, target: torch.Tensor, log_sum: torch.Tensor,
    log_rest: torch.Tensor, linear_bias: torch.Tensor | None, weight: torch.Tensor | None,
    ignore_index: int, label_smoothing: float, z_loss: float, softcap: float, has_cap: bool,
    is_smooth: bool,
    wants_input: bool, wants_weight: bool, wants_bias: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of input, weight and bias; empty where they are not wanted."""
    d_input = torch.empty_like(input if wants_input else input[:0])
    wide = decompositions.wide(input.dtype)
    sums = [
        torch.zeros(shape if wanted else 0, dtype=wide, device=input.device)
        for shape, wanted in (
            (linear_weight.shape, wants_weight), (linear_weight.shape[:1], wants_bias)
        )
    ]  # fmt: skip
    for rows in _chunks(input, linear_weight):
        d_logits = programs.cross_entropy_backward(
            d_loss[rows], d_log_sum[rows], F.linear(input[rows], linear_weight, linear_bias),
            target[rows], log_sum[rows], log_rest[rows], weight, ignore_index, label_smoothing,
            z_loss, softcap, has_cap=has_cap, is_smooth=is_smooth,
        )  # fmt: skip
        if wants_input:
            d_input[rows] = d_logits @ linear_weight
        if wants_weight:
            sums[0] += d_logits.t() @ input[rows]
        if wants_bias:
            sums[1] += d_logits.sum(0, dtype=wide)
    return d_input, sums[0].to(input.dtype), sums[1].to(input.dtype)


@_gradients.register_fake
def _(*given: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    input, linear_weight, (wants_input, wants_weight, wants_bias) = given[2], given[3], given[-3:]
    return (
        torch.empty_like(input if wants_input else input[:0]),
        input.new_empty(linear_weight.shape if wants_weight else 0),
        input.new_empty(linear_weight.shape[0] if wants_bias else 0),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    input, linear_weight, target, linear_bias, weight, *ctx.options = inputs
    ctx.save_for_backward(input, linear_weight, target, *output[1:3], linear_bias, weight)


def _backward(
    ctx: Any, d_loss: Any, d_log_sum: Any, d_log_rest: Any, d_counted: Any
) -> tuple[Any, ...]:
    wants = [ctx.needs_input_grad[n] for n in (0, 1, 3)]
    found = _gradients(d_loss, d_log_sum, *ctx.saved_tensors, *ctx.options, *wants)
    d_input, d_weight, d_bias = (
        d if wanted else None for d, wanted in zip(found, wants, strict=True)
    )
    return d_input, d_weight, None, d_bias, *(None for _ in range(7))


_forward.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
def _forward_flops(
    input: Sequence[int], linear_weight: Sequence[int], *others: Any, **options: Any
) -> int:
    return 2 * input[0] * input[1] * linear_weight[0]


def _backward_flops(
    d_loss: Any, d_log_sum: Any, input: Sequence[int], linear_weight: Sequence[int], *others: Any,
    out_shape: Any = None, **options: Any,
) -> int:  # fmt: skip
    """A product for the logits, and one for each gradient of a matrix."""
    wants_input, wants_weight, _ = others[-3:]
    return (1 + int(wants_input) + int(wants_weight)) * _forward_flops(input, linear_weight)


def _layer(**options: Any) -> Any:
    """The arguments of a loss, with targets that follow from the shape."""

    def arguments(*tensors: torch.Tensor) -> Any:
        input, linear_weight = tensors[:2]
        target = (torch.arange(input.shape[0], device=input.device) * 7919) % linear_weight.shape[0]
        target[1::5] = -100
        given = options if len(tensors) == 2 else {**options, "linear_bias": tensors[2]}
        return (input, linear_weight, target), given

    return arguments


def _shapes(has_bias: bool) -> Any:
    """Rows, a matrix and perhaps a bias; with as many rows as models have, a model's vocabulary."""

    def shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
        classes = 13 if rows < 4096 else 128256
        return ((rows, columns), (classes, columns), *(((classes,),) if has_bias else ()))

    return shapes


INFOS = (
    OpInfo(
        "linear_cross_entropy", linear_cross_entropy, decompositions.linear_cross_entropy,
        (
            Form("plain", _shapes(False), _layer()),
            Form("bias", _shapes(True), _layer(reduction="none", label_smoothing=0.1)),
            Form("cap", _shapes(False), _layer(softcap=2.0, z_loss=0.1, reduction="sum")),
        ),
        "`cross_entropy(linear(input, linear_weight, linear_bias), target)` in chunks of rows",
        None, None, {}, lambda inputs, outputs: inputs,
        (
            BenchShape(4096, 4096, "Llama 3 8B"),
            BenchShape(16384, 4096, "Llama 3 8B"),
        ),
        flops={
            "linear_cross_entropy": _forward_flops,
            "linear_cross_entropy_backward": _backward_flops,
        },
        lowers=True,
    ),
)  # fmt: skip
register(INFOS)

"""Cross entropy of logits and class numbers, with its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import arguments, choosing, decompositions, shapes
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import cross_entropy as programs
from tileops.ops.sharding import by_rows

REDUCTIONS = ("none", "mean", "sum")


class CrossEntropy(NamedTuple):
    """What ``cross_entropy(..., return_aux=True)`` returns."""

    loss: torch.Tensor
    log_sum_exp: torch.Tensor  # of each row of logits, in the shape of the targets


def cross_entropy(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None,
    size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
    reduction: str = "mean", label_smoothing: float = 0.0, *,
    softcap: float | None = None, z_loss: float = 0.0, return_aux: bool = False,
) -> torch.Tensor | CrossEntropy:  # fmt: skip
    """``log(sum(exp(input))) - input[target]`` over the classes, as ``torch.nn.functional`` has it.

    The loss is float32 (float64 for float64 logits), also where the logits have 16 bits; the logits
    are read once and stay as they are.

    input:           (C,), (N, C) or (N, C, d1, ...), float16, bfloat16, float32 or float64. The
                     classes of (N, C) are the fast dimension: (N, C, d1, ...) costs a copy.
    target:          class numbers, int64, of the shape of ``input`` without C. A number outside of
                     0 to C - 1 gives NaN. Probabilities are not supported.
    weight:          (C,), of any of these dtypes: the weight of each class; None for ones.
    ignore_index:    rows with this target have no loss, no gradient, and no part in the mean.
    reduction:       "none", "sum" or "mean": the sum over the sum of the weights of the targets. If
                     every target is ignored, the mean is NaN.
    label_smoothing: the part of the target, 0 to 1, that is spread evenly over the classes, after
                     Szegedy et al., "Rethinking the Inception Architecture", 2016.
    softcap:         the loss of ``softcap * tanh(input / softcap)``; None for ``input`` itself.
    z_loss:          adds ``z_loss * log(sum(exp(input)))^2`` to the loss of each row that counts,
                     after Chowdhery et al., "PaLM", 2022.
    return_aux:      return a ``CrossEntropy`` that also has the logarithm of each row's sum.

    ``size_average`` and ``reduce``, which torch deprecated, must be None. ArgumentError
    (ArgumentTypeError) names what does not fit.
    """
    op = "cross_entropy"
    check(op, input, getattr(input, "shape", ()), target, weight, label_smoothing, softcap)
    arguments.is_one_of(op, "reduction", reduction, REDUCTIONS)
    for name, value in (("size_average", size_average), ("reduce", reduce)):
        if value is not None:
            raise ArgumentError(f"{op}: {name}: expected None; pass reduction=, got {value!r}")
    classes = input.shape[min(1, input.dim() - 1)]
    if choosing.decomposes(op, classes, (input,)):
        found = decompositions.cross_entropy(
            input, target, weight, None, ignore_index, None, reduction, label_smoothing,
            softcap=softcap, z_loss=z_loss, return_aux=return_aux,
        )  # fmt: skip
        return CrossEntropy(*found) if return_aux else found
    rows = input.movedim(1, -1) if input.dim() > 1 else input
    loss, log_sum, _, counted = programs.cross_entropy(
        rows, target, weight, ignore_index, label_smoothing, z_loss, softcap or 1.0,
        has_cap=softcap is not None, is_smooth=label_smoothing > 0,
    )  # fmt: skip
    if reduction == "mean":
        loss = loss.sum() / counted.sum()
    elif reduction == "sum":
        loss = loss.sum()
    return CrossEntropy(loss, log_sum) if return_aux else loss


def check(
    op: str, input: torch.Tensor, shape: Sequence[int], target: torch.Tensor,
    weight: torch.Tensor | None, label_smoothing: float, softcap: float | None,
) -> None:  # fmt: skip
    """Raise unless the arguments fit logits of this shape, of the dtype of ``input``."""
    arguments.is_float(op, "input", input)
    if len(shape) == 0:
        raise ArgumentError(f"{op}: input: expected at least one dimension, got a number")
    if not isinstance(target, torch.Tensor) or target.dtype != torch.int64:
        got = target.dtype if isinstance(target, torch.Tensor) else type(target).__name__
        raise ArgumentTypeError(f"{op}: target: expected class numbers of int64, got {got}")
    classes = min(1, len(shape) - 1)
    arguments.has_shape(op, "target", target, (*shape[:classes], *shape[classes + 1 :]))
    if weight is not None:
        arguments.is_float(op, "weight", weight)
        arguments.has_shape(op, "weight", weight, (shape[classes],))
    if not 0.0 <= arguments.is_number(op, "label_smoothing", label_smoothing) <= 1.0:
        raise ArgumentError(f"{op}: label_smoothing: expected 0 to 1, got {label_smoothing}")
    arguments.cap_of(op, softcap)


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    X, target, W, *ctx.numbers = inputs
    ctx.save_for_backward(X, target, output[1], output[2], W)
    ctx.options = keyword_only_inputs


def _backward(
    ctx: Any, d_loss: Any, d_log_sum: Any, d_log_rest: Any, d_weight: Any
) -> tuple[Any, ...]:
    X, target, log_sum, log_rest, W = ctx.saved_tensors
    dX = programs.cross_entropy_backward(
        d_loss, d_log_sum, X, target, log_sum, log_rest, W, *ctx.numbers, **ctx.options
    )
    return dX, None, None, *(None for _ in ctx.numbers)


programs.cross_entropy.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
def _loss(**options: Any) -> Any:
    """The arguments of a loss, with targets that follow from the shape; a fifth is ignored."""

    def arguments(logits: torch.Tensor) -> Any:
        rows, classes = logits.shape
        target = (torch.arange(rows, device=logits.device) * 7919) % max(classes, 1)
        target[1::5] = -100
        return (logits, target), options

    return arguments


INFOS = (
    OpInfo(
        "cross_entropy", cross_entropy, decompositions.cross_entropy,
        (
            Form("plain", shapes.rows(1), _loss()),
            Form("smooth", shapes.rows(1), _loss(label_smoothing=0.1, reduction="sum")),
            Form("rows", shapes.rows(1), _loss(reduction="none")),
            Form("cap", shapes.rows(1), _loss(softcap=2.0, z_loss=0.1, reduction="none")),
        ),
        "the arguments of `torch.nn.functional.cross_entropy`, and `softcap`, `z_loss`, "
        "`return_aux`",
        programs.cross_entropy, (0, 1),
        {
            "cross_entropy": by_rows((0, 1), "rrrr"),
            "cross_entropy_backward": by_rows((0, 1, 2, 3, 4, 5), "r"),
        },
        lambda inputs, outputs: inputs,
        (
            BenchShape(16384, 32768, "a small vocabulary"),
            BenchShape(4096, 128256, "Llama 3"),
            BenchShape(8192, 131072, "a large vocabulary"),
            BenchShape(4096, 256000, "Gemma 2"),
        ),
    ),
)  # fmt: skip
register(INFOS)

"""Softmax over one dimension, with its gradient."""

from __future__ import annotations

from typing import Any

import torch

from tileops.ops import arguments, choosing, decompositions, shapes
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import softmax as programs
from tileops.ops.sharding import by_rows


def softmax(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """``exp(input) / sum(exp(input))`` along the dimension ``dim``.

    Computed in float32 (float64 for float64) from differences with the largest element, and rounded
    once. A row of -inf alone, or with +inf or NaN, gives NaN, as ``torch.softmax`` does.

    input: float16, bfloat16, float32 or float64, of any shape. The last dimension is the fast one:
           another ``dim`` costs copies.
    dtype: the dtype to which ``input`` is converted first; None for its own.

    Returns a tensor of the shape of ``input``. ArgumentError (ArgumentTypeError) names what does
    not fit.
    """
    if isinstance(input, torch.Tensor) and dtype is not None:
        input = input.to(dtype)
    arguments.is_float("softmax", "input", input)
    last = arguments.dimension("softmax", "dim", dim, input)
    if choosing.decomposes("softmax", input.shape[last] if input.dim() else 1, (input,)):
        return decompositions.softmax(input, last)
    moved = input.movedim(last, -1) if input.dim() else input.view(1)
    out: torch.Tensor = programs.softmax(moved)
    return out.movedim(-1, last) if input.dim() else out.view(())


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, d_out: Any) -> Any:
    return programs.softmax_backward(d_out, *ctx.saved_tensors)


programs.softmax.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
INFOS = (
    OpInfo(
        "softmax", softmax, decompositions.softmax,
        (
            Form("plain", shapes.rows(1), lambda x: ((x, -1), {})),
            Form("first", shapes.rows(1), lambda x: ((x, 0), {})),
        ),
        "softmax over one dimension", programs.softmax, (0,),
        {"softmax": by_rows((0,), "r"), "softmax_backward": by_rows((0, 1), "r")},
        lambda inputs, outputs: outputs,
        (
            BenchShape(65536, 1024, "short rows"),
            BenchShape(16384, 8192, "attention"),
            BenchShape(4096, 32768, "wide rows"),
            BenchShape(1024, 128256, "vocabulary of Llama 3"),
        ),
    ),
)  # fmt: skip
register(INFOS)

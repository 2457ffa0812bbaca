"""A linear layer with bias, activation and residual in one program, with gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError
from tileops.ops import arguments, choosing, decompositions
from tileops.ops.autocasting import lowered
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import linear as programs


def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *,
    activation: str | None = None, residual: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """``activation(input @ weight^T + bias) + residual``.

    Summed in float32 (float64 for float64) and rounded once, at the end. The products of the
    gradients are torch's.

    input:      (..., in_features), float16, bfloat16, float32 or float64.
    weight:     (out_features, in_features), of the dtype of ``input``.
    bias:       (out_features,), of the dtype of ``input``; None for none.
    activation: "relu", "gelu", "gelu_tanh" (see ``gelu_mul``), "silu" (see ``silu_mul``), or None.
    residual:   (..., out_features), of the dtype of ``input``; None for none.

    Returns (..., out_features). Under autocast everything is computed in its dtype. ArgumentError
    (ArgumentTypeError) names what does not fit.
    """
    op = "linear"
    given = {"input": input, "weight": weight, "bias": bias, "residual": residual}
    for name, tensor in given.items():
        if name in ("input", "weight") or tensor is not None:
            arguments.is_float(op, name, tensor)
    input, weight, bias, residual = lowered(input, weight, bias, residual)
    _check(op, input, weight, bias, residual)
    if activation is not None:
        arguments.is_one_of(op, "activation", activation, programs.ACTIVATIONS)
    if choosing.decomposes(op, input.shape[-1], (input, weight, bias, residual)):
        return decompositions.linear(input, weight, bias, activation=activation, residual=residual)
    rows = math.prod(input.shape[:-1])
    out, _ = programs.linear(
        input, weight, bias, residual, activation=activation or programs.NONE,
        with_products=arguments.is_recorded(input, weight, bias),
        few_rows=not torch.compiler.is_exporting() and rows <= programs.FEW_ROWS,
    )  # fmt: skip
    return out  # type: ignore[no-any-return]


def _check(
    op: str, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
    residual: torch.Tensor | None,
) -> None:  # fmt: skip
    if input.dim() == 0:
        raise ArgumentError(f"{op}: input: expected at least one dimension, got a number")
    if weight.dim() != 2 or weight.shape[1] != input.shape[-1]:
        raise ArgumentError(
            f"{op}: weight: expected (out_features, {input.shape[-1]}), got {tuple(weight.shape)}"
        )
    arguments.has_shape(op, "bias", bias, weight.shape[:1])
    arguments.has_shape(op, "residual", residual, (*input.shape[:-1], weight.shape[0]))
    for name, tensor in (("weight", weight), ("bias", bias), ("residual", residual)):
        if tensor is not None:
            arguments.has_dtype(op, name, tensor, "input", input)


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    X, W, bias, residual = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(X, W, bias, output[1])
    ctx.options = keyword_only_inputs
    ctx.wants = (bias is not None, residual is not None)


def _backward(ctx: Any, d_out: Any, _: Any) -> tuple[Any, ...]:
    X, W, bias, Z = ctx.saved_tensors
    if d_out is None:
        return None, None, None, None
    activation = ctx.options["activation"]
    d_products = d_out
    if activation != programs.NONE:
        if not ctx.options["with_products"]:  # a call of the op itself
            _, Z = programs.linear(X, W, bias, **{**ctx.options, "with_products": True})
        d_products = programs.activation_backward(d_out, Z, activation=activation)
    rows = d_products.reshape(-1, W.shape[0])
    wants = ctx.needs_input_grad
    d_bias = None
    if bias is not None and wants[2]:
        wide = decompositions.wide(bias.dtype)
        d_bias = rows.sum(0, dtype=wide).to(bias.dtype)
    return (
        d_products @ W if wants[0] else None,
        rows.t() @ X.reshape(-1, W.shape[1]) if wants[1] else None,
        d_bias,
        d_out if ctx.wants[1] else None,
    )


programs.linear.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
def _flops(X: Sequence[int], W: Sequence[int], *others: Any, **options: Any) -> int:
    return 2 * math.prod(X) * W[0]


def config(call: Any) -> tuple[dict[str, int], str]:
    """The tile of a call of the program, and the reason."""
    X, *_, residual = (*call.arguments, None, None)[:4]
    tile = programs.tile_of(
        8 * X.element_size(), call.options.get("few_rows", False), residual is not None
    )
    return tile._asdict(), f"a product of {tuple(X.shape)} {X.dtype}"


def _shapes(has_bias: bool, has_residual: bool) -> Any:
    """Rows and a matrix, of a model's size where there are as many rows as models have."""

    def shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
        features = 13 if rows < 2048 else 14336
        beside = ((features,),) * has_bias + ((rows, features),) * has_residual
        return ((rows, columns), (features, columns), *beside)

    return shapes


def _layer(activation: str | None) -> Any:
    def arguments(input: Any, weight: Any, bias: Any = None, residual: Any = None) -> Any:
        return (input, weight, bias), {"activation": activation, "residual": residual}

    return arguments


INFOS = (
    OpInfo(
        "linear", linear, decompositions.linear,
        (
            Form("plain", _shapes(False, False), _layer(None)),
            Form("gelu", _shapes(True, False), _layer("gelu")),
            Form("silu", _shapes(True, True), _layer("silu")),
            Form("relu", _shapes(False, False), _layer("relu")),
        ),
        "`activation(input @ weight.T + bias) + residual`", programs.linear, (0, 3), {},
        lambda inputs, outputs: inputs,
        (
            BenchShape(4096, 4096, "Llama 3 8B"),
            BenchShape(16384, 4096, "Llama 3 8B"),
        ),
        flops={"linear": _flops}, lowers=True,
    ),
)  # fmt: skip
register(INFOS)

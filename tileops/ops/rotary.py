"""Rotary position embedding of queries and keys, with its gradient."""

from __future__ import annotations

from typing import Any

import torch

from tileops.errors import ArgumentError
from tileops.ops import arguments, choosing, decompositions, shapes
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import rope as programs
from tileops.ops.sharding import rope_rule


def rope(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *,
    position_ids: torch.Tensor | None = None, interleaved: bool = False, unsqueeze_dim: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``x * cos + partner(x) * sin`` for queries and keys; returns the new ``(query, key)``.

    After Su et al., "RoFormer", 2021. The partner of an element in the first half of a head is the
    negated one half a head later; that of one in the second half is the one half a head earlier.
    Computed in float32 (float64 for float64) and rounded once.

    query, key:    (batch, heads, positions, D), or (batch, positions, heads, D) with
                   ``unsqueeze_dim=2``, of one dtype and any strides but in D; D is even.
    cos, sin:      (positions, D) or (batch, positions, D), of one dtype, without gradients.
    position_ids:  rows of ``cos`` and ``sin``, then (all positions, D), for each position.
    interleaved:   the partners are neighbours, 2n and 2n + 1, instead of halves.

    ArgumentError (ArgumentTypeError) names what does not fit.
    """
    _check(query, key, cos, sin, unsqueeze_dim)
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    q, k = (x.transpose(1, 2) if unsqueeze_dim == 2 else x for x in (query, key))
    cos, sin = (_angles(name, x, q) for name, x in (("cos", cos), ("sin", sin)))
    if choosing.decomposes("rope", q.shape[-1], (q, k)):
        return decompositions.rope(
            query, key, cos, sin, interleaved=interleaved, unsqueeze_dim=unsqueeze_dim
        )
    q, k = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k))
    new_q, new_k = programs.rope(
        q, k, cos, sin, per_batch=cos.shape[0] > 1, interleaved=interleaved
    )
    if unsqueeze_dim == 2:
        return new_q.transpose(1, 2), new_k.transpose(1, 2)
    return new_q, new_k


def _check(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int
) -> None:
    op = "rope"
    if unsqueeze_dim not in (1, 2):
        raise ArgumentError(f"{op}: unsqueeze_dim: expected 1 or 2, got {unsqueeze_dim!r}")
    for name, x in (("query", query), ("key", key), ("cos", cos), ("sin", sin)):
        arguments.is_float(op, name, x)
    if query.dim() != 4 or query.shape[-1] % 2:
        raise ArgumentError(
            f"{op}: query: expected four dimensions, the last one even, got {tuple(query.shape)}"
        )
    heads = unsqueeze_dim
    expected = (*query.shape[:heads], "heads", *query.shape[heads + 1 :])
    got = tuple(key.shape)
    if len(got) != 4 or got[:heads] + got[heads + 1 :] != expected[:heads] + expected[heads + 1 :]:
        raise ArgumentError(f"{op}: key: expected the shape of query but for heads, got {got}")
    arguments.is_like(op, "sin", sin, "cos", cos)
    if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
        raise ArgumentError(f"{op}: cos, sin: expected tensors without gradients; detach them")
    if key.dtype != query.dtype:
        raise ArgumentError(
            f"{op}: key: expected the dtype of query, {query.dtype}, got {key.dtype}"
        )


def _angles(name: str, angles: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The angles as (1 or batch, positions, D)."""
    batch, _, positions, columns = query.shape
    whole = angles.unsqueeze(0) if angles.dim() == 2 else angles
    if tuple(whole.shape) not in ((1, positions, columns), (batch, positions, columns)):
        raise ArgumentError(
            f"rope: {name}: expected the shape ({positions}, {columns}) or ({batch}, {positions}, "
            f"{columns}), got {tuple(angles.shape)}"
        )
    return whole.contiguous()


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[2:])
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, d_query: Any, d_key: Any) -> tuple[Any, ...]:
    gradients = (x if x.stride(-1) == 1 else x.contiguous() for x in (d_query, d_key))
    options = dict(ctx.options, transposed=not ctx.options["transposed"])
    return *programs.rope(*gradients, *ctx.saved_tensors, **options), None, None


programs.rope.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
def _rotation(**options: Any) -> Any:
    """The arguments of a rotation, with angles that follow from the shape."""

    def arguments(query: torch.Tensor, key: torch.Tensor) -> Any:
        positions, half = query.shape[-2], query.shape[-1] // 2
        angles = torch.arange(positions).unsqueeze(-1) * 0.9 ** torch.arange(half)
        angles = angles.repeat(1, 2).to(query.device, decompositions.wide(query.dtype))
        return (query, key, angles.cos(), angles.sin()), options

    return arguments


INFOS = (
    OpInfo(
        "rope", rope, decompositions.rope,
        (
            Form("plain", shapes.query_and_key, _rotation()),
            Form("interleaved", shapes.query_and_key, _rotation(interleaved=True)),
        ),
        "rotary position embedding: the new `(query, key)`", programs.rope, (),
        {"rope": rope_rule}, lambda inputs, outputs: (),
        (
            BenchShape(65536, 64, "GPT-OSS"),
            BenchShape(65536, 128, "Llama 3"),
            BenchShape(131072, 128, "Llama 3"),
            BenchShape(65536, 256, "Gemma 2"),
        ),
    ),
)  # fmt: skip
register(INFOS)

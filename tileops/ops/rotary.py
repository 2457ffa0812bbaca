"""Rotary position embedding of queries and keys, also of their norms, with gradients."""

from __future__ import annotations

from typing import Any

import torch

from tileops.errors import ArgumentError
from tileops.ops import arguments, choosing, decompositions, shapes
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.norms import rms_norm_gradients
from tileops.ops.programs import rope as programs
from tileops.ops.programs.norms import ROUNDINGS
from tileops.ops.sharding import qk_norm_rope_rule, rope_rule


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
    op = "rope"
    _check(op, query, key, cos, sin, unsqueeze_dim)
    q, k, cos, sin = _prepared(op, query, key, cos, sin, position_ids, unsqueeze_dim)
    if choosing.decomposes(op, q.shape[-1], (q, k)):
        return decompositions.rope(
            query, key, cos, sin, interleaved=interleaved, unsqueeze_dim=unsqueeze_dim
        )
    new_q, new_k = programs.rope(
        q, k, cos, sin, per_batch=cos.shape[0] > 1, interleaved=interleaved
    )
    if unsqueeze_dim == 2:
        return new_q.transpose(1, 2), new_k.transpose(1, 2)
    return new_q, new_k


def qk_norm_rope(
    query: torch.Tensor, key: torch.Tensor, query_weight: torch.Tensor | None,
    key_weight: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, *,
    eps: float | None = None, position_ids: torch.Tensor | None = None,
    interleaved: bool = False, unsqueeze_dim: int = 1, weight_offset: float = 0.0,
    rounding: str = "torch",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``rope`` of the ``rms_norm`` of each head of queries and keys; returns the new pair.

    As in Qwen3, Gemma 3 and others ("query-key normalization", Henry et al., 2020, with RMSNorm).
    The norm is rounded to the dtype of ``query`` before the rotation, as ``rms_norm`` returns it.

    query_weight, key_weight:     (D,), of one dtype: float16, bfloat16, float32 or float64; None
                                  for ones.
    eps, weight_offset, rounding: as in ``rms_norm``.

    The others are as in ``rope``. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    op = "qk_norm_rope"
    _check(op, query, key, cos, sin, unsqueeze_dim)
    _check_weights(op, query, query_weight, key_weight)
    arguments.is_one_of(op, "rounding", rounding, ROUNDINGS)
    if eps is None:
        eps = torch.finfo(decompositions.wide(query.dtype)).eps
    q, k, cos, sin = _prepared(op, query, key, cos, sin, position_ids, unsqueeze_dim)
    if choosing.decomposes(op, q.shape[-1], (q, k, query_weight, key_weight)):
        return decompositions.qk_norm_rope(
            query, key, query_weight, key_weight, cos, sin, eps=eps, interleaved=interleaved,
            unsqueeze_dim=unsqueeze_dim, weight_offset=weight_offset, rounding=rounding,
        )  # fmt: skip
    weights = (w if w is None else w.contiguous() for w in (query_weight, key_weight))
    new_q, new_k = programs.qk_norm_rope(
        q, k, cos, sin, *weights, eps, weight_offset,
        rounding=rounding, per_batch=cos.shape[0] > 1, interleaved=interleaved,
    )  # fmt: skip
    if unsqueeze_dim == 2:
        return new_q.transpose(1, 2), new_k.transpose(1, 2)
    return new_q, new_k


def _check_weights(
    op: str, query: torch.Tensor, query_weight: torch.Tensor | None,
    key_weight: torch.Tensor | None,
) -> None:  # fmt: skip
    given = {"query_weight": query_weight, "key_weight": key_weight}
    for name, weight in given.items():
        if weight is not None:
            arguments.is_float(op, name, weight)
            arguments.has_shape(op, name, weight, query.shape[-1:])
    if query_weight is not None and key_weight is not None:
        arguments.has_dtype(op, "key_weight", key_weight, "query_weight", query_weight)


def _prepared(
    op: str, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
    position_ids: torch.Tensor | None, unsqueeze_dim: int,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Queries and keys with heads first and elements side by side; angles of all positions."""
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    q, k = (x.transpose(1, 2) if unsqueeze_dim == 2 else x for x in (query, key))
    cos, sin = (_angles(op, name, x, q) for name, x in (("cos", cos), ("sin", sin)))
    q, k = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k))
    return q, k, cos, sin


def _check(
    op: str, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
    unsqueeze_dim: int,
) -> None:  # fmt: skip
    if unsqueeze_dim not in (1, 2):
        raise ArgumentError(f"{op}: unsqueeze_dim: expected 1 or 2, got {unsqueeze_dim!r}")
    for name, x in (("query", query), ("key", key), ("cos", cos), ("sin", sin)):
        arguments.is_float(op, name, x)
    if query.dim() != 4 or query.shape[-1] % 2 or not query.shape[-1]:
        raise ArgumentError(
            f"{op}: query: expected four dimensions, the last one even and not 0, "
            f"got {tuple(query.shape)}"
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


def _angles(op: str, name: str, angles: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The angles as (1 or batch, positions, D)."""
    batch, _, positions, columns = query.shape
    whole = angles.unsqueeze(0) if angles.dim() == 2 else angles
    if tuple(whole.shape) not in ((1, positions, columns), (batch, positions, columns)):
        raise ArgumentError(
            f"{op}: {name}: expected the shape ({positions}, {columns}) or ({batch}, {positions}, "
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


def _save_norms(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    *tensors, ctx.eps, ctx.offset = inputs
    ctx.save_for_backward(*tensors)
    ctx.rounding = keyword_only_inputs["rounding"]
    ctx.options = {name: keyword_only_inputs[name] for name in ("per_batch", "interleaved")}


def _norms_backward(ctx: Any, d_query: Any, d_key: Any) -> tuple[Any, ...]:
    Q, K, cos, sin, Q_weight, K_weight = ctx.saved_tensors
    gradients = (x if x.stride(-1) == 1 else x.contiguous() for x in (d_query, d_key))
    d_norms = programs.rope(*gradients, cos, sin, transposed=True, **ctx.options)
    found = (
        rms_norm_gradients(ctx, d_norm, X, W, None, wants)
        for d_norm, X, W, wants in zip(
            d_norms, (Q, K), (Q_weight, K_weight), ctx.needs_input_grad[4:6], strict=True
        )
    )
    (d_query, d_query_weight), (d_key, d_key_weight) = found
    return d_query, d_key, None, None, d_query_weight, d_key_weight, None, None


programs.qk_norm_rope.register_autograd(_norms_backward, setup_context=_save_norms)


# -- records -----------------------------------------------------------------------------------
def _rotation(**options: Any) -> Any:
    """The arguments of a rotation, with angles that follow from the shape."""

    def arguments(query: torch.Tensor, key: torch.Tensor, *weights: torch.Tensor) -> Any:
        positions, half = query.shape[-2], query.shape[-1] // 2
        angles = torch.arange(positions).unsqueeze(-1) * 0.9 ** torch.arange(half)
        angles = angles.repeat(1, 2).to(query.device, decompositions.wide(query.dtype))
        return (query, key, *weights, angles.cos(), angles.sin()), options

    return arguments


def _alone(query: torch.Tensor, key: torch.Tensor) -> Any:
    (_, _, *angles), _ = _rotation()(query, key)
    return (query, key, None, None, *angles), {}


def _with_weights(rows: int, columns: int) -> shapes.Shapes:
    heads = shapes.query_and_key(rows, columns)
    return *heads, heads[0][-1:], heads[0][-1:]


_BENCH = (
    BenchShape(65536, 64, "GPT-OSS"),
    BenchShape(65536, 128, "Llama 3"),
    BenchShape(131072, 128, "Llama 3"),
    BenchShape(65536, 256, "Gemma 2"),
)
_OF_NORMS = (
    BenchShape(65536, 128, "Qwen3"),
    BenchShape(131072, 128, "Qwen3"),
    BenchShape(65536, 256, "Gemma 3"),
)
INFOS = (
    OpInfo(
        "rope", rope, decompositions.rope,
        (
            Form("plain", shapes.query_and_key, _rotation()),
            Form("interleaved", shapes.query_and_key, _rotation(interleaved=True)),
        ),
        "rotary position embedding: the new `(query, key)`", programs.rope, (),
        {"rope": rope_rule}, lambda inputs, outputs: (),
        _BENCH,
    ),
    OpInfo(
        "qk_norm_rope", qk_norm_rope, decompositions.qk_norm_rope,
        (
            Form("plain", _with_weights, _rotation(eps=1e-6)),
            Form("alone", shapes.query_and_key, _alone),
            Form(
                "interleaved", _with_weights,
                _rotation(eps=1e-6, interleaved=True, weight_offset=1.0, rounding="llama"),
            ),
        ),
        "`rope` of the RMSNorm of each head: the new `(query, key)`", programs.qk_norm_rope, (),
        {"qk_norm_rope": qk_norm_rope_rule}, lambda inputs, outputs: inputs, _OF_NORMS,
    ),
)  # fmt: skip
register(INFOS)

"""The operators in torch operations, with the same arguments and the same roundings.

In float64 they are the references of the tests. ``torch.compile`` gets them where it fuses them
with their neighbours at less cost than a call of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of ``dtype`` are summed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


# -- norms -------------------------------------------------------------------------------------
def rms_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
    eps: float | None = None, *, weight_offset: float = 0.0, rounding: str = "torch",
) -> torch.Tensor:  # fmt: skip
    """See ``tileops.ops.rms_norm``."""
    acc = wide(input.dtype)
    x = input.to(acc)
    dims = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(acc).eps if eps is None else eps
    y = x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)
    if rounding == "llama":
        y = y.to(input.dtype).to(acc)
    if weight is not None:
        y = y * (weight.to(acc) + weight_offset)
    return y.to(input.dtype)


def add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None, eps: float | None = None, *,
    weight_offset: float = 0.0, rounding: str = "torch",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """See ``tileops.ops.add_rms_norm``."""
    total = input + residual
    norm = rms_norm(
        total, normalized_shape, weight, eps, weight_offset=weight_offset, rounding=rounding
    )
    return norm, total


def layer_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, eps: float = 1e-5,
) -> torch.Tensor:  # fmt: skip
    """See ``tileops.ops.layer_norm``."""
    if all(w is None or w.dtype == input.dtype for w in (weight, bias)):
        return F.layer_norm(input, tuple(normalized_shape), weight, bias, eps)
    acc = wide(input.dtype)
    weight, bias = (None if w is None else w.to(acc) for w in (weight, bias))
    return F.layer_norm(input.to(acc), tuple(normalized_shape), weight, bias, eps).to(input.dtype)


def add_layer_norm(
    input: torch.Tensor, residual: torch.Tensor, normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """See ``tileops.ops.add_layer_norm``."""
    total = input + residual
    return layer_norm(total, normalized_shape, weight, bias, eps), total


# -- gates, rotation, softmax ------------------------------------------------------------------
def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """See ``tileops.ops.silu_mul``."""
    return F.silu(gate) * up


def gelu_mul(gate: torch.Tensor, up: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """See ``tileops.ops.gelu_mul``."""
    return F.gelu(gate, approximate=approximate) * up


def rope(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *,
    position_ids: torch.Tensor | None = None, interleaved: bool = False, unsqueeze_dim: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """See ``tileops.ops.rope``."""
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    acc = wide(query.dtype)
    heads = -3 if unsqueeze_dim == 1 else -2
    cos, sin = (a.to(acc).unsqueeze(heads) for a in (cos, sin))
    new = []
    for tensor in (query, key):
        x = tensor.to(acc)
        if interleaved:
            partner = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        else:
            first, second = x.chunk(2, -1)
            partner = torch.cat((-second, first), -1)
        new.append((x * cos + partner * sin).to(tensor.dtype))
    return new[0], new[1]


def qk_norm_rope(
    query: torch.Tensor, key: torch.Tensor, query_weight: torch.Tensor | None,
    key_weight: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, *,
    eps: float | None = None, position_ids: torch.Tensor | None = None,
    interleaved: bool = False, unsqueeze_dim: int = 1, weight_offset: float = 0.0,
    rounding: str = "torch",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """See ``tileops.ops.qk_norm_rope``."""
    query, key = (
        rms_norm(x, x.shape[-1:], w, eps, weight_offset=weight_offset, rounding=rounding)
        for x, w in ((query, query_weight), (key, key_weight))
    )
    return rope(
        query, key, cos, sin,
        position_ids=position_ids, interleaved=interleaved, unsqueeze_dim=unsqueeze_dim,
    )  # fmt: skip


def softmax(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """See ``tileops.ops.softmax``."""
    return torch.softmax(input, dim, dtype=dtype)


# -- attention ---------------------------------------------------------------------------------
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, *, window_size: Sequence[int] = (-1, -1),
    softcap: float | None = None, sinks: torch.Tensor | None = None, return_lse: bool = False,
    deterministic: bool | None = None,
) -> Any:  # fmt: skip
    """See ``tileops.ops.attention``; torch's own function where that has what is asked for."""
    shared = query.shape[-3] // max(1, key.shape[-3])
    is_plain = tuple(window_size) == (-1, -1) and softcap is None and sinks is None
    # Torch takes the root of the scale.
    if is_plain and not return_lse and (scale is None or scale > 0):
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, scale=scale, enable_gqa=shared > 1
        )
    positions = torch.arange(query.shape[-2], device=query.device)
    visible = _visible(
        positions[:, None] - torch.arange(key.shape[-2], device=query.device),
        window_size, is_causal,
    )  # fmt: skip
    key, value = (x.repeat_interleave(shared, -3) for x in (key, value))
    return _attend(query, key, value, visible, scale, softcap, sinks, return_lse)


def varlen_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None, max_q: int, max_k: int, *, scale: float | None = None,
    window_size: Sequence[int] = (-1, -1), enable_gqa: bool = False, softcap: float | None = None,
    sinks: torch.Tensor | None = None, return_lse: bool = False,
) -> Any:  # fmt: skip
    """See ``tileops.ops.varlen_attention``."""
    places = []
    for x, starts in ((query, cu_seq_q), (key, cu_seq_q if cu_seq_k is None else cu_seq_k)):
        tokens = torch.arange(x.shape[0], device=x.device, dtype=starts.dtype)
        sequence = torch.bucketize(tokens, starts[1:], right=True)
        last = (starts.shape[0] - 2) if starts.shape[0] > 1 else 0
        places.append((sequence, tokens - starts[1:][sequence.clamp(max=last)]))  # from the end
    (of_query, at_query), (of_key, at_key) = places
    visible = of_query[:, None] == of_key
    visible = visible & _visible(at_query[:, None] - at_key, window_size, False)
    query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    shared = query.shape[0] // key.shape[0]
    key, value = (x.repeat_interleave(shared, 0) for x in (key, value))
    found = _attend(query, key, value, visible, scale, softcap, sinks, return_lse)
    out, *lse = found if return_lse else (found,)
    return (out.transpose(0, 1), *lse) if return_lse else out.transpose(0, 1)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor,
    scale: float | None, softcap: float | None, sinks: torch.Tensor | None, return_lse: bool,
) -> Any:  # fmt: skip
    """Attention of as many key heads as query heads, where ``visible`` says so."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    sees_any = visible.any(-1, keepdim=True)
    scores = scores.to(wide(query.dtype)).masked_fill(~visible & sees_any, -torch.inf)
    every = scores
    if sinks is not None:
        sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        every = torch.cat((scores.masked_fill(~sees_any, -torch.inf), sink), -1)
    weights = every.softmax(-1)[..., : key.shape[-2]].masked_fill(~visible, 0.0)
    out = weights.to(query.dtype) @ value
    if not return_lse:
        return out
    lse = every.logsumexp(-1)
    return out, lse if sinks is not None else lse.masked_fill(~sees_any[..., 0], -torch.inf)


def _visible(behind: torch.Tensor, window_size: Sequence[int], is_causal: bool) -> torch.Tensor:
    """Which keys a query sees that are so much behind it."""
    left, right = window_size
    visible = torch.ones_like(behind, dtype=torch.bool)
    if left >= 0:
        visible = visible & (behind <= left)
    if is_causal or right >= 0:
        visible = visible & (behind >= (0 if is_causal else -right))
    return visible


# -- products ----------------------------------------------------------------------------------
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}  # fmt: skip


def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *,
    activation: str | None = None, residual: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """See ``tileops.ops.linear``."""
    out = F.linear(input, weight, bias)
    if activation is not None:
        out = _ACTIVATIONS[activation](out)
    return out if residual is None else out + residual


def _by_groups(a: torch.Tensor, b: torch.Tensor, ends: Sequence[int]) -> torch.Tensor:
    starts = [0, *ends[:-1]]
    if b.dim() == 2:
        parts = [a[:, i:j] @ b[i:j] for i, j in zip(starts, ends, strict=True)]
        return torch.stack(parts) if parts else a.new_zeros(0, a.shape[0], b.shape[1])
    parts = [a[i:j] @ own for i, j, own in zip(starts, ends, b, strict=True)]
    behind = a.shape[0] - (ends[-1] if ends else 0)
    return torch.cat([*parts, a.new_zeros(max(behind, 0), b.shape[-1])])


def grouped_mm(
    mat_a: torch.Tensor, mat_b: torch.Tensor, *, offs: torch.Tensor | None = None,
    bias: None = None, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """See ``tileops.ops.grouped_mm``.

    Outside of a trace it reads the ends, and multiplies a group at a time. A trace may not: every
    group's product is computed with all rows.
    """
    if out_dtype is not None:
        mat_a, mat_b = mat_a.to(out_dtype), mat_b.to(out_dtype)
    if offs is None:
        return torch.bmm(mat_a, mat_b)
    if mat_a.dim() == 3:
        return grouped_mm(mat_b.mT, mat_a.mT, offs=offs).mT
    if not torch.compiler.is_compiling():
        return _by_groups(mat_a, mat_b, offs.tolist())
    divided = mat_a.shape[0 if mat_b.dim() == 3 else 1]
    place = torch.arange(divided, device=offs.device)
    starts = torch.cat((torch.zeros_like(offs[:1]), offs[:-1]))
    belongs = (starts[:, None] <= place) & (place < offs[:, None])
    if mat_b.dim() == 3:
        return torch.where(belongs[:, :, None], mat_a @ mat_b, 0).sum(0, dtype=mat_a.dtype)
    own = torch.where(belongs[:, None, :], mat_a, 0)
    return own @ torch.where(belongs[:, :, None], mat_b, 0)


# -- 8 bits and 4 bits -------------------------------------------------------------------------
# The largest numbers; int8 has a negative of the same size.
_LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0}


def quantise(
    rows: torch.Tensor, scale: torch.Tensor | None, out_dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """``rows`` divided by ``scale``, or by a scale for each, as ``out_dtype``; and the scales."""
    acc, largest = wide(rows.dtype), _LARGEST[out_dtype]
    if scale is None:
        has_columns = rows.shape[-1] > 0
        top = rows.abs().amax(-1, True) if has_columns else rows.new_zeros(*rows.shape[:-1], 1)
        scale = (top.to(acc) / largest).float()
        scale = scale.where(scale != 0, 1.0)
    quotient = rows.to(acc) / scale.to(acc)
    if out_dtype == torch.int8:
        quotient = quotient.round().nan_to_num(0.0, torch.inf, -torch.inf)
    return quotient.clamp(-largest, largest).to(out_dtype), scale


def rms_norm_quant(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
    eps: float | None = None, *, scale: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.float8_e4m3fn, weight_offset: float = 0.0,
    rounding: str = "torch",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """See ``tileops.ops.rms_norm_quant``."""
    norm = rms_norm(
        input, normalized_shape, weight, eps, weight_offset=weight_offset, rounding=rounding
    )
    rows = norm.flatten(-len(normalized_shape))
    out, scales = quantise(rows, None if scale is None else scale.reshape(1), out_dtype)
    return out.view(input.shape), scales if scale is None else scale


def silu_mul_quant(
    gate: torch.Tensor, up: torch.Tensor, *, scale: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """See ``tileops.ops.silu_mul_quant``."""
    given = None if scale is None else scale.reshape(1)
    out, scales = quantise(silu_mul(gate, up), given, out_dtype)
    return out, scales if scale is None else scale


def scaled_mm(
    input: torch.Tensor, mat2: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    bias: torch.Tensor | None = None, scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """See ``tileops.ops.scaled_mm``; operands of float64 give the reference."""
    acc = wide(input.dtype)
    out = input.to(acc) @ mat2.to(acc)
    if scale_a.numel() == scale_b.numel() == 1:
        out = out * (scale_a.reshape(1) * scale_b.reshape(1))
    else:
        out = out * scale_a * scale_b
    if bias is not None:
        out = out + bias
    if scale_result is not None:
        out = out * scale_result.reshape(1)
    out_dtype = input.dtype if out_dtype is None else out_dtype
    if out_dtype in _LARGEST:
        out = out.clamp(-_LARGEST[out_dtype], _LARGEST[out_dtype])
    return out.to(out_dtype)


def int4_linear(
    input: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor,
    zeros: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, group_size: int,
) -> torch.Tensor:  # fmt: skip
    """See ``tileops.ops.int4_linear``."""
    acc, columns = wide(input.dtype), input.shape[-1]
    codes = torch.stack((weight & 15, weight >> 4), -1).flatten(-2)[:, :columns].to(acc)
    zero, scale = (
        8.0 if x is None else x.to(acc).repeat_interleave(group_size, 1)[:, :columns]
        for x in (zeros, scales)
    )
    return F.linear(input, ((codes - zero) * scale).to(input.dtype), bias)


# -- losses ------------------------------------------------------------------------------------
def cross_entropy(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None,
    size_average: None = None, ignore_index: int = -100, reduce: None = None,
    reduction: str = "mean", label_smoothing: float = 0.0, *,
    softcap: float | None = None, z_loss: float = 0.0, return_aux: bool = False,
) -> Any:  # fmt: skip
    """See ``tileops.ops.cross_entropy``; with ``return_aux`` a tuple (loss, log of the sums)."""
    x = input.to(wide(input.dtype))
    if softcap is not None:
        x = softcap * torch.tanh(x / softcap)
    classes = min(1, input.dim() - 1)
    weight = None if weight is None else weight.to(x.dtype)
    options: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    if not z_loss and not return_aux:
        return F.cross_entropy(x, target, weight, reduction=reduction, **options)
    loss = F.cross_entropy(x, target, weight, reduction="none", **options)
    log_sum = x.logsumexp(classes)
    kept = target != ignore_index
    loss = loss + z_loss * log_sum.square() * kept
    if reduction == "mean":
        counted = kept if weight is None else weight[target.where(kept, 0)] * kept
        loss = loss.sum() / counted.sum()
    elif reduction == "sum":
        loss = loss.sum()
    return (loss, log_sum) if return_aux else loss


def linear_cross_entropy(
    input: torch.Tensor, linear_weight: torch.Tensor, target: torch.Tensor, *,
    linear_bias: torch.Tensor | None = None, weight: torch.Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    """See ``tileops.ops.linear_cross_entropy``."""
    logits = F.linear(input, linear_weight, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight, None, ignored, None, reduction, **options)

"""Attention of queries, keys and values, with gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import arguments, choosing, decompositions
from tileops.ops.autocasting import lowered
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import attention as programs
from tileops.ops.programs.attention_gradient import attention_backward
from tileops.ops.programs.attention_tiles import (
    PADDED,
    adds_atomically,
    backward_tile,
    forward_tile,
)
from tileops.ops.sharding import attention_backward_rule, attention_rule

WIDEST_HEAD = 256


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, *, window_size: Sequence[int] = (-1, -1),
    softcap: float | None = None, sinks: torch.Tensor | None = None, return_lse: bool = False,
    deterministic: bool | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``softmax(query @ key^T * scale) @ value``, as torch's ``scaled_dot_product_attention``.

    After Dao, "FlashAttention-2", 2023. Softmax is computed in float32 (float64 for float64), and
    its weights are rounded to the dtype of ``query``. A query that sees no key gives 0.

    query:         (..., H, S, D), float16, bfloat16, float32 or float64; D is at most 256. The
                   layouts of (..., H, S, D) and of (..., S, H, D) are read as they are, others are
                   copied.
    key, value:    (..., G, L, D) and (..., G, L, E), of the dtype of ``query``; G divides H, and
                   H / G query heads one after the other share a key head. E is at most 256.
    attn_mask:     must be None.
    dropout_p:     must be 0.
    is_causal:     query i sees keys 0 to i, also where S and L differ.
    scale:         None for ``D ** -0.5``.
    enable_gqa:    for torch's signature; the numbers of heads decide.
    window_size:   (left, right): query i sees keys i - left to i + right; -1 for all.
    softcap:       bounds the scaled products: ``softcap * tanh(x / softcap)``; None for none.
    sinks:         (H,), of any of these dtypes: one more score of each head, without a value.
    return_lse:    return ``(out, lse)``: also the logarithm of each row's sum of exponentials,
                   (..., H, S), float32 (float64 for float64), -inf where no key is seen.
    deterministic: equal calls give equal bits, also for gradients; None for what
                   ``torch.use_deterministic_algorithms`` says. Outputs and other gradients than
                   that of ``query`` always do.

    Returns a tensor of shape (..., H, S, E), laid out as (..., S, H, E). Under autocast everything
    is computed in its dtype. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    op = "attention"
    query, key, value, sinks = floats(op, query, key, value, sinks)
    _check(op, query, key, value, sinks)
    for name, given, wanted in (("attn_mask", attn_mask, None), ("dropout_p", dropout_p, 0.0)):
        if given != wanted:
            raise ArgumentError(f"{op}: {name}: expected {wanted}, got {given!r}")
    left, right = window(op, window_size, is_causal)
    scale = scale_of(op, query.shape[-1], scale)
    cap = arguments.cap_of(op, softcap)
    if choosing.decomposes(op, query.shape[-1], (query, key, value)):
        return decompositions.attention(  # type: ignore[no-any-return]
            query, key, value, None, 0.0, is_causal, scale, window_size=window_size,
            softcap=softcap, sinks=sinks, return_lse=return_lse,
        )  # fmt: skip
    query, scale = with_positive(scale, query)
    q, k, v = (_Laid(x) for x in (query, key, value))
    out, log_sums = programs.attention(
        q.tensor, k.tensor, v.tensor, sinks, scale=scale, softcap=cap, left=left, right=right,
        clips=_clips(query.shape[-2], key.shape[-2], right),
        with_log_sum=return_lse or arguments.is_recorded(query, key, value, sinks),
        deterministic=is_deterministic(op, query, value, deterministic),
        q_heads_first=q.heads_first, k_heads_first=k.heads_first, v_heads_first=v.heads_first,
    )  # fmt: skip
    out = out.transpose(-3, -2)
    return (out, log_sums[..., : query.shape[-2]]) if return_lse else out


class _Laid:
    """A tensor (..., heads, positions, D) in the order of its memory, if that is one of two."""

    def __init__(self, tensor: torch.Tensor) -> None:
        turned = tensor.transpose(-3, -2)
        self.heads_first = tensor.is_contiguous() and not turned.is_contiguous()
        self.tensor = tensor if self.heads_first else turned


def _clips(queries: int, keys: int, right: int) -> bool:
    """Whether the last tile of keys has some past the end that queries must be kept from.

    A query before the end sees none of them where keys end with the queries or later. An export
    must not depend on a length.
    """
    if right == 0 and keys >= queries:
        return False
    return torch.compiler.is_exporting() or keys % PADDED != 0


def floats(
    op: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None
) -> tuple[Any, ...]:
    """The tensors in the dtype of autocast; an error names one that is not of floats."""
    for name, tensor in (("query", query), ("key", key), ("value", value), ("sinks", sinks)):
        if name != "sinks" or tensor is not None:
            arguments.is_float(op, name, tensor)
    return tuple(lowered(query, key, value, sinks))


def with_positive(scale: float, query: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Queries and a positive scale, to which -inf stays -inf, of the same scaled products."""
    if scale > 0:
        return query, scale
    return (-query, -scale) if scale else (query * 0, 1.0)


def _check(
    op: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None
) -> None:
    if query.dim() < 3:
        raise ArgumentError(
            f"{op}: query: expected (..., heads, positions, D), got {tuple(query.shape)}"
        )
    *leading, heads, _, width = query.shape
    for name, x in (("key", key), ("value", value)):
        arguments.has_dtype(op, name, x, "query", query)
        if x.dim() != query.dim() or list(x.shape[:-3]) != leading:
            raise ArgumentError(
                f"{op}: {name}: expected the leading dimensions of query, {tuple(leading)}, before "
                f"heads, positions and D, got the shape {tuple(x.shape)}"
            )
    if key.shape[-1] != width:
        raise ArgumentError(f"{op}: key: expected D = {width} as query, got {key.shape[-1]}")
    if value.shape[-3:-1] != key.shape[-3:-1]:
        raise ArgumentError(
            f"{op}: value: expected the heads and positions of key, {tuple(key.shape[-3:-1])}, got "
            f"{tuple(value.shape[-3:-1])}"
        )
    check_heads(op, heads, key.shape[-3], width, value.shape[-1], sinks)


def check_heads(
    op: str, heads: int, key_heads: int, width: int, value_width: int, sinks: torch.Tensor | None
) -> None:
    """ArgumentError unless the heads fit together and into the tiles."""
    if key_heads == 0 or heads == 0 or heads % key_heads:
        raise ArgumentError(
            f"{op}: key: expected heads of which query's {heads} are a multiple, got {key_heads}"
        )
    for name, columns in (("query", width), ("value", value_width)):
        if not 1 <= columns <= WIDEST_HEAD:
            raise ArgumentError(
                f"{op}: {name}: expected a last dimension of 1 to {WIDEST_HEAD}, got {columns}"
            )
    arguments.has_shape(op, "sinks", sinks, (heads,))


def window(op: str, window_size: Sequence[int], is_causal: bool) -> tuple[int, int]:
    """Keys before and behind its own position that a query sees; -1 for all."""
    try:
        left, right = window_size
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"{op}: window_size: expected two integers, got {window_size!r}"
        ) from None
    for side in (left, right):
        if isinstance(side, bool) or not isinstance(side, int) or side < -1:
            raise ArgumentError(f"{op}: window_size: expected -1 or more, got {window_size!r}")
    return left, 0 if is_causal else right


def scale_of(op: str, width: int, scale: float | None) -> float:
    """The factor of the products."""
    if scale is None:
        return float(width**-0.5)
    scale = float(arguments.is_number(op, "scale", scale))
    if not math.isfinite(scale):
        raise ArgumentError(f"{op}: scale: expected a finite number, got {scale}")
    return scale


def is_deterministic(
    op: str, query: torch.Tensor, value: torch.Tensor, deterministic: bool | None
) -> bool:
    """Whether gradients of queries are made without atomic additions; always on the CPU."""
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    elif not isinstance(deterministic, bool):
        raise ArgumentTypeError(
            f"{op}: deterministic: expected True, False or None, got {deterministic!r}"
        )
    bits = 8 * query.element_size()
    may_add = adds_atomically(query.shape[-1], value.shape[-1], bits)
    return deterministic or not may_add or query.device.type == "cpu"


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs, *output)
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, d_out: Any, d_log_sums: Any) -> tuple[Any, ...]:
    Q, K, V, sinks, out, log_sums = ctx.saved_tensors
    if d_out is None and d_log_sums is None:
        return None, None, None, None
    if not ctx.options["with_log_sum"]:  # a call of the op itself
        out, log_sums = programs.attention(Q, K, V, sinks, **{**ctx.options, "with_log_sum": True})
        d_log_sums = None
    d_out = torch.zeros_like(out) if d_out is None else d_out
    options = {name: value for name, value in ctx.options.items() if name != "with_log_sum"}
    dQ, dK, dV, delta, _ = attention_backward(d_out, out, Q, K, V, log_sums, d_log_sums, **options)
    d_sinks = None
    if sinks is not None and ctx.needs_input_grad[3]:
        d_sinks = sink_gradient(sinks, log_sums, delta, out.shape[-3])
    return dQ, dK, dV, d_sinks


def sink_gradient(
    sinks: torch.Tensor, log_sums: torch.Tensor, delta: torch.Tensor, positions: int
) -> torch.Tensor:
    """The gradient of each head's sink, whose weight takes from those of the keys."""
    log_sums, delta = (x[..., :positions] for x in (log_sums, delta))
    weight = (sinks.to(delta.dtype).unsqueeze(-1) - log_sums).exp()
    terms = torch.where(log_sums == -torch.inf, 0.0, -weight * delta).sum(-1)
    return terms.reshape(-1, sinks.shape[0]).sum(0).to(sinks.dtype)


programs.attention.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
def _length(shape: Sequence[int], heads_first: bool) -> int:
    return shape[-2] if heads_first else shape[-3]


def _flops(
    Q: Sequence[int], K: Sequence[int], V: Sequence[int], *others: Any,
    k_heads_first: bool = False, out_shape: Any = None, **options: Any,
) -> int:  # fmt: skip
    """Both products, also of what a mask hides, as torch counts them."""
    return 2 * math.prod(Q[:-1]) * _length(K, k_heads_first) * (Q[-1] + V[-1])


def _backward_flops(
    dOut: Any, Out: Any, Q: Sequence[int], K: Sequence[int], V: Sequence[int], *others: Any,
    k_heads_first: bool = False, out_shape: Any = None, **options: Any,
) -> int:  # fmt: skip
    """Three products with heads of queries and keys, two with heads of values."""
    return 2 * math.prod(Q[:-1]) * _length(K, k_heads_first) * (3 * Q[-1] + 2 * V[-1])


def config(call: Any) -> tuple[dict[str, int], str]:
    """The tile of a call of a program, and the reason."""
    Q, V = (call.arguments[n] for n in ((2, 4) if "backward" in call.name else (0, 2)))
    choose = backward_tile if "backward" in call.name else forward_tile
    tile = choose(Q.shape[-1], V.shape[-1], 8 * Q.element_size())
    return tile._asdict(), f"heads of {Q.shape[-1]} and {V.shape[-1]} elements of {Q.dtype}"


def _heads(more_keys: int = 0, sinks: bool = False) -> Any:
    """A batch of one, with the heads of Llama 3 8B where there are as many rows as models have."""

    def shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
        heads, key_heads = (32, 8) if rows >= 2048 else (4, 2)
        width = columns if columns <= WIDEST_HEAD else 128
        keys = (1, key_heads, rows + more_keys, width)
        return ((1, heads, rows, width), keys, keys, *(((heads,),) if sinks else ()))

    return shapes


def _attend(**options: Any) -> Any:
    def arguments(*tensors: torch.Tensor) -> Any:
        given = options if len(tensors) == 3 else {**options, "sinks": tensors[3]}
        return tensors[:3], given

    return arguments


INFOS = (
    OpInfo(
        "attention", attention, decompositions.attention,
        (
            Form("plain", _heads(), _attend(is_causal=True)),
            Form("full", _heads(more_keys=3), _attend(return_lse=True)),
            Form("window", _heads(more_keys=3), _attend(window_size=(5, 2), softcap=2.0)),
            Form("sinks", _heads(sinks=True), _attend(is_causal=True, window_size=(9, -1))),
        ),
        "the arguments of `torch.nn.functional.scaled_dot_product_attention`, and `window_size`, "
        "`softcap`, `sinks`, `return_lse`",
        programs.attention, (0, 1, 2),
        {"attention": attention_rule, "attention_backward": attention_backward_rule},
        lambda inputs, outputs: (*inputs, outputs[0]),
        (
            BenchShape(4096, 64, "GPT-OSS"),
            BenchShape(4096, 128, "Llama 3 8B"),
            BenchShape(4096, 256, "Gemma 2"),
        ),
        flops={"attention": _flops, "attention_backward": _backward_flops},
        lowers=True, rows=-3,
    ),
)  # fmt: skip
register(INFOS)

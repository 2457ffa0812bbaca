"""Attention of sequences of different lengths, packed one after the other, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import arguments, choosing, decompositions
from tileops.ops.attentions import (
    check_heads,
    floats,
    scale_of,
    sink_gradient,
    window,
    with_positive,
)
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import varlen_attention as programs
from tileops.ops.sharding import varlen_attention_backward_rule, varlen_attention_rule

_STARTS = (torch.int32, torch.int64)


def varlen_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None, max_q: int, max_k: int, *, scale: float | None = None,
    window_size: Sequence[int] = (-1, -1), enable_gqa: bool = False, softcap: float | None = None,
    sinks: torch.Tensor | None = None, return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``attention`` within each of some packed sequences, as ``torch.nn.attention.varlen`` has it.

    Positions count from the ends of queries and keys of a sequence: its last query is at its last
    key. So ``window_size=(-1, 0)`` is causal attention.

    query:       (tokens, H, D), as in ``attention``.
    key, value:  (tokens, G, D) and (tokens, G, E), as in ``attention``.
    cu_seq_q:    (N + 1,), int32 or int64: where each sequence of queries begins, and the end of the
                 last one, which is the number of tokens.
    cu_seq_k:    the same of the keys; None for ``cu_seq_q``.
    max_q:       a number that no sequence has more queries than.
    max_k:       a number that no sequence has more keys than.
    window_size: (left, right): the query at position i sees keys i - left to i + right; -1 for all.
    return_lse:  return ``(out, lse)``; ``lse`` has the shape (H, tokens).

    The other arguments and the numbers are those of ``attention``; gradients are the same in equal
    calls. Returns (tokens, H, E). ArgumentError (ArgumentTypeError) names what does not fit. What
    the tensors of starts hold is not checked.
    """
    op = "varlen_attention"
    query, key, value, sinks = floats(op, query, key, value, sinks)
    cu_seq_k = cu_seq_q if cu_seq_k is None else cu_seq_k
    _check(op, query, key, value, cu_seq_q, cu_seq_k, sinks)
    most = (_count(op, "max_q", max_q), _count(op, "max_k", max_k))
    left, right = window(op, window_size, False)
    scale = scale_of(op, query.shape[-1], scale)
    cap = arguments.cap_of(op, softcap)
    if choosing.decomposes(op, query.shape[-1], (query, key, value)):
        return decompositions.varlen_attention(  # type: ignore[no-any-return]
            query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale=scale,
            window_size=window_size, softcap=softcap, sinks=sinks, return_lse=return_lse,
        )  # fmt: skip
    query, scale = with_positive(scale, query)
    starts = (x.to(torch.int32) for x in (cu_seq_q, cu_seq_k))
    out, log_sums = programs.varlen_attention(
        query, key, value, *starts, sinks, *most, scale=scale, softcap=cap, left=left, right=right
    )
    return (out, log_sums) if return_lse else out


def _count(op: str, name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise ArgumentTypeError(f"{op}: {name}: expected an integer, got {type(value).__name__}")
    if value < 0:
        raise ArgumentError(f"{op}: {name}: expected 0 or more, got {value}")
    return value


def _check(
    op: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor, sinks: torch.Tensor | None,
) -> None:  # fmt: skip
    for name, x in (("query", query), ("key", key), ("value", value)):
        arguments.has_dtype(op, name, x, "query", query)
        if x.dim() != 3:
            raise ArgumentError(f"{op}: {name}: expected (tokens, heads, D), got {tuple(x.shape)}")
    if key.shape[2] != query.shape[2]:
        raise ArgumentError(
            f"{op}: key: expected D = {query.shape[2]} as query, got {key.shape[2]}"
        )
    if value.shape[:2] != key.shape[:2]:
        raise ArgumentError(
            f"{op}: value: expected the tokens and heads of key, {tuple(key.shape[:2])}, got "
            f"{tuple(value.shape[:2])}"
        )
    check_heads(op, query.shape[1], key.shape[1], query.shape[2], value.shape[2], sinks)
    for name, x in (("cu_seq_q", cu_seq_q), ("cu_seq_k", cu_seq_k)):
        if not isinstance(x, torch.Tensor) or x.dtype not in _STARTS:
            got = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            raise ArgumentTypeError(f"{op}: {name}: expected int32 or int64, got {got}")
        if x.dim() != 1 or x.shape != cu_seq_q.shape or x.shape[0] == 0:
            raise ArgumentError(
                f"{op}: {name}: expected (sequences + 1,) as cu_seq_q, got {tuple(x.shape)}"
            )


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)
    *tensors, ctx.most_queries, ctx.most_keys = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, d_out: Any, d_log_sums: Any) -> tuple[Any, ...]:
    Q, K, V, *starts, sinks, out, log_sums = ctx.saved_tensors
    if d_out is None and d_log_sums is None:
        return (None,) * 8
    d_out = torch.zeros_like(out) if d_out is None else d_out
    dQ, dK, dV, delta = programs.varlen_attention_backward(
        d_out, out, Q, K, V, *starts, log_sums, d_log_sums, ctx.most_queries, ctx.most_keys,
        **ctx.options,
    )  # fmt: skip
    d_sinks = None
    if sinks is not None and ctx.needs_input_grad[5]:
        d_sinks = sink_gradient(sinks, log_sums, delta, out.shape[0])
    return dQ, dK, dV, None, None, d_sinks, None, None


programs.varlen_attention.register_autograd(_backward, setup_context=_save)


# -- records -----------------------------------------------------------------------------------
def _heads(sinks: bool = False) -> Any:
    """As many tokens as rows; the heads of Llama 3 8B where there are as many as models have."""

    def shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
        heads, key_heads = (32, 8) if rows >= 2048 else (4, 2)
        width = columns if columns <= 256 else 128
        keys = (rows, key_heads, width)
        return ((rows, heads, width), keys, keys, *(((heads,),) if sinks else ()))

    return shapes


def _packed(**options: Any) -> Any:
    """Three sequences, of which one is empty; keys are divided at other places than queries."""

    def arguments(*tensors: torch.Tensor) -> Any:
        tokens, device = tensors[0].shape[0], tensors[0].device
        starts = [
            torch.tensor([0, n, n, tokens], dtype=torch.int32, device=device)
            for n in (tokens // 3, tokens // 2)
        ]
        given = options if len(tensors) == 3 else {**options, "sinks": tensors[3]}
        return (*tensors[:3], *starts, tokens, tokens), given

    return arguments


INFOS = (
    OpInfo(
        "varlen_attention", varlen_attention, decompositions.varlen_attention,
        (
            Form("plain", _heads(), _packed(window_size=(-1, 0))),
            Form("full", _heads(), _packed(return_lse=True)),
            Form("sinks", _heads(sinks=True), _packed(window_size=(7, 0), softcap=2.0)),
        ),
        "`attention` within each of some packed sequences: the arguments of "
        "`torch.nn.attention.varlen.varlen_attn`, and `softcap`, `sinks`, `return_lse`",
        programs.varlen_attention, (),
        {
            "varlen_attention": varlen_attention_rule,
            "varlen_attention_backward": varlen_attention_backward_rule,
        },
        lambda inputs, outputs: (*inputs, outputs[0]),
        (BenchShape(4096, 128, "Llama 3 8B"),),
        lowers=True,
    ),
)  # fmt: skip
register(INFOS)

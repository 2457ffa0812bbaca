"""The programs behind attention of packed sequences, forward and backward."""

from __future__ import annotations

from typing import Any

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.programs.attention import attend
from tileops.ops.programs.attention_gradient import (
    ROWS,
    key_gradients,
    query_gradients,
    start_gradients,
)
from tileops.ops.programs.attention_tiles import (
    DTYPE,
    OPTIONS,
    SINK_DTYPE,
    Place,
    Seen,
    backward_tile,
    columns_of,
    forward_tile,
    store_rows,
)
from tileops.ops.programs.rows import accumulator

_HEADS_LAST = (False, False, False)


def packed(head: Any, H: Any, G: Any, query_start: Any, key_start: Any) -> Place:
    """The place of a head of a packed sequence."""
    return Place(None, head, head // (H // G), _HEADS_LAST, query_start, key_start)


@jit(name=f"{NAMESPACE}::varlen_attention", contiguous="copy", pass_configs=OPTIONS)
def varlen_attention(
    Q, K, V, query_starts, key_starts, sinks=None,
    most_queries: T.int32 = 0, most_keys: T.int32 = 0,
    scale: float = 1.0, softcap: float = 0.0, left: int = -1, right: int = -1,
):  # fmt: skip
    """The output, and the logarithm of each row's sum of exponentials, (heads, tokens).

    ``most_keys`` is for the gradients alone.
    """
    S, L, starts = T.dynamic("S, L, starts")
    H, G, D, DV = T.const("H, G, D, DV")
    Q: T.Tensor((S, H, D), DTYPE)
    K: T.Tensor((L, G, D), DTYPE)
    V: T.Tensor((L, G, DV), DTYPE)
    query_starts: T.Tensor((starts,), T.int32)
    key_starts: T.Tensor((starts,), T.int32)
    sinks: T.Tensor((H,), SINK_DTYPE)
    acc_dtype = accumulator(Q.dtype)
    Out = T.empty((S, H, DV), DTYPE)
    log_sums = T.empty((H, S), acc_dtype)
    tile = forward_tile(D, DV, Q.dtype.bits)
    with T.Kernel(T.ceildiv(most_queries, tile.queries), H, starts - 1, threads=tile.threads) as (
        bx,
        by,
        bz,
    ):
        acc = T.alloc_fragment((tile.queries, columns_of(DV)), acc_dtype)
        log_sum = T.alloc_fragment((tile.queries,), acc_dtype)
        start = query_starts[bz]
        queries = query_starts[bz + 1] - start
        keys = key_starts[bz + 1] - key_starts[bz]
        row = bx * tile.queries
        place = packed(by, H, G, start, key_starts[bz])
        read = T.if_then_else(row < queries, keys, 0)  # of a block past its sequence nothing
        seen = Seen(queries, read, left, right, True, False, keys - queries)
        attend(Q, K, V, acc, log_sum, place, row, seen, sinks, scale, softcap, tile)
        for i in T.Parallel(tile.queries):
            if row + i < queries:
                log_sums[by, start + row + i] = log_sum[i]
        store_rows(acc, Out, place.output_head(row), queries - row)
    return Out, log_sums


@jit(name=f"{NAMESPACE}::varlen_attention_backward", contiguous="copy", pass_configs=OPTIONS)
def varlen_attention_backward(
    dOut, Out, Q, K, V, query_starts, key_starts, log_sums, d_log_sums=None,
    most_queries: T.int32 = 0, most_keys: T.int32 = 0,
    scale: float = 1.0, softcap: float = 0.0, left: int = -1, right: int = -1,
):  # fmt: skip
    """The gradients of Q, K and V, and the rows' sums of Out * dOut."""
    S, L, starts = T.dynamic("S, L, starts")
    H, G, D, DV = T.const("H, G, D, DV")
    dOut: T.Tensor((S, H, DV), DTYPE)
    Out: T.Tensor((S, H, DV), DTYPE)
    Q: T.Tensor((S, H, D), DTYPE)
    K: T.Tensor((L, G, D), DTYPE)
    V: T.Tensor((L, G, DV), DTYPE)
    query_starts: T.Tensor((starts,), T.int32)
    key_starts: T.Tensor((starts,), T.int32)
    acc = accumulator(Q.dtype)
    log_sums: T.Tensor((H, S), acc)
    d_log_sums: T.Tensor((H, S), acc)
    dQ = T.empty((S, H, D), DTYPE)
    dK = T.empty((L, G, D), DTYPE)
    dV = T.empty((L, G, DV), DTYPE)
    delta = T.empty((H, S), acc)
    tile = backward_tile(D, DV, Q.dtype.bits)
    with T.Kernel(T.ceildiv(S, ROWS), H, threads=128) as (bx, by):
        start_gradients(Out, dOut, d_log_sums, delta, None, packed(by, H, G, 0, 0), bx * ROWS)
    with T.Kernel(T.ceildiv(most_keys, tile.keys), G, starts - 1, threads=tile.threads) as (
        bx,
        by,
        bz,
    ):
        start, key_start = query_starts[bz], key_starts[bz]
        queries, keys = query_starts[bz + 1] - start, key_starts[bz + 1] - key_start
        first = bx * tile.keys
        read = T.if_then_else(first < keys, queries, 0)
        seen = Seen(read, keys, left, right, False, True, keys - queries)
        head = by * (H // G)
        key_gradients(
            Q, K, V, dOut, log_sums, delta, None, dK, dV, packed(head, H, G, start, key_start),
            lambda head: packed(head, H, G, start, key_start), head, H // G, first, seen, scale,
            softcap, tile,
        )  # fmt: skip
    with T.Kernel(T.ceildiv(most_queries, tile.keys), H, starts - 1, threads=tile.threads) as (
        bx,
        by,
        bz,
    ):
        start, key_start = query_starts[bz], key_starts[bz]
        queries, keys = query_starts[bz + 1] - start, key_starts[bz + 1] - key_start
        first = bx * tile.keys
        read = T.if_then_else(first < queries, keys, 0)
        seen = Seen(queries, read, left, right, True, False, keys - queries)
        place = packed(by, H, G, start, key_start)
        query_gradients(
            Q, K, V, dOut, log_sums, delta, dQ, place, first, seen, scale, softcap, tile
        )
    return dQ, dK, dV, delta

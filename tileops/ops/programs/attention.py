"""The program behind attention: tiles of queries that go through the keys, softmax on the way."""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.programs.attention_tiles import (
    DTYPE,
    LN_2,
    LOG2_E,
    OPTIONS,
    PADDED,
    SINK_DTYPE,
    Seen,
    columns_of,
    forward_tile,
    layout,
    rows_of,
    shape_of,
)
from tileops.ops.programs.rows import accumulator


@T.macro
def start_scores(scores, query, key, seen, softcap):
    """What the products are added to: -inf for what a query does not see."""
    if seen.hides and not softcap:
        for i, j in T.Parallel(*scores.shape):
            scores[i, j] = T.if_then_else(seen.of(query + i, key + j), 0, -T.infinity(scores.dtype))
    else:
        T.clear(scores)


@T.macro
def cap_scores(scores, query, key, seen, factor, softcap):
    """Bring the products within +-1, and hide those that a query does not see."""
    if softcap:
        for i, j in T.Parallel(*scores.shape):
            scores[i, j] = T.tanh(scores[i, j] * factor)
        if seen.hides:
            for i, j in T.Parallel(*scores.shape):
                scores[i, j] = T.if_then_else(
                    seen.of(query + i, key + j), scores[i, j], -T.infinity(scores.dtype)
                )


@T.macro
def softmax_step(scores, weights, acc, top, before, shift, rescale, part, total, scale):
    """Turn scores into weights, and rescale what was summed so far.

    ``top`` holds the greatest score of each row and ``total`` its sum of weights; ``scale`` is to
    the base 2. A row that sees nothing yet has the top -inf and the sum 0.
    """
    rows, columns = scores.shape
    T.copy(top, before)
    T.reduce_max(scores, top, dim=1, clear=False)
    for i in T.Parallel(rows):
        shift[i] = T.if_then_else(top[i] == -T.infinity(top.dtype), 0, top[i] * scale)
    for i in T.Parallel(rows):
        rescale[i] = T.exp2(before[i] * scale - shift[i])
    for i, j in T.Parallel(rows, columns):
        scores[i, j] = T.exp2(scores[i, j] * scale - shift[i])
    T.reduce_sum(scores, part, dim=1)
    for i in T.Parallel(rows):
        total[i] = total[i] * rescale[i] + part[i]
    for i, j in T.Parallel(rows, acc.shape[1]):
        acc[i, j] *= rescale[i]
    T.copy(scores, weights)


@T.macro
def start_rows(top, total, shift, sinks, head, unit):
    """No key is seen yet. A sink is one more score, of weight 1, without a value."""
    infinity = T.infinity(top.dtype)
    T.clear(shift)
    if sinks is None:
        T.clear(total)
        T.fill(top, -infinity)
    else:
        for i in T.Parallel(top.shape[0]):
            top[i] = T.cast(sinks[head], top.dtype) / unit
        for i in T.Parallel(top.shape[0]):
            total[i] = T.if_then_else(top[i] == -infinity, 0, 1)
        for i in T.Parallel(top.shape[0]):
            shift[i] = T.if_then_else(top[i] == -infinity, 0, top[i] * (unit * LOG2_E))


@T.macro
def attend(Q, K, V, acc, log_sum, place, first_row, seen, sinks, scale, softcap, tile):
    """The output of a tile of queries from ``first_row`` on, and the logarithms of their sums."""
    queries, keys = tile.queries, tile.keys
    Q_s = T.alloc_shared((queries, columns_of(Q.shape[-1])), Q.dtype)
    K_s = T.alloc_shared((keys, columns_of(Q.shape[-1])), Q.dtype)
    V_s = T.alloc_shared((keys, acc.shape[1]), Q.dtype)
    scores = T.alloc_fragment((queries, keys), acc.dtype)
    weights = T.alloc_fragment((queries, keys), Q.dtype)
    top = T.alloc_fragment((queries,), acc.dtype)
    before = T.alloc_fragment((queries,), acc.dtype)
    shift = T.alloc_fragment((queries,), acc.dtype)
    rescale = T.alloc_fragment((queries,), acc.dtype)
    part = T.alloc_fragment((queries,), acc.dtype)
    total = T.alloc_fragment((queries,), acc.dtype)
    T.copy(rows_of(Q, place.query_head(first_row), queries), Q_s)
    T.clear(acc)
    start_rows(top, total, shift, sinks, place.head, softcap or scale)
    for k in T.Pipelined(
        seen.first_key(first_row) // keys,
        T.ceildiv(seen.end_of_keys(first_row + queries), keys),
        num_stages=tile.stages,
    ):
        T.copy(rows_of(K, place.key_head(k * keys), keys), K_s)
        start_scores(scores, first_row, k * keys, seen, softcap)
        T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
        cap_scores(scores, first_row, k * keys, seen, scale / (softcap or 1.0), softcap)
        softmax_step(
            scores, weights, acc, top, before, shift, rescale, part, total,
            (softcap or scale) * LOG2_E,
        )  # fmt: skip
        T.copy(rows_of(V, place.value_head(k * keys), keys), V_s)
        T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
    for i in T.Parallel(queries):
        log_sum[i] = (T.log2(total[i]) + shift[i]) * LN_2
    for i in T.Parallel(queries):
        total[i] = T.if_then_else(total[i] == 0, 1, total[i])
    for i, j in T.Parallel(queries, acc.shape[1]):
        acc[i, j] /= total[i]


@jit(name=f"{NAMESPACE}::attention", contiguous="copy", pass_configs=OPTIONS)
def attention(
    Q, K, V, sinks=None, scale: float = 1.0, softcap: float = 0.0, left: int = -1, right: int = -1,
    clips: bool = True, with_log_sum: bool = True, deterministic: bool = True,
    q_heads_first: bool = False, k_heads_first: bool = False, v_heads_first: bool = False,
):  # fmt: skip
    """The output, and the logarithm of each row's sum of exponentials.

    ``deterministic`` is for the gradients alone.
    """
    S, L = T.dynamic("S, L")
    H, G, D, DV = T.const("H, G, D, DV")
    Q: T.Tensor(shape_of(H, S, D, q_heads_first), DTYPE)
    K: T.Tensor(shape_of(G, L, D, k_heads_first), DTYPE)
    V: T.Tensor(shape_of(G, L, DV, v_heads_first), DTYPE)
    sinks: T.Tensor((H,), SINK_DTYPE)
    acc_dtype = accumulator(Q.dtype)
    Out = T.empty((..., S, H, DV), DTYPE)
    log_sums = T.empty((..., H, T.ceildiv(S, PADDED) * PADDED if with_log_sum else 0), acc_dtype)
    tile = forward_tile(D, DV, Q.dtype.bits)
    with T.Kernel(T.ceildiv(S, tile.queries), H, Q.shape[0], threads=tile.threads) as (bx, by, bz):
        acc = T.alloc_fragment((tile.queries, columns_of(DV)), acc_dtype)
        log_sum = T.alloc_fragment((tile.queries,), acc_dtype)
        Out_s = T.alloc_shared((tile.queries, columns_of(DV)), DTYPE)
        place = layout(bz, by, H, G, q_heads_first, k_heads_first, v_heads_first)
        row = bx * tile.queries
        seen = Seen(S, L, left, right, clips, False)
        attend(Q, K, V, acc, log_sum, place, row, seen, sinks, scale, softcap, tile)
        if with_log_sum:
            T.copy(log_sum, log_sums[bz, by, row])
        T.copy(acc, Out_s)
        T.copy(Out_s, rows_of(Out, place.output_head(row), tile.queries))
    return Out, log_sums

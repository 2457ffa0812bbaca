"""The program of attention's gradients: a pass over the queries for each tile of keys.

The gradients of queries are added atomically in that pass, or made in a pass of their own over the
keys, which gives the same bits each time.
"""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.programs.attention_tiles import (
    DTYPE,
    LOG2_E,
    OPTIONS,
    Seen,
    backward_tile,
    columns_of,
    layout,
    rows_of,
    shape_of,
    store_rows,
    sums_of,
)
from tileops.ops.programs.rows import accumulator

ROWS = 64  # of a block that multiplies outputs and their gradients


@T.macro
def start_gradients(Out, dOut, d_log_sums, delta, dQ_sum, place, first):
    """The sum of Out * dOut of each row, less the gradient of its log sum; zeros for rows of dQ.

    Terms of float32 are summed in float64. Their sum in float32 would be less exact than torch's,
    which sums weights times their gradients instead.
    """
    acc = delta.dtype if Out.dtype.bits == 16 else T.float64
    o = T.alloc_fragment((ROWS, columns_of(Out.shape[-1])), acc)
    do = T.alloc_fragment(o.shape, acc)
    row = T.alloc_fragment((ROWS,), acc)
    T.copy(rows_of(Out, place.output_head(first), ROWS), o)
    T.copy(rows_of(dOut, place.output_head(first), ROWS), do)
    for i, j in T.Parallel(*o.shape):
        o[i, j] *= do[i, j]
    T.reduce_sum(o, row, dim=1)
    if d_log_sums is not None:
        d = T.alloc_fragment((ROWS,), acc)
        T.copy(sums_of(d_log_sums, place.output_head(first), ROWS), d)
        for i in T.Parallel(ROWS):
            row[i] = row[i] - d[i]
    T.copy(row, sums_of(delta, place.output_head(first), ROWS))
    if dQ_sum is not None:
        zeros = T.alloc_fragment((ROWS, columns_of(dQ_sum.shape[-1])), dQ_sum.dtype)
        T.clear(zeros)
        T.copy(zeros, rows_of(dQ_sum, place.output_head(first), ROWS))


@T.macro
def weights_of(P, slope, sums, first_query, first_key, seen, by_keys, scale, softcap):
    """Turn products into weights, and ``slope`` into the derivative of the bounded scores.

    Rows are keys and columns are queries if ``by_keys``, otherwise the other way round.
    """
    if softcap:
        for i, j in T.Parallel(*P.shape):
            P[i, j] = T.tanh(P[i, j] * (scale / softcap))
        for i, j in T.Parallel(*P.shape):
            slope[i, j] = 1 - P[i, j] * P[i, j]
    for i, j in T.Parallel(*P.shape):
        sum_ = sums[j] if by_keys else sums[i]
        P[i, j] = T.exp2(P[i, j] * ((softcap or scale) * LOG2_E) - sum_ * LOG2_E)
    if seen.hides:
        for i, j in T.Parallel(*P.shape):
            query = first_query + (j if by_keys else i)
            key = first_key + (i if by_keys else j)
            P[i, j] = T.if_then_else(seen.of(query, key), P[i, j], 0)


@T.macro
def score_gradients(dS, P, dP, slope, delta, by_keys, scale, softcap):
    """The gradients of products from the weights and their gradients."""
    for i, j in T.Parallel(*P.shape):
        d = P[i, j] * (dP[i, j] - (delta[j] if by_keys else delta[i]))
        dS[i, j] = d * slope[i, j] * scale if softcap else d * scale


@T.macro
def add_queries(
    Q, dOut, log_sums, delta, dQ_sum, K_s, V_s, dk, dv, place_of, first_head, heads,
    first_key, seen, scale, softcap, tile,
):  # fmt: skip
    """Add to the gradients of a tile of keys and values what the queries of some heads give."""
    queries, keys = tile.queries, tile.keys
    Q_s = T.alloc_shared((queries, K_s.shape[1]), Q.dtype)
    dOut_s = T.alloc_shared((queries, V_s.shape[1]), Q.dtype)
    sums_s = T.alloc_shared((queries,), delta.dtype)
    delta_s = T.alloc_shared((queries,), delta.dtype)
    P = T.alloc_fragment((keys, queries), delta.dtype)  # keys by queries, as dP and dS
    dP = T.alloc_fragment((keys, queries), delta.dtype)
    slope = T.alloc_fragment((keys, queries), delta.dtype) if softcap else None
    P_low = T.alloc_fragment((keys, queries), Q.dtype)
    dS_low = T.alloc_fragment((keys, queries), Q.dtype)
    first_tile = seen.first_query(first_key) // queries
    tiles = T.max(0, T.ceildiv(seen.end_of_queries(first_key + keys), queries) - first_tile)
    for n in T.Pipelined(heads * tiles, num_stages=tile.stages):
        head = first_head + n // tiles if heads > 1 else first_head
        first = (first_tile + (n % tiles if heads > 1 else n)) * queries
        place = place_of(head)
        T.copy(rows_of(Q, place.query_head(first), queries), Q_s)
        T.clear(P)
        T.gemm(K_s, Q_s, P, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
        T.copy(sums_of(log_sums, place.output_head(first), queries), sums_s)
        weights_of(P, slope, sums_s, first, first_key, seen, True, scale, softcap)
        T.copy(rows_of(dOut, place.output_head(first), queries), dOut_s)
        T.clear(dP)
        T.gemm(V_s, dOut_s, dP, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
        T.copy(P, P_low)
        T.gemm(P_low, dOut_s, dv, policy=T.GemmWarpPolicy.FullRow)
        T.copy(sums_of(delta, place.output_head(first), queries), delta_s)
        score_gradients(dS_low, P, dP, slope, delta_s, True, scale, softcap)
        T.gemm(dS_low, Q_s, dk, policy=T.GemmWarpPolicy.FullRow)
        if dQ_sum is not None:
            dS_s = T.alloc_shared((keys, queries), Q.dtype)
            dq = T.alloc_fragment((queries, K_s.shape[1]), delta.dtype)
            T.copy(dS_low, dS_s)
            T.clear(dq)
            T.gemm(dS_s, K_s, dq, transpose_A=True)
            for i, j in T.Parallel(*dq.shape):
                if first + i < seen.queries and j < Q.shape[-1]:
                    T.atomic_add(dQ_sum[place.batch, first + i, head, j], dq[i, j])


@T.macro
def key_gradients(
    Q, K, V, dOut, log_sums, delta, dQ_sum, dK, dV, own, place_of, first_head, heads,
    first, seen, scale, softcap, tile,
):  # fmt: skip
    """Write the gradients of a tile of keys and values from ``first`` on, of one key head."""
    K_s = T.alloc_shared((tile.keys, columns_of(K.shape[-1])), Q.dtype)
    V_s = T.alloc_shared((tile.keys, columns_of(V.shape[-1])), Q.dtype)
    dk = T.alloc_fragment(K_s.shape, delta.dtype)
    dv = T.alloc_fragment(V_s.shape, delta.dtype)
    T.copy(rows_of(K, own.key_head(first), tile.keys), K_s)
    T.copy(rows_of(V, own.value_head(first), tile.keys), V_s)
    T.clear(dk)
    T.clear(dv)
    add_queries(
        Q, dOut, log_sums, delta, dQ_sum, K_s, V_s, dk, dv, place_of, first_head, heads,
        first, seen, scale, softcap, tile,
    )  # fmt: skip
    store_rows(dk, dK, own.key_head(first), seen.keys - first)
    store_rows(dv, dV, own.value_head(first), seen.keys - first)


@T.macro
def query_gradients(Q, K, V, dOut, log_sums, delta, dQ, place, first, seen, scale, softcap, tile):
    """Write the gradients of a tile of queries from ``first`` on."""
    queries, keys = tile.keys, tile.queries
    Q_s = T.alloc_shared((queries, columns_of(Q.shape[-1])), Q.dtype)
    dOut_s = T.alloc_shared((queries, columns_of(V.shape[-1])), Q.dtype)
    K_s = T.alloc_shared((keys, Q_s.shape[1]), Q.dtype)
    V_s = T.alloc_shared((keys, dOut_s.shape[1]), Q.dtype)
    sums = T.alloc_fragment((queries,), delta.dtype)
    delta_f = T.alloc_fragment((queries,), delta.dtype)
    P = T.alloc_fragment((queries, keys), delta.dtype)  # queries by keys, as dP and dS
    dP = T.alloc_fragment((queries, keys), delta.dtype)
    slope = T.alloc_fragment((queries, keys), delta.dtype) if softcap else None
    dS_low = T.alloc_fragment((queries, keys), Q.dtype)
    dq = T.alloc_fragment((queries, Q_s.shape[1]), delta.dtype)
    T.copy(rows_of(Q, place.query_head(first), queries), Q_s)
    T.copy(rows_of(dOut, place.output_head(first), queries), dOut_s)
    T.copy(sums_of(log_sums, place.output_head(first), queries), sums)
    T.copy(sums_of(delta, place.output_head(first), queries), delta_f)
    T.clear(dq)
    for n in T.Pipelined(
        seen.first_key(first) // keys,
        T.ceildiv(seen.end_of_keys(first + queries), keys),
        num_stages=tile.stages,
    ):
        T.copy(rows_of(K, place.key_head(n * keys), keys), K_s)
        T.clear(P)
        T.gemm(Q_s, K_s, P, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
        weights_of(P, slope, sums, first, n * keys, seen, False, scale, softcap)
        T.copy(rows_of(V, place.value_head(n * keys), keys), V_s)
        T.clear(dP)
        T.gemm(dOut_s, V_s, dP, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
        score_gradients(dS_low, P, dP, slope, delta_f, False, scale, softcap)
        T.gemm(dS_low, K_s, dq, policy=T.GemmWarpPolicy.FullRow)
    store_rows(dq, dQ, place.query_head(first), seen.queries - first)


@jit(name=f"{NAMESPACE}::attention_backward", contiguous="copy", pass_configs=OPTIONS)
def attention_backward(
    dOut, Out, Q, K, V, log_sums, d_log_sums=None,
    scale: float = 1.0, softcap: float = 0.0, left: int = -1, right: int = -1, clips: bool = True,
    deterministic: bool = True,
    q_heads_first: bool = False, k_heads_first: bool = False, v_heads_first: bool = False,
):  # fmt: skip
    """The gradients of Q, K and V, the rows' sums of Out * dOut, and a workspace.

    ``log_sums`` are those of the forward pass, ``d_log_sums`` their gradients.
    """
    S, L, padded = T.dynamic("S, L, padded")
    H, G, D, DV = T.const("H, G, D, DV")
    dOut: T.Tensor((..., S, H, DV), DTYPE)
    Out: T.Tensor((..., S, H, DV), DTYPE)
    Q: T.Tensor(shape_of(H, S, D, q_heads_first), DTYPE)
    K: T.Tensor(shape_of(G, L, D, k_heads_first), DTYPE)
    V: T.Tensor(shape_of(G, L, DV, v_heads_first), DTYPE)
    acc = accumulator(Q.dtype)
    log_sums: T.Tensor((..., H, padded), acc)
    d_log_sums: T.Tensor((..., H, padded), acc)
    dQ = T.empty(shape_of(H, S, D, q_heads_first), DTYPE)
    dK = T.empty(shape_of(G, L, D, k_heads_first), DTYPE)
    dV = T.empty(shape_of(G, L, DV, v_heads_first), DTYPE)
    delta = T.empty((..., H, padded), acc)
    tile = backward_tile(D, DV, Q.dtype.bits)
    dQ_sum = T.empty((..., 0 if deterministic else S, H, D), acc)
    heads_first = (q_heads_first, k_heads_first, v_heads_first)
    seen = Seen(S, L, left, right, clips, False)
    with T.Kernel(T.ceildiv(S, ROWS), H, Q.shape[0], threads=128) as (bx, by, bz):
        place = layout(bz, by, H, G, *heads_first)
        workspace = None if deterministic else dQ_sum
        start_gradients(Out, dOut, d_log_sums, delta, workspace, place, bx * ROWS)
    with T.Kernel(T.ceildiv(L, tile.keys), G, Q.shape[0], threads=tile.threads) as (bx, by, bz):
        own = layout(bz, by * (H // G), H, G, *heads_first)
        key_gradients(
            Q, K, V, dOut, log_sums, delta, None if deterministic else dQ_sum, dK, dV, own,
            lambda head: layout(bz, head, H, G, *heads_first), by * (H // G), H // G,
            bx * tile.keys, seen, scale, softcap, tile,
        )  # fmt: skip
    if deterministic:
        with T.Kernel(T.ceildiv(S, tile.keys), H, Q.shape[0], threads=tile.threads) as (bx, by, bz):
            place = layout(bz, by, H, G, *heads_first)
            query_gradients(
                Q, K, V, dOut, log_sums, delta, dQ, place, bx * tile.keys, seen, scale, softcap,
                tile,
            )  # fmt: skip
    else:
        with T.Kernel(T.ceildiv(S, ROWS), H, Q.shape[0], threads=128) as (bx, by, bz):
            place = layout(bz, by, H, G, *heads_first)
            dq = T.alloc_fragment((ROWS, columns_of(D)), acc)
            T.copy(rows_of(dQ_sum, place.output_head(bx * ROWS), ROWS), dq)
            T.copy(dq, rows_of(dQ, place.query_head(bx * ROWS), ROWS))
    return dQ, dK, dV, delta, dQ_sum

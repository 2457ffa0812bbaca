"""Attention forward without the score matrix in memory, eager and lazy.

After Dao, "FlashAttention-2", 2023. Tensors are (batch, heads, sequence, head dimension); scores
are scaled by head_dim^-0.5.
"""

import tileops
import tileops.language as T

LOG2_E = 1.4426950408889634


@tileops.jit
def attention(
    Q,
    K,
    V,
    is_causal: bool = False,
    dtype: str = "float16",
    block_M: int = 64,
    block_N: int = 64,
    num_stages: int = 2,
    threads: int = 128,
):
    B, H, S, D = T.const("B, H, S, D")
    Q: T.Tensor((B, H, S, D), dtype)
    K: T.Tensor((B, H, S, D), dtype)
    V: T.Tensor((B, H, S, D), dtype)
    O = T.empty((B, H, S, D), dtype)
    scale = D**-0.5 * LOG2_E
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=threads) as (bx, by, bz):
        Q_s = T.alloc_shared((block_M, D), dtype)
        K_s = T.alloc_shared((block_N, D), dtype)
        V_s = T.alloc_shared((block_N, D), dtype)
        scores = T.alloc_fragment((block_M, block_N), T.float32)
        weights = T.alloc_fragment((block_M, block_N), dtype)
        acc = T.alloc_fragment((block_M, D), T.float32)
        top = T.alloc_fragment((block_M,), T.float32)
        top_before = T.alloc_fragment((block_M,), T.float32)
        rescale = T.alloc_fragment((block_M,), T.float32)
        part = T.alloc_fragment((block_M,), T.float32)
        total = T.alloc_fragment((block_M,), T.float32)
        T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_s)
        T.clear(acc)
        T.clear(total)
        T.fill(top, -T.infinity(T.float32))
        blocks = T.ceildiv(S, block_N)
        if is_causal:
            blocks = T.min(blocks, T.ceildiv((bx + 1) * block_M, block_N))
        for k in T.Pipelined(blocks, num_stages=num_stages):
            T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_s)
            if is_causal:
                for i, j in T.Parallel(block_M, block_N):
                    visible = (bx * block_M + i >= k * block_N + j) and (k * block_N + j < S)
                    scores[i, j] = T.if_then_else(visible, 0, -T.infinity(T.float32))
            else:
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(k * block_N + j < S, 0, -T.infinity(T.float32))
            T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(top, top_before)
            T.reduce_max(scores, top, dim=1, clear=False)
            for i in T.Parallel(block_M):
                rescale[i] = T.exp2(top_before[i] * scale - top[i] * scale)
            for i, j in T.Parallel(block_M, block_N):
                scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
            T.reduce_sum(scores, part, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * rescale[i] + part[i]
            T.copy(scores, weights)
            for i, j in T.Parallel(block_M, D):
                acc[i, j] *= rescale[i]
            T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_s)
            T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
        for i, j in T.Parallel(block_M, D):
            acc[i, j] /= total[i]
        T.copy(acc, O[bz, by, bx * block_M : (bx + 1) * block_M, :])
    return O


@tileops.jit(out_idx=[3])
def attention_lazy(
    B, H, S, D, is_causal=False, dtype="float16", block_M=64, block_N=64, num_stages=2, threads=128
):
    scale = D**-0.5 * LOG2_E
    shape = (B, H, S, D)

    @T.macro
    def softmax_step(
        scores: T.FragmentBuffer((block_M, block_N), T.float32),
        weights: T.FragmentBuffer((block_M, block_N), dtype),
        top: T.FragmentBuffer((block_M,), T.float32),
        top_before: T.FragmentBuffer((block_M,), T.float32),
        rescale: T.FragmentBuffer((block_M,), T.float32),
        part: T.FragmentBuffer((block_M,), T.float32),
        total: T.FragmentBuffer((block_M,), T.float32),
    ):
        T.copy(top, top_before)
        T.reduce_max(scores, top, dim=1, clear=False)
        for i in T.Parallel(block_M):
            rescale[i] = T.exp2(top_before[i] * scale - top[i] * scale)
        for i, j in T.Parallel(block_M, block_N):
            scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
        T.reduce_sum(scores, part, dim=1)
        for i in T.Parallel(block_M):
            total[i] = total[i] * rescale[i] + part[i]
        T.copy(scores, weights)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(S, block_M), H, B, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((block_M, D), dtype)
            K_s = T.alloc_shared((block_N, D), dtype)
            V_s = T.alloc_shared((block_N, D), dtype)
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, D), T.float32)
            top = T.alloc_fragment((block_M,), T.float32)
            top_before = T.alloc_fragment((block_M,), T.float32)
            rescale = T.alloc_fragment((block_M,), T.float32)
            part = T.alloc_fragment((block_M,), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, -T.infinity(T.float32))
            blocks = T.ceildiv(S, block_N)
            if is_causal:
                blocks = T.min(blocks, T.ceildiv((bx + 1) * block_M, block_N))
            for k in T.Pipelined(blocks, num_stages=num_stages):
                T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_s)
                for i, j in T.Parallel(block_M, block_N):
                    inside = k * block_N + j < S
                    if is_causal:
                        visible = inside and bx * block_M + i >= k * block_N + j
                        scores[i, j] = T.if_then_else(visible, 0, -T.infinity(T.float32))
                    else:
                        scores[i, j] = T.if_then_else(inside, 0, -T.infinity(T.float32))
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                softmax_step(scores, weights, top, top_before, rescale, part, total)
                for i, j in T.Parallel(block_M, D):
                    acc[i, j] *= rescale[i]
                T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_s)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, D):
                acc[i, j] /= total[i]
            T.copy(acc, O[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main

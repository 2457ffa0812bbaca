"""Attention forward, causal, over a sliding window of keys."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend_heads, causal
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, B, S, H, groups, D, window, block_M=128, block_N=128, stages=2, threads=256):
    dtype = "bfloat16"
    scale = D**-0.5 * LOG2_E
    step = softmax_step(T, block_M, block_N, D, scale)

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H // groups, D), dtype),
        V: T.Tensor((B, S, H // groups, D), dtype),
        O: T.Tensor((B, S, H, D), dtype),
    ):
        with T.Kernel(T.ceildiv(S, block_M), H, B, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((block_M, D), dtype)
            K_s = T.alloc_shared((block_N, D), dtype)
            V_s = T.alloc_shared((block_N, D), dtype)
            O_s = T.alloc_shared((block_M, D), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, D), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, HIDDEN)
            first = T.max(0, bx * block_M - window + 1) // block_N
            last = T.ceildiv(T.min(S, (bx + 1) * block_M), block_N)
            for k in T.Pipelined(first, last, num_stages=stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_s)
                for i, j in T.Parallel(block_M, block_N):
                    back = bx * block_M + i - (k * block_N + j)
                    scores[i, j] = T.if_then_else(T.And(back >= 0, back < window), 0, HIDDEN)
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                step(scores, weights, acc, top, before, rescale, part, total)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_s)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, D):
                acc[i, j] /= total[i]
            T.copy(acc, O_s)
            T.copy(O_s, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def inputs(B, S, H, groups, D, window):
    heads = (H, H // groups, H // groups)
    Q, K, V = (random_normal(B, S, h, D, dtype="bfloat16") for h in heads)
    return Q, K, V, torch.empty_like(Q)


def reference(Q, K, V, O, S, D, window, **_):
    return (attend_heads(Q, K, V, D**-0.5, visible=causal(S, Q.device, window)),)


def flops(B, S, H, D, window, **_):
    return 4.0 * B * H * D * (S * window - window * (window - 1) / 2)


PAIRS = (
    Pair(
        # Mistral 7B: 32 query heads, 8 key heads, the last 4096 keys.
        "attention window bf16 gqa 1x16384x32x128", program, inputs, reference, outputs=(3,),
        spread=2.0**-5,  # as in attention.py
        sizes={"B": 1, "S": 16384, "H": 32, "groups": 4, "D": 128, "window": 4096},
        small={"B": 1, "S": 200, "H": 2, "groups": 2, "D": 32, "window": 70},
        small_tiles={"block_M": 64, "block_N": 64, "threads": 128}, flops=flops,
    ),
)  # fmt: skip

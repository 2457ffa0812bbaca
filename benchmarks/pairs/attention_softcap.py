"""Attention forward, causal, with logits bounded by cap * tanh(logit / cap)."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend_heads, causal
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, B, S, H, groups, D, cap, block_M=128, block_N=64, stages=2, threads=256):
    dtype = "bfloat16"
    scale = cap * LOG2_E  # of scores that are logits / cap
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
            for k in T.Pipelined(
                T.ceildiv(T.min(S, (bx + 1) * block_M), block_N), num_stages=stages
            ):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_s)
                T.clear(scores)
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(
                        bx * block_M + i >= k * block_N + j,
                        T.tanh(scores[i, j] * (D**-0.5 / cap)),
                        HIDDEN,
                    )
                step(scores, weights, acc, top, before, rescale, part, total)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_s)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, D):
                acc[i, j] /= total[i]
            T.copy(acc, O_s)
            T.copy(O_s, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def inputs(B, S, H, groups, D, cap):
    heads = (H, H // groups, H // groups)
    Q, K, V = (random_normal(B, S, h, D, dtype="bfloat16") for h in heads)
    return Q, K, V, torch.empty_like(Q)


def reference(Q, K, V, O, S, D, cap, **_):
    return (attend_heads(Q, K, V, D**-0.5, visible=causal(S, Q.device), softcap=cap),)


PAIRS = (
    Pair(
        # Gemma 2 9B: 16 query heads, 8 key heads, head dimension 256, logits below 50.
        "attention softcap bf16 gqa 1x8192x16x256", program, inputs, reference, outputs=(3,),
        spread=2.0**-5,  # as in attention.py
        sizes={"B": 1, "S": 8192, "H": 16, "groups": 2, "D": 256, "cap": 50.0},
        small={"B": 1, "S": 100, "H": 2, "groups": 2, "D": 32, "cap": 5.0},
        small_tiles={"block_M": 64, "block_N": 64, "threads": 128},
        flops=lambda B, S, H, D, **_: 2.0 * B * H * S * S * D,
    ),
)  # fmt: skip

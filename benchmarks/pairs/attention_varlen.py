"""Attention forward over sequences of different lengths, packed one after the other; causal."""

from itertools import pairwise

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend, causal
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, tokens, lengths, H, groups, D, block_M=128, block_N=128, stages=2, threads=256):
    dtype = "bfloat16"
    scale = D**-0.5 * LOG2_E
    step = softmax_step(T, block_M, block_N, D, scale)
    longest = max(lengths)
    count = len(lengths)

    @T.prim_func
    def main(
        Q: T.Tensor((tokens, H, D), dtype),
        K: T.Tensor((tokens, H // groups, D), dtype),
        V: T.Tensor((tokens, H // groups, D), dtype),
        starts: T.Tensor((count + 1,), "int32"),
        O: T.Tensor((tokens, H, D), dtype),
    ):
        with T.Kernel(T.ceildiv(longest, block_M), H, count, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((block_M, D), dtype)
            K_s = T.alloc_shared((block_N, D), dtype)
            V_s = T.alloc_shared((block_N, D), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, D), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            start = starts[bz]
            length = starts[bz + 1] - start
            row = start + bx * block_M
            T.copy(Q[row : row + block_M, by, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, HIDDEN)
            keys = T.min(length, (bx + 1) * block_M)
            blocks = T.if_then_else(bx * block_M < length, T.ceildiv(keys, block_N), 0)
            for k in T.Pipelined(blocks, num_stages=stages):
                T.copy(K[start + k * block_N : start + (k + 1) * block_N, by // groups, :], K_s)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(bx * block_M + i >= k * block_N + j, 0, HIDDEN)
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                step(scores, weights, acc, top, before, rescale, part, total)
                T.copy(V[start + k * block_N : start + (k + 1) * block_N, by // groups, :], V_s)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, D):
                if bx * block_M + i < length:
                    O[row + i, by, j] = acc[i, j] / total[i]

    return main


def inputs(tokens, lengths, H, groups, D):
    heads = (H, H // groups, H // groups)
    Q, K, V = (random_normal(tokens, h, D, dtype="bfloat16") for h in heads)
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    return Q, K, V, starts, torch.empty_like(Q)


def reference(Q, K, V, starts, O, H, groups, D, **_):
    out = torch.empty(O.shape, dtype=torch.float64, device=O.device)
    edges = starts.tolist()
    for a, b in pairwise(edges):
        visible = causal(b - a, Q.device)
        for h in range(H):
            k, v = K[a:b, h // groups], V[a:b, h // groups]
            out[a:b, h] = attend(Q[a:b, h], k, v, D**-0.5, visible)
    return (out,)


PAIRS = (
    Pair(
        # A training batch of packed documents; no length is a multiple of a tile.
        "attention varlen bf16 gqa 16384x32x128", program, inputs, reference, outputs=(4,),
        spread=2.0**-5,  # as in attention.py
        sizes={
            "tokens": 16384, "lengths": (6001, 4099, 2999, 1777, 1003, 505), "H": 32,
            "groups": 4, "D": 128,
        },
        small={"tokens": 200, "lengths": (130, 1, 69), "H": 2, "groups": 2, "D": 32},
        small_tiles={"block_M": 64, "block_N": 64, "threads": 128},
        flops=lambda lengths, H, D, **_: 2.0 * H * D * sum(n * n for n in lengths),
    ),
)  # fmt: skip

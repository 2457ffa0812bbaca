"""Attention of one new token over keys in pages, sequences of different lengths."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, B, S, H, groups, D, page, block_M=16, stages=2, threads=128):
    dtype = "bfloat16"
    scale = D**-0.5 * LOG2_E
    pages = S // page
    step = softmax_step(T, block_M, page, D, scale)

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, D), dtype),
        K: T.Tensor((B * pages * page, H // groups, D), dtype),
        V: T.Tensor((B * pages * page, H // groups, D), dtype),
        table: T.Tensor((B, pages), "int32"),  # where each page of a sequence is
        lengths: T.Tensor((B,), "int32"),
        O: T.Tensor((B, H, D), dtype),
    ):
        with T.Kernel(B, H // groups, threads=threads) as (bx, by):
            Q_s = T.alloc_shared((block_M, D), dtype)
            K_s = T.alloc_shared((page, D), dtype)
            V_s = T.alloc_shared((page, D), dtype)
            weights = T.alloc_shared((block_M, page), dtype)
            scores = T.alloc_fragment((block_M, page), "float32")
            acc = T.alloc_fragment((block_M, D), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            # Rows past the group are other heads; they are computed and not stored.
            T.copy(Q[bx, by * groups : by * groups + block_M, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, HIDDEN)
            for k in T.Pipelined(T.ceildiv(lengths[bx], page), num_stages=stages):
                at = table[bx, k] * page
                T.copy(K[at : at + page, by, :], K_s)
                T.copy(V[at : at + page, by, :], V_s)
                T.clear(scores)
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                for i, j in T.Parallel(block_M, page):
                    scores[i, j] = T.if_then_else(k * page + j < lengths[bx], scores[i, j], HIDDEN)
                step(scores, weights, acc, top, before, rescale, part, total)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_M, D):
                if i < groups:
                    O[bx, by * groups + i, j] = acc[i, j] / total[i]

    return main


def inputs(B, S, H, groups, D, page):
    K, V = (random_normal(B * S, H // groups, D, dtype="bfloat16") for _ in range(2))
    Q = random_normal(B, H, D, dtype="bfloat16")
    table = torch.randperm(B * S // page).reshape(B, -1).int()
    lengths = torch.randint(S // 2, S + 1, (B,)).int()
    return Q, K, V, table, lengths, torch.empty_like(Q)


def reference(Q, K, V, table, lengths, O, B, H, groups, D, page, **_):
    out = torch.empty(Q.shape, dtype=torch.float64, device=Q.device)
    within = torch.arange(page, device=Q.device)
    for b, length in enumerate(lengths.tolist()):
        rows = (table[b, :, None] * page + within).flatten()[:length]
        for h in range(0, H, groups):
            k, v = (x[rows, h // groups] for x in (K, V))
            out[b, h : h + groups] = attend(Q[b, h : h + groups], k, v, D**-0.5)
    return (out,)


PAIRS = (
    Pair(
        # Llama 3 8B, 64 sequences of 4096 to 8192 tokens; three quarters of the pages are read.
        "decode paged bf16 gqa 64x8192", program, inputs, reference, outputs=(5,),
        spread=2.0**-5,  # as in attention.py
        sizes={"B": 64, "S": 8192, "H": 32, "groups": 4, "D": 128, "page": 64},
        small={"B": 2, "S": 256, "H": 8, "groups": 4, "D": 32, "page": 64},
        flops=lambda B, S, H, D, **_: 3.0 * B * S * H * D,
        moved_bytes=lambda B, S, H, groups, D, **_: 4.0 * B * D * (0.75 * S * H // groups + H),
    ),
)  # fmt: skip

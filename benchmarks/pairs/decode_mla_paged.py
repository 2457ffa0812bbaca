"""Attention of one new token over latent keys in pages, which are also the values, and rotated keys."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, B, S, H, D, R, page, block_M=64, stages=2, threads=256):
    dtype = "bfloat16"
    scale = (D + R) ** -0.5 * LOG2_E
    pages = S // page
    step = softmax_step(T, block_M, page, D, scale)

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, D), dtype),
        Q_rotated: T.Tensor((B, H, R), dtype),
        KV: T.Tensor((B * pages * page, D), dtype),
        K_rotated: T.Tensor((B * pages * page, R), dtype),
        table: T.Tensor((B, pages), "int32"),  # where each page of a sequence is
        lengths: T.Tensor((B,), "int32"),
        O: T.Tensor((B, H, D), dtype),
    ):
        with T.Kernel(H // block_M, B, threads=threads) as (bx, by):
            Q_s = T.alloc_shared((block_M, D), dtype)
            QR_s = T.alloc_shared((block_M, R), dtype)
            KV_s = T.alloc_shared((page, D), dtype)
            KR_s = T.alloc_shared((page, R), dtype)
            weights = T.alloc_shared((block_M, page), dtype)
            scores = T.alloc_fragment((block_M, page), "float32")
            acc = T.alloc_fragment((block_M, D), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[by, bx * block_M : (bx + 1) * block_M, :], Q_s)
            T.copy(Q_rotated[by, bx * block_M : (bx + 1) * block_M, :], QR_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, HIDDEN)
            for k in T.Pipelined(T.ceildiv(lengths[by], page), num_stages=stages):
                at = table[by, k] * page
                T.copy(KV[at : at + page, :], KV_s)
                T.copy(K_rotated[at : at + page, :], KR_s)
                T.clear(scores)
                T.gemm(Q_s, KV_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(QR_s, KR_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                for i, j in T.Parallel(block_M, page):
                    scores[i, j] = T.if_then_else(k * page + j < lengths[by], scores[i, j], HIDDEN)
                step(scores, weights, acc, top, before, rescale, part, total)
                T.gemm(weights, KV_s, acc, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_M, D):
                acc[i, j] /= total[i]
            T.copy(acc, O[by, bx * block_M : (bx + 1) * block_M, :])

    return main


def inputs(B, S, H, D, R, page):
    shapes = ((B, H, D), (B, H, R), (B * S, D), (B * S, R))
    Q, QR, KV, KR = (random_normal(*s, dtype="bfloat16") for s in shapes)
    table = torch.randperm(B * S // page).reshape(B, -1).int()
    lengths = torch.randint(S // 2, S + 1, (B,)).int()
    return Q, QR, KV, KR, table, lengths, torch.empty_like(Q)


def reference(Q, QR, KV, KR, table, lengths, O, page, **_):
    out = torch.empty(O.shape, dtype=torch.float64, device=O.device)
    q, keys = torch.cat([Q, QR], -1), torch.cat([KV, KR], -1)
    within = torch.arange(page, device=Q.device)
    for b, length in enumerate(lengths.tolist()):
        rows = (table[b, :, None] * page + within).flatten()[:length]
        out[b] = attend(q[b], keys[rows], KV[rows], q.shape[-1] ** -0.5)
    return (out,)


PAIRS = (
    Pair(
        # DeepSeek-V3, 64 sequences of 4096 to 8192 tokens; three quarters of the pages are read.
        "decode mla paged bf16 64x8192", program, inputs, reference, outputs=(6,),
        spread=2.0**-5,  # as in attention.py
        sizes={"B": 64, "S": 8192, "H": 128, "D": 512, "R": 64, "page": 64},
        small={"B": 2, "S": 128, "H": 64, "D": 64, "R": 32, "page": 32},
        flops=lambda B, S, H, D, R, page: 1.5 * B * S * H * (2 * D + R),
        moved_bytes=lambda B, S, H, D, R, page: 2.0 * B * (0.75 * S * (D + R) + H * (2 * D + R)),
    ),
)  # fmt: skip

"""Attention of one new token over latent keys, which are also the values, and rotated keys."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, B, S, H, D, R, block_M=64, block_N=64, stages=2, threads=256):
    dtype = "bfloat16"
    scale = (D + R) ** -0.5 * LOG2_E
    step = softmax_step(T, block_M, block_N, D, scale)

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, D), dtype),
        Q_rotated: T.Tensor((B, H, R), dtype),
        KV: T.Tensor((B, S, D), dtype),
        K_rotated: T.Tensor((B, S, R), dtype),
        O: T.Tensor((B, H, D), dtype),
    ):
        with T.Kernel(H // block_M, B, threads=threads) as (bx, by):
            Q_s = T.alloc_shared((block_M, D), dtype)
            QR_s = T.alloc_shared((block_M, R), dtype)
            KV_s = T.alloc_shared((block_N, D), dtype)
            KR_s = T.alloc_shared((block_N, R), dtype)
            weights = T.alloc_shared((block_M, block_N), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
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
            for k in T.Pipelined(T.ceildiv(S, block_N), num_stages=stages):
                T.copy(KV[by, k * block_N : (k + 1) * block_N, :], KV_s)
                T.copy(K_rotated[by, k * block_N : (k + 1) * block_N, :], KR_s)
                T.clear(scores)
                T.gemm(Q_s, KV_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(QR_s, KR_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                if S % block_N:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(k * block_N + j < S, scores[i, j], HIDDEN)
                step(scores, weights, acc, top, before, rescale, part, total)
                T.gemm(weights, KV_s, acc, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_M, D):
                acc[i, j] /= total[i]
            T.copy(acc, O[by, bx * block_M : (bx + 1) * block_M, :])

    return main


def inputs(B, S, H, D, R):
    shapes = ((B, H, D), (B, H, R), (B, S, D), (B, S, R))
    Q, QR, KV, KR = (random_normal(*s, dtype="bfloat16") for s in shapes)
    return Q, QR, KV, KR, torch.empty_like(Q)


def reference(Q, QR, KV, KR, O, D, R, **_):
    q, k = torch.cat([Q, QR], -1).double(), torch.cat([KV, KR], -1).double()
    return ((q @ k.mT * (D + R) ** -0.5).softmax(-1) @ KV.double(),)


PAIRS = (
    Pair(
        # DeepSeek-V3: 128 heads, 512 latent and 64 rotated columns.
        "decode mla bf16 64x8192", program, inputs, reference, outputs=(4,),
        spread=2.0**-5,  # as in attention.py
        sizes={"B": 64, "S": 8192, "H": 128, "D": 512, "R": 64},
        small={"B": 2, "S": 100, "H": 64, "D": 64, "R": 32},
        small_tiles={"block_N": 32},
        flops=lambda B, S, H, D, R: 2.0 * B * S * H * (2 * D + R),
    ),
)  # fmt: skip

"""Attention forward, causal, over those blocks of keys that a mask selects for a block of queries."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend_heads, causal
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, B, S, H, D, share, block, stages=2, threads=256):
    dtype = "bfloat16"
    scale = D**-0.5 * LOG2_E
    step = softmax_step(T, block, block, D, scale)

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H, D), dtype),
        V: T.Tensor((B, S, H, D), dtype),
        mask: T.Tensor((B, H, S // block, S // block), "int8"),
        O: T.Tensor((B, S, H, D), dtype),
    ):
        with T.Kernel(S // block, H, B, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((block, D), dtype)
            K_s = T.alloc_shared((block, D), dtype)
            V_s = T.alloc_shared((block, D), dtype)
            O_s = T.alloc_shared((block, D), dtype)
            scores = T.alloc_fragment((block, block), "float32")
            weights = T.alloc_fragment((block, block), dtype)
            acc = T.alloc_fragment((block, D), "float32")
            top = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            rescale = T.alloc_fragment((block,), "float32")
            part = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(Q[bz, bx * block : (bx + 1) * block, by, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, HIDDEN)
            for k in T.Pipelined(bx + 1, num_stages=stages):
                if mask[bz, by, bx, k] != 0:
                    T.copy(K[bz, k * block : (k + 1) * block, by, :], K_s)
                    for i, j in T.Parallel(block, block):
                        scores[i, j] = T.if_then_else(bx * block + i >= k * block + j, 0, HIDDEN)
                    T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    step(scores, weights, acc, top, before, rescale, part, total)
                    T.copy(V[bz, k * block : (k + 1) * block, by, :], V_s)
                    T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block, D):
                acc[i, j] /= total[i]
            T.copy(acc, O_s)
            T.copy(O_s, O[bz, bx * block : (bx + 1) * block, by, :])

    return main


def inputs(B, S, H, D, share, block):
    Q, K, V = (random_normal(B, S, H, D, dtype="bfloat16") for _ in range(3))
    blocks = S // block
    mask = torch.rand(B, H, blocks, blocks) < share
    mask |= torch.eye(blocks, dtype=torch.bool)  # each query sees itself
    return Q, K, V, mask.to(torch.int8), torch.empty_like(Q)


def reference(Q, K, V, mask, O, B, S, H, D, block, **_):
    out = torch.empty(O.shape, dtype=torch.float64, device=O.device)
    for b in range(B):
        for h in range(H):
            blocks = mask[b, h].bool()
            visible = blocks.repeat_interleave(block, 0).repeat_interleave(block, 1)
            visible &= causal(S, Q.device)
            one = (x[b : b + 1, :, h : h + 1] for x in (Q, K, V))
            out[b, :, h] = attend_heads(*one, D**-0.5, visible=visible)[0, :, 0]
    return (out,)


PAIRS = (
    Pair(
        # A long prompt of which a quarter of the blocks is seen.
        "attention block-sparse bf16 1x16384x32x128", program, inputs, reference, outputs=(4,),
        spread=2.0**-5,  # as in attention.py
        sizes={"B": 1, "S": 16384, "H": 32, "D": 128, "share": 0.25, "block": 128},
        small={"B": 1, "S": 256, "H": 2, "D": 32, "share": 0.3, "block": 64},
        small_tiles={"threads": 128},
        flops=lambda B, S, H, D, share, **_: 2.0 * share * B * H * S * S * D,
    ),
)  # fmt: skip

"""Attention of one new token: the keys split over blocks, their parts combined by a second launch."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(T, B, S, H, groups, D, splits, block_M=16, block_N=128, stages=2, threads=128):
    dtype = "bfloat16"
    scale = D**-0.5 * LOG2_E
    span = -(-S // (splits * block_N)) * block_N
    step = softmax_step(T, block_M, block_N, D, scale)

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, D), dtype),
        K: T.Tensor((B, S, H // groups, D), dtype),
        V: T.Tensor((B, S, H // groups, D), dtype),
        parts: T.Tensor((B, H, splits, D), "float32"),  # workspace
        sums: T.Tensor((B, H, splits), "float32"),  # workspace: log2 of the sum of exps
        O: T.Tensor((B, H, D), dtype),
    ):
        with T.Kernel(B, H // groups, splits, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((block_M, D), dtype)
            K_s = T.alloc_shared((block_N, D), dtype)
            V_s = T.alloc_shared((block_N, D), dtype)
            weights = T.alloc_shared((block_M, block_N), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
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
            for k in T.Pipelined(span // block_N, num_stages=stages):
                T.copy(K[bx, bz * span + k * block_N : bz * span + (k + 1) * block_N, by, :], K_s)
                T.clear(scores)
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                if S % span:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(
                            bz * span + k * block_N + j < S, scores[i, j], HIDDEN
                        )
                step(scores, weights, acc, top, before, rescale, part, total)
                T.copy(V[bx, bz * span + k * block_N : bz * span + (k + 1) * block_N, by, :], V_s)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_M, D):
                if i < groups:
                    parts[bx, by * groups + i, bz, j] = acc[i, j] / total[i]
            for i in T.Parallel(block_M):
                if i < groups:
                    sums[bx, by * groups + i, bz] = T.log2(total[i]) + top[i] * scale
        with T.Kernel(H, B, threads=128) as (bx, by):
            share = T.alloc_fragment((splits,), "float32")
            most = T.alloc_fragment((1,), "float32")
            whole = T.alloc_fragment((1,), "float32")
            out = T.alloc_fragment((D,), "float32")
            T.copy(sums[by, bx, :], share)
            T.reduce_max(share, most, dim=0)
            for s in T.Parallel(splits):
                share[s] = T.exp2(share[s] - most[0])
            T.reduce_sum(share, whole, dim=0)
            T.clear(out)
            for s in T.serial(splits):
                for j in T.Parallel(D):
                    out[j] += parts[by, bx, s, j] * T.exp2(sums[by, bx, s] - most[0])
            for j in T.Parallel(D):
                O[by, bx, j] = out[j] / whole[0]

    return main


def inputs(B, S, H, groups, D, splits):
    K, V = (random_normal(B, S, H // groups, D, dtype="bfloat16") for _ in range(2))
    Q = random_normal(B, H, D, dtype="bfloat16")
    return Q, K, V, torch.empty(B, H, splits, D), torch.empty(B, H, splits), torch.empty_like(Q)


def reference(Q, K, V, *_, B, H, groups, D, **__):
    out = torch.empty(Q.shape, dtype=torch.float64, device=Q.device)
    for b in range(B):
        for h in range(0, H, groups):
            k, v = (x[b, :, h // groups] for x in (K, V))
            out[b, h : h + groups] = attend(Q[b, h : h + groups], k, v, D**-0.5)
    return (out,)


def peer(Q, K, V, *_, groups, **__):
    q, k, v = Q[:, :, None], K.transpose(1, 2), V.transpose(1, 2)

    def call():
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=groups > 1)

    return call


def _pair(name, B, S, splits):
    return Pair(
        name, program, inputs, reference, outputs=(5,),
        spread=2.0**-5,  # as in attention.py
        # Llama 3 70B: eight query heads share a key head.
        sizes={"B": B, "S": S, "H": 64, "groups": 8, "D": 128, "splits": splits},
        small={"B": 2, "S": 150, "H": 8, "groups": 4, "D": 32, "splits": 2},
        small_tiles={"block_N": 64},
        flops=lambda B, S, H, D, **_: 4.0 * B * S * H * D,
        # Without the workspaces, which stay in the cache.
        moved_bytes=lambda B, S, H, groups, D, **_: 4.0 * B * D * (S * H // groups + H),
        peer=peer, peer_name="torch attention",
    )  # fmt: skip


PAIRS = (
    _pair("decode split bf16 gqa 32x8192", 32, 8192, 4),
    _pair("decode split bf16 gqa 1x32768", 1, 32768, 64),
)

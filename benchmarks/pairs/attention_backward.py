"""Attention backward in one pass over the keys: gradients of queries are added atomically."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import backward_heads, causal, forward_and_sums
from benchmarks.pairs.online_softmax import LOG2_E


def program(T, B, S, H, D, is_causal, block_M=64, block_N=128, stages=2, threads=256):
    dtype = "bfloat16"
    scale = D**-0.5 * LOG2_E

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H, D), dtype),
        V: T.Tensor((B, S, H, D), dtype),
        O: T.Tensor((B, S, H, D), dtype),
        dO: T.Tensor((B, S, H, D), dtype),
        sums: T.Tensor((B, H, S), "float32"),  # log2 of the sum of exps of each row
        delta: T.Tensor((B, H, S), "float32"),  # workspace: the sum of O * dO of each row
        dQ_sum: T.Tensor((B, S, H, D), "float32"),  # workspace, zero before the call
        dQ: T.Tensor((B, S, H, D), dtype),
        dK: T.Tensor((B, S, H, D), dtype),
        dV: T.Tensor((B, S, H, D), dtype),
    ):
        with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
            O_f = T.alloc_fragment((block_M, D), "float32")
            dO_f = T.alloc_fragment((block_M, D), "float32")
            row = T.alloc_fragment((block_M,), "float32")
            T.copy(O[bz, bx * block_M : (bx + 1) * block_M, by, :], O_f)
            T.copy(dO[bz, bx * block_M : (bx + 1) * block_M, by, :], dO_f)
            for i, j in T.Parallel(block_M, D):
                O_f[i, j] *= dO_f[i, j]
            T.reduce_sum(O_f, row, dim=1)
            T.copy(row, delta[bz, by, bx * block_M : (bx + 1) * block_M])
        with T.Kernel(T.ceildiv(S, block_N), H, B, threads=threads) as (bx, by, bz):
            K_s = T.alloc_shared((block_N, D), dtype)
            V_s = T.alloc_shared((block_N, D), dtype)
            Q_s = T.alloc_shared((block_M, D), dtype)
            dO_s = T.alloc_shared((block_M, D), dtype)
            sums_s = T.alloc_shared((block_M,), "float32")
            delta_s = T.alloc_shared((block_M,), "float32")
            P = T.alloc_fragment((block_N, block_M), "float32")  # keys by queries, as dP and dS
            dP = T.alloc_fragment((block_N, block_M), "float32")
            P_half = T.alloc_fragment((block_N, block_M), dtype)
            dS_half = T.alloc_fragment((block_N, block_M), dtype)
            dS_s = T.alloc_shared((block_N, block_M), dtype)
            dq = T.alloc_fragment((block_M, D), "float32")
            dk = T.alloc_fragment((block_N, D), "float32")
            dv = T.alloc_fragment((block_N, D), "float32")
            T.copy(K[bz, bx * block_N : (bx + 1) * block_N, by, :], K_s)
            T.copy(V[bz, bx * block_N : (bx + 1) * block_N, by, :], V_s)
            T.clear(dk)
            T.clear(dv)
            first = bx * block_N // block_M if is_causal else 0
            for m in T.Pipelined(first, T.ceildiv(S, block_M), num_stages=stages):
                T.copy(Q[bz, m * block_M : (m + 1) * block_M, by, :], Q_s)
                T.clear(P)
                T.gemm(K_s, Q_s, P, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(sums[bz, by, m * block_M : (m + 1) * block_M], sums_s)
                for i, j in T.Parallel(block_N, block_M):
                    P[i, j] = T.exp2(P[i, j] * scale - sums_s[j])
                if is_causal:
                    for i, j in T.Parallel(block_N, block_M):
                        P[i, j] = T.if_then_else(bx * block_N + i <= m * block_M + j, P[i, j], 0)
                elif S % block_N:
                    for i, j in T.Parallel(block_N, block_M):
                        P[i, j] = T.if_then_else(bx * block_N + i < S, P[i, j], 0)
                T.copy(dO[bz, m * block_M : (m + 1) * block_M, by, :], dO_s)
                T.clear(dP)
                T.gemm(V_s, dO_s, dP, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(P, P_half)
                T.gemm(P_half, dO_s, dv, policy=T.GemmWarpPolicy.FullRow)
                T.copy(delta[bz, by, m * block_M : (m + 1) * block_M], delta_s)
                for i, j in T.Parallel(block_N, block_M):
                    dS_half[i, j] = P[i, j] * (dP[i, j] - delta_s[j]) * D**-0.5
                T.gemm(dS_half, Q_s, dk, policy=T.GemmWarpPolicy.FullRow)
                T.copy(dS_half, dS_s)
                T.clear(dq)
                T.gemm(dS_s, K_s, dq, transpose_A=True)
                for i, j in T.Parallel(block_M, D):
                    if m * block_M + i < S:
                        T.atomic_add(dQ_sum[bz, m * block_M + i, by, j], dq[i, j])
            T.copy(dk, dK[bz, bx * block_N : (bx + 1) * block_N, by, :])
            T.copy(dv, dV[bz, bx * block_N : (bx + 1) * block_N, by, :])
        with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
            dq_f = T.alloc_fragment((block_M, D), "float32")
            T.copy(dQ_sum[bz, bx * block_M : (bx + 1) * block_M, by, :], dq_f)
            T.copy(dq_f, dQ[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def inputs(B, S, H, D, is_causal):
    Q, K, V, dO = (random_normal(B, S, H, D, dtype="bfloat16") for _ in range(4))
    O, sums = forward_and_sums(Q, K, V, D**-0.5, causal(S, Q.device) if is_causal else None)
    delta = torch.empty(B, H, S)
    dQ_sum = torch.zeros(B, S, H, D)
    return Q, K, V, O, dO, sums, delta, dQ_sum, *map(torch.empty_like, (Q, K, V))


def reference(Q, K, V, O, dO, *_, S, D, is_causal, **__):
    visible = causal(S, Q.device) if is_causal else None
    return backward_heads(Q, K, V, dO, D**-0.5, visible)


def peer(Q, K, V, O, dO, *_, is_causal, **__):
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in (Q, K, V))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    gradient = dO.transpose(1, 2)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def _pair(name, is_causal):
    return Pair(
        name, program, inputs, reference, outputs=(8, 9, 10),
        # As in attention.py, and O, from which the sums of each row are taken, is rounded, too: an
        # error of a unit of dO O^T in each term of a row of dS, whose other terms are as large.
        spread=2.0**-4,
        # The one key of row 0 of a causal program has dS = 0, the difference of two sums of D
        # products in float32: D * 2**-24 of their magnitude, about 0.6 * D. Times D**-0.5 and K, of
        # magnitude 1, that is 6e-5, and a gradient of queries is 0.07 (root mean square).
        floor=2.0**-10,
        sizes={"B": 4, "S": 4096, "H": 32, "D": 128, "is_causal": is_causal},
        small={"B": 1, "S": 100, "H": 2, "D": 32, "is_causal": is_causal},
        small_tiles={"block_M": 32, "block_N": 64, "threads": 128},
        flops=lambda B, S, H, D, is_causal: 10.0 * B * H * S * S * D * (0.5 if is_causal else 1.0),
        peer=peer, peer_name="cuDNN",
    )  # fmt: skip


PAIRS = (
    _pair("attention backward bf16 4x4096x32x128", False),
    _pair("attention backward bf16 causal 4x4096x32x128", True),
)

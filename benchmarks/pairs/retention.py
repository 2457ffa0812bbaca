"""Retention, a linear attention with a fixed decay for each head, chunk by chunk."""

import math

import torch

from benchmarks.pair import Pair, random_normal


def program(T, B, S, H, D, DV, chunk=64, block_V=64, stages=2, threads=128):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H, D), dtype),
        V: T.Tensor((B, S, H, DV), dtype),
        decay: T.Tensor((H,), "float32"),  # log2 of what remains after one token
        O: T.Tensor((B, S, H, DV), dtype),
    ):
        with T.Kernel(T.ceildiv(DV, block_V), H, B, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((chunk, D), dtype)
            K_s = T.alloc_shared((chunk, D), dtype)
            V_s = T.alloc_shared((chunk, block_V), dtype)
            P_s = T.alloc_shared((chunk, chunk), dtype)
            K_decayed = T.alloc_shared((chunk, D), dtype)
            state_s = T.alloc_shared((D, block_V), dtype)
            P = T.alloc_fragment((chunk, chunk), "float32")
            state = T.alloc_fragment((D, block_V), "float32")
            o = T.alloc_fragment((chunk, block_V), "float32")
            rate = decay[by]
            T.clear(state)
            for c in T.Pipelined(S // chunk, num_stages=stages):
                T.copy(Q[bz, c * chunk : (c + 1) * chunk, by, :], Q_s)
                T.copy(K[bz, c * chunk : (c + 1) * chunk, by, :], K_s)
                T.copy(
                    V[
                        bz,
                        c * chunk : (c + 1) * chunk,
                        by,
                        bx * block_V : (bx + 1) * block_V,
                    ],
                    V_s,
                )
                # What earlier chunks left, then what this chunk adds.
                T.copy(state, state_s)
                T.clear(o)
                T.gemm(Q_s, state_s, o)
                for i, j in T.Parallel(chunk, block_V):
                    o[i, j] *= T.exp2((i + 1) * rate)
                T.clear(P)
                T.gemm(Q_s, K_s, P, transpose_B=True)
                for i, j in T.Parallel(chunk, chunk):
                    P_s[i, j] = T.if_then_else(i >= j, P[i, j] * T.exp2((i - j) * rate), 0)
                T.gemm(P_s, V_s, o)
                T.copy(o, O[bz, c * chunk : (c + 1) * chunk, by, bx * block_V : (bx + 1) * block_V])
                for i, j in T.Parallel(chunk, D):
                    K_decayed[i, j] = K_s[i, j] * T.exp2((chunk - 1 - i) * rate)
                for i, j in T.Parallel(D, block_V):
                    state[i, j] *= T.exp2(chunk * rate)
                T.gemm(K_decayed, V_s, state, transpose_A=True)

    return main


def inputs(B, S, H, D, DV):
    Q, K = (random_normal(B, S, H, D, dtype="bfloat16", scale=D**-0.25) for _ in range(2))
    V = random_normal(B, S, H, DV, dtype="bfloat16")
    decay = torch.tensor([math.log2(1 - 2.0 ** (-5 - 3 * h / H)) for h in range(H)])
    return Q, K, V, decay, torch.empty_like(V)


def reference(Q, K, V, decay, O, B, S, H, **_):
    out = torch.empty(O.shape, dtype=torch.float64, device=O.device)
    at = torch.arange(S, device=Q.device).double()
    back = at[:, None] - at[None, :]
    for h in range(H):
        factor = torch.exp2(back * decay[h].double()).masked_fill(back < 0, 0.0)
        for b in range(B):
            q, k, v = (x[b, :, h].double() for x in (Q, K, V))
            out[b, :, h] = (q @ k.T * factor) @ v
    return (out,)


PAIRS = (
    Pair(
        # RetNet 6.7B: 16 heads, keys of 256 and values of 512.
        "retention bf16 4x4096x16x256-512", program, inputs, reference, outputs=(4,),
        # State, weights and decayed keys are rounded to bf16: one unit of each term, of random
        # sign, and 8 times that for the largest of many results.
        spread=2.0**-5,
        sizes={"B": 4, "S": 4096, "H": 16, "D": 256, "DV": 512},
        tiles={"threads": 256},
        small={"B": 1, "S": 192, "H": 2, "D": 32, "DV": 64},
        small_tiles={"block_V": 32, "chunk": 64},
        # For each token and value column: the state read and updated, half of a chunk of keys.
        flops=lambda B, S, H, D, DV: 2.0 * B * S * H * (2 * D * DV + 32 * (D + DV)),
    ),
)  # fmt: skip

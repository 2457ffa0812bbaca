"""Batched matrix products: one small product for each head of each sequence."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, B, M, N, K, block_M=128, block_N=128, block_K=64, stages=3, threads=128):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        X: T.Tensor((B, M, K), dtype), Y: T.Tensor((B, K, N), dtype), Z: T.Tensor((B, M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), B, threads=threads) as (
            bx,
            by,
            bz,
        ):
            X_s = T.alloc_shared((block_M, block_K), dtype)
            Y_s = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(X[bz, by * block_M, k * block_K], X_s)
                T.copy(Y[bz, k * block_K, bx * block_N], Y_s)
                T.gemm(X_s, Y_s, acc)
            T.copy(acc, Z[bz, by * block_M, bx * block_N])

    return main


def inputs(B, M, N, K):
    X, Y = (random_normal(*s, dtype="bfloat16") for s in ((B, M, K), (B, K, N)))
    return X, Y, torch.empty(B, M, N, dtype=X.dtype)


def reference(X, Y, Z, **_):
    return (X.double() @ Y.double(),)


def peer(X, Y, Z, **_):
    return lambda: torch.bmm(X, Y, out=Z)


PAIRS = (
    Pair(
        # The absorbed projection of multi-head latent attention: 128 heads, 512 latent columns.
        "matmul batched bf16 128x1024x512x128", program, inputs, reference, outputs=(2,),
        spread=2.0**-13,  # as in matmul.py
        sizes={"B": 128, "M": 1024, "N": 512, "K": 128},
        small={"B": 3, "M": 100, "N": 72, "K": 40},
        small_tiles={"block_M": 64, "block_N": 64, "block_K": 32, "stages": 2},
        flops=lambda B, M, N, K: 2.0 * B * M * N * K, peer=peer, peer_name="cuBLAS",
    ),
)  # fmt: skip

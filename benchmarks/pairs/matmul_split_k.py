"""The matrix product with K split over blocks, which add their parts to C atomically."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, K, splits, block_M=128, block_N=128, block_K=64, stages=4, threads=128):
    dtype = "bfloat16"
    steps = -(-K // (splits * block_K))

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), splits, threads=threads) as (
            bx,
            by,
            bz,
        ):
            A_s = T.alloc_shared((block_M, block_K), dtype)
            B_s = T.alloc_shared((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(acc)
            for k in T.Pipelined(steps, num_stages=stages):
                T.copy(A[by * block_M, (bz * steps + k) * block_K], A_s)
                T.copy(B[bx * block_N, (bz * steps + k) * block_K], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                T.atomic_add(C[by * block_M + i, bx * block_N + j], acc[i, j])

    return main


def inputs(M, N, K, splits):
    A, B = random_normal(M, K, dtype="bfloat16"), random_normal(N, K, dtype="bfloat16")
    return A, B, torch.zeros(M, N)


def reference(A, B, C, **_):
    return (A.double() @ B.double().T,)


def peer(A, B, C, **_):
    return lambda: torch.mm(A, B.T)


PAIRS = (
    Pair(
        # A router or a latent projection: few columns, long rows.
        "matmul split-K bf16 1024x512x16384", program, inputs, reference, outputs=(2,),
        spread=2.0**-13,  # as in matmul.py
        sizes={"M": 1024, "N": 512, "K": 16384, "splits": 8},
        small={"M": 100, "N": 136, "K": 200, "splits": 3},
        small_tiles={"block_M": 64, "block_N": 64, "block_K": 32, "stages": 2},
        flops=lambda M, N, K, splits: 2.0 * M * N * K, peer=peer, peer_name="cuBLAS",
    ),
)  # fmt: skip

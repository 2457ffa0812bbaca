"""The product of bf16 activations with e4m3 weights, one scale for each row of weights."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, K, block_M=128, block_N=128, block_K=64, stages=3, threads=128):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), "float8_e4m3fn"),
        scales: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), dtype)
            W_s = T.alloc_shared((block_N, block_K), "float8_e4m3fn")
            W_f = T.alloc_fragment((block_N, block_K), "float8_e4m3fn")
            weights = T.alloc_fragment((block_N, block_K), dtype)
            weights_s = T.alloc_shared((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(W[bx * block_N, k * block_K], W_s)
                T.copy(W_s, W_f)
                for i, j in T.Parallel(block_N, block_K):
                    weights[i, j] = T.cast(T.cast(W_f[i, j], "float32"), dtype)
                T.copy(weights, weights_s)
                T.gemm(A_s, weights_s, acc, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                acc[i, j] *= scales[bx * block_N + j]
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


def inputs(M, N, K):
    return (
        random_normal(M, K, dtype="bfloat16"),
        random_normal(N, K, dtype="float8_e4m3fn"),
        torch.rand(N) + 0.5,
        torch.empty(M, N, dtype=torch.bfloat16),
    )


def reference(A, W, scales, C, **_):
    return (A.double() @ (W.double() * scales.double()[:, None]).T,)


def _pair(name, M, N, K, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(3,),
        spread=2.0**-13,  # as in matmul.py: each e4m3 number is a bf16 number
        sizes={"M": M, "N": N, "K": K}, small={"M": 70, "N": 72, "K": 104},
        tiles=tiles, small_tiles={"block_M": 64, "block_N": 64, "block_K": 32, "stages": 2},
        flops=lambda M, N, K: 2.0 * M * N * K,
    )  # fmt: skip


PAIRS = (
    # The gate and up projections of Llama 3 8B, for sixteen tokens and a prompt.
    _pair("matmul fp8 weights 16x28672x4096", 16, 28672, 4096, block_M=16, block_N=64, block_K=128),
    _pair("matmul fp8 weights 4096x28672x4096", 4096, 28672, 4096),
)

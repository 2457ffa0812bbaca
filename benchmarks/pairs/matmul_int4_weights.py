"""The product with 4-bit weights, two in a byte, a half-precision scale for 128 of them."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, K, group, block_M=128, block_N=128, block_K=64, stages=3, threads=128):
    dtype = "float16"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // 2), "uint8"),  # low half first; a weight is the number minus 8
        scales: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), dtype)
            W_s = T.alloc_shared((block_N, block_K // 2), "uint8")
            packed = T.alloc_fragment((block_N, block_K // 2), "uint8")
            weights = T.alloc_fragment((block_N, block_K), dtype)
            weights_s = T.alloc_shared((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // block_K, num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(W[bx * block_N, k * (block_K // 2)], W_s)
                T.copy(W_s, packed)
                for i, j in T.Parallel(block_N, block_K):
                    shift = T.cast(j % 2 * 4, "uint8")
                    number = (packed[i, j // 2] >> shift) & T.cast(15, "uint8")
                    weights[i, j] = (T.cast(number, dtype) - T.cast(8, dtype)) * scales[
                        bx * block_N + i, k * block_K // group
                    ]
                T.copy(weights, weights_s)
                T.gemm(A_s, weights_s, acc, transpose_B=True)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


def inputs(M, N, K, group):
    return (
        random_normal(M, K),
        torch.randint(0, 256, (N, K // 2), dtype=torch.uint8),
        (torch.rand(N, K // group) / 8).half(),
        torch.empty(M, N, dtype=torch.float16),
    )


def reference(A, W, scales, C, group, **_):
    numbers = torch.stack([W & 15, W >> 4], -1).flatten(-2)
    return (A.double() @ ((numbers.double() - 8) * scales.double().repeat_interleave(group, 1)).T,)


def _pair(name, M, N, K, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(3,),
        # The scaled weights are rounded: 2^-11 of each term, with random signs; 8 times that for
        # the largest of many results.
        spread=2.0**-8,
        sizes={"M": M, "N": N, "K": K, "group": 128},
        small={"M": 70, "N": 72, "K": 128, "group": 64},
        tiles=tiles, small_tiles={"block_M": 64, "block_N": 64, "block_K": 32, "stages": 2},
        flops=lambda M, N, K, **_: 2.0 * M * N * K,
    )  # fmt: skip


PAIRS = (
    # The gate and up projections of Llama 3 8B, for one token, sixteen, and a prompt.
    _pair("matmul int4 weights 1x28672x4096", 1, 28672, 4096, block_M=16, block_N=64, block_K=128),
    _pair(
        "matmul int4 weights 16x28672x4096", 16, 28672, 4096, block_M=16, block_N=64, block_K=128
    ),
    _pair("matmul int4 weights 4096x28672x4096", 4096, 28672, 4096),
)

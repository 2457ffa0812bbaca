"""The matrix product of e4m3 operands with a scale for 128 of K: rows of A, blocks of B."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, K, group, block_M=128, stages=4, threads=128):
    dtype = "float8_e4m3fn"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        A_scale: T.Tensor((M, T.ceildiv(K, group)), "float32"),
        B_scale: T.Tensor((T.ceildiv(N, group), T.ceildiv(K, group)), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, group), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared((block_M, group), dtype)
            B_s = T.alloc_shared((group, group), dtype)
            scale = T.alloc_shared((block_M,), "float32")
            C_s = T.alloc_shared((block_M, group), "bfloat16")
            part = T.alloc_fragment((block_M, group), "float32")
            acc = T.alloc_fragment((block_M, group), "float32")
            T.use_swizzle(panel_size=10)
            T.clear(acc)
            T.clear(part)
            for k in T.Pipelined(T.ceildiv(K, group), num_stages=stages):
                T.copy(A[by * block_M, k * group], A_s)
                T.copy(B[bx * group, k * group], B_s)
                for i in T.Parallel(block_M):
                    scale[i] = A_scale[by * block_M + i, k] * B_scale[bx, k]
                T.gemm(A_s, B_s, part, transpose_B=True)
                for i, j in T.Parallel(block_M, group):
                    acc[i, j] += part[i, j] * scale[i]
                T.clear(part)
            T.copy(acc, C_s)
            T.copy(C_s, C[by * block_M, bx * group])

    return main


def inputs(M, N, K, group):
    return (
        random_normal(M, K, dtype="float8_e4m3fn"),
        random_normal(N, K, dtype="float8_e4m3fn"),
        torch.rand(M, -(-K // group)) + 0.5,
        torch.rand(-(-N // group), -(-K // group)) + 0.5,
        torch.empty(M, N, dtype=torch.bfloat16),
    )


def reference(A, B, A_scale, B_scale, C, group, **_):
    (M, K), N = A.shape, B.shape[0]
    rows = A_scale.double().repeat_interleave(group, 1)[:, :K]
    blocks = B_scale.double().repeat_interleave(group, 0)[:N].repeat_interleave(group, 1)[:, :K]
    return ((A.double() * rows) @ (B.double() * blocks).T,)


def _pair(name, M, N, K, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(4,),
        # Hopper's fp8 units cut a partial sum of 128 products at 13 fraction bits in 4 steps: less
        # than 2^-11 of it, and the sums of parts are float32.
        spread=2.0**-9,
        sizes={"M": M, "N": N, "K": K, "group": 128},
        small={"M": 70, "N": 72, "K": 112, "group": 64},
        tiles=tiles, small_tiles={"block_M": 64, "stages": 2},
        flops=lambda M, N, K, **_: 2.0 * M * N * K,
    )  # fmt: skip


PAIRS = (
    # DeepSeek-V3: the gate and up projections of one expert, and the output projection.
    _pair("matmul fp8 block scales 4096x4096x7168", 4096, 4096, 7168),
    _pair("matmul fp8 block scales 4096x7168x16384", 4096, 7168, 16384),
)

"""The matrix product of e4m3 operands, weights as (N, K), accumulated in the tensor cores."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, K, out_dtype, block_M=128, block_N=256, block_K=128, stages=3, threads=256):
    dtype = "float8_e4m3fn"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), out_dtype)
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), dtype)
            B_s = T.alloc_shared((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(panel_size=10)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(B[bx * block_N, k * block_K], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


def inputs(M, N, K, out_dtype):
    A = random_normal(M, K, dtype="float8_e4m3fn")
    B = random_normal(N, K, dtype="float8_e4m3fn")
    return A, B, torch.empty(M, N, dtype=getattr(torch, out_dtype))


def reference(A, B, C, **_):
    return (A.double() @ B.double().T,)


def peer(A, B, C, **_):
    one = torch.ones((), device=A.device)
    return lambda: torch._scaled_mm(A, B.T, one, one, out_dtype=C.dtype, use_fast_accum=True)


def _pair(name, M, N, K, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(2,),
        # Hopper's fp8 units cut a partial sum to 13 fraction bits at each of K / 32 steps: for K =
        # 8192 at most 256 cuts of 2^-13, on average of half that and of half the final sum: 2^-7.
        relative=2.0**-7, spread=2.0**-5,
        sizes={"M": M, "N": N, "K": K, "out_dtype": "bfloat16"},
        small={"M": 100, "N": 136, "K": 160, "out_dtype": "bfloat16"},
        tiles=tiles, small_tiles={"block_M": 64, "block_N": 64, "block_K": 64, "threads": 128},
        flops=lambda M, N, K, **_: 2.0 * M * N * K, peer=peer, peer_name="torch._scaled_mm",
    )  # fmt: skip


PAIRS = (
    _pair("matmul fp8 8192", 8192, 8192, 8192),
    # The down projection of Llama 3 8B.
    _pair("matmul fp8 4096x4096x14336", 4096, 4096, 14336),
)

"""The matrix product of int8 operands, weights as (N, K), summed in int32."""

import torch

from benchmarks.pair import Pair


def program(T, M, N, K, block_M=128, block_N=128, block_K=128, stages=3, threads=128):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"), B: T.Tensor((N, K), "int8"), C: T.Tensor((M, N), "int32")
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), "int8")
            B_s = T.alloc_shared((block_N, block_K), "int8")
            acc = T.alloc_fragment((block_M, block_N), "int32")
            T.use_swizzle(panel_size=10)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(B[bx * block_N, k * block_K], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


def inputs(M, N, K):
    A, B = (torch.randint(-128, 128, (rows, K), dtype=torch.int8) for rows in (M, N))
    return A, B, torch.empty(M, N, dtype=torch.int32)


def reference(A, B, C, **_):
    # Sums of at most 8192 products of 2^14 are below 2^27: float64 holds them exactly.
    return (A.double() @ B.double().T,)


def peer(A, B, C, **_):
    return lambda: torch._int_mm(A, B.T, out=C)


PAIRS = (
    Pair(
        "matmul int8 8192", program, inputs, reference, outputs=(2,), spread=0.0,
        sizes={"M": 8192, "N": 8192, "K": 8192}, small={"M": 100, "N": 136, "K": 160},
        small_tiles={"block_M": 64, "block_N": 64, "block_K": 64},
        flops=lambda M, N, K: 2.0 * M * N * K, peer=peer, peer_name="torch._int_mm",
    ),
)  # fmt: skip

"""The matrix product by as many blocks as the GPU has multiprocessors, each taking tiles in turn."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, K, workers, block_M=128, block_N=256, block_K=64, stages=3, threads=256):
    dtype = "bfloat16"

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(workers, threads=threads) as worker:
            A_s = T.alloc_shared((block_M, block_K), dtype)
            B_s = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            for bx, by in T.Persistent(
                [T.ceildiv(M, block_M), T.ceildiv(N, block_N)], workers, worker
            ):
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                    T.copy(A[bx * block_M, k * block_K], A_s)
                    T.copy(B[k * block_K, by * block_N], B_s)
                    T.gemm(A_s, B_s, acc)
                T.copy(acc, C[bx * block_M, by * block_N])

    return main


def inputs(M, N, K, workers):
    A, B = random_normal(M, K, dtype="bfloat16"), random_normal(K, N, dtype="bfloat16")
    return A, B, torch.empty(M, N, dtype=torch.bfloat16)


def reference(A, B, C, **_):
    return (A.double() @ B.double(),)


def peer(A, B, C, **_):
    return lambda: torch.mm(A, B, out=C)


PAIRS = (
    Pair(
        "matmul persistent bf16 8192", program, inputs, reference, outputs=(2,),
        spread=2.0**-13,  # as in matmul.py
        sizes={"M": 8192, "N": 8192, "K": 8192, "workers": 132},
        small={"M": 200, "N": 136, "K": 72, "workers": 3},
        small_tiles={"block_M": 64, "block_N": 64, "block_K": 32, "threads": 128},
        flops=lambda M, N, K, workers: 2.0 * M * N * K, peer=peer, peer_name="cuBLAS",
    ),
)  # fmt: skip

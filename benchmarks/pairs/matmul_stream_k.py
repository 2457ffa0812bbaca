"""The matrix product with all steps over K of all tiles dealt out evenly to the blocks."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, K, workers, block_M=128, block_N=256, block_K=64, stages=3, threads=256):
    dtype = "float16"
    steps = -(-K // block_K)
    columns = -(-N // block_N)
    total = steps * columns * -(-M // block_M)
    share = -(-total // workers)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(workers, threads=threads) as worker:
            A_s = T.alloc_shared((block_M, block_K), dtype)
            B_s = T.alloc_shared((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            # A share touches at most this many tiles.
            for turn in T.serial(share // steps + 2):
                first = T.max(worker * share, (worker * share // steps + turn) * steps)
                last = T.min(
                    T.min(worker * share + share, total),
                    (worker * share // steps + turn + 1) * steps,
                )
                tile = worker * share // steps + turn
                if first < last:
                    T.clear(acc)
                    for k in T.Pipelined(last - first, num_stages=stages):
                        step = first + k - tile * steps
                        T.copy(A[tile // columns * block_M, step * block_K], A_s)
                        T.copy(B[tile % columns * block_N, step * block_K], B_s)
                        T.gemm(A_s, B_s, acc, transpose_B=True)
                    for i, j in T.Parallel(block_M, block_N):
                        T.atomic_add(
                            C[tile // columns * block_M + i, tile % columns * block_N + j],
                            acc[i, j],
                        )

    return main


def inputs(M, N, K, workers):
    return random_normal(M, K), random_normal(N, K), torch.zeros(M, N)


def reference(A, B, C, **_):
    return (A.double() @ B.double().T,)


def peer(A, B, C, **_):
    return lambda: torch.mm(A, B.T)


PAIRS = (
    Pair(
        # 144 tiles: one and a bit for each of 132 multiprocessors.
        "matmul stream-K fp16 2304x2048x8192", program, inputs, reference, outputs=(2,),
        spread=2.0**-13,  # as in matmul.py
        sizes={"M": 2304, "N": 2048, "K": 8192, "workers": 132},
        small={"M": 100, "N": 136, "K": 200, "workers": 5},
        small_tiles={
            "block_M": 64, "block_N": 64, "block_K": 32, "stages": 2, "threads": 128,
        },
        flops=lambda M, N, K, workers: 2.0 * M * N * K, peer=peer, peer_name="cuBLAS",
    ),
)  # fmt: skip

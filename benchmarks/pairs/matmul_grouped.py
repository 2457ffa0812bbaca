"""The matrix products of a mixture of experts: rows sorted by expert, one weight for each."""

from itertools import pairwise

import torch

from benchmarks.pair import Pair, random_normal


def program(T, rows, experts, N, K, block_M, block_N=256, block_K=64, stages=3, threads=256):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((experts, K, N), dtype),
        sizes: T.Tensor((experts,), "int32"),
        starts: T.Tensor((experts,), "int32"),  # first row of each expert
        tiles: T.Tensor((experts,), "int32"),  # first tile of each expert
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(
            T.ceildiv(rows, block_M) + experts, T.ceildiv(N, block_N), threads=threads
        ) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), dtype)
            B_s = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            expert = T.alloc_var("int32", 0)
            for e in T.serial(experts):
                if bx >= tiles[e]:
                    expert = e
            within = (bx - tiles[expert]) * block_M
            row = starts[expert] + within
            count = sizes[expert] - within
            if count > 0:
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                    T.copy(A[row : row + block_M, k * block_K : (k + 1) * block_K], A_s)
                    T.copy(
                        B[
                            expert,
                            k * block_K : (k + 1) * block_K,
                            by * block_N : (by + 1) * block_N,
                        ],
                        B_s,
                    )
                    T.gemm(A_s, B_s, acc)
                for i, j in T.Parallel(block_M, block_N):
                    if i < count:
                        C[row + i, by * block_N + j] = acc[i, j]

    return main


def inputs(rows, experts, N, K, block_M):
    # An uneven load: an expert gets between no row and about three times the mean.
    cuts = torch.rand(experts - 1, device="cpu").mul(rows).int().sort().values
    edges = [0, *cuts.tolist(), rows]
    sizes = [b - a for a, b in pairwise(edges)]
    tiles = [0]
    for size in sizes[:-1]:
        tiles.append(tiles[-1] + -(-size // block_M))
    numbers = [torch.tensor(x, dtype=torch.int32) for x in (sizes, edges[:-1], tiles)]
    A, B = (random_normal(*s, dtype="bfloat16") for s in ((rows, K), (experts, K, N)))
    return A, B, *numbers, torch.empty(rows, N, dtype=A.dtype)


def reference(A, B, sizes, starts, tiles, C, **_):
    parts = A.split(sizes.tolist())
    return (torch.cat([a.double() @ b.double() for a, b in zip(parts, B, strict=True)]),)


def peer(A, B, sizes, starts, tiles, C, **_):
    return lambda: torch._grouped_mm(A, B, offs=starts + sizes)


def _pair(name, experts, N, K):
    return Pair(
        name, program, inputs, reference, outputs=(5,),
        spread=2.0**-13,  # as in matmul.py
        sizes={"rows": 8192, "experts": experts, "N": N, "K": K, "block_M": 128},
        small={"rows": 150, "experts": 4, "N": 136, "K": 72, "block_M": 64},
        small_tiles={"block_N": 64, "block_K": 32, "stages": 2, "threads": 128},
        flops=lambda rows, N, K, **_: 2.0 * rows * N * K,
        peer=peer, peer_name="torch._grouped_mm",
    )  # fmt: skip


PAIRS = (
    # Mixtral 8x7B: gate and up; DeepSeek-V3 with 32 experts on one GPU: down.
    _pair("matmul grouped bf16 8 experts", 8, 28672, 4096),
    _pair("matmul grouped bf16 32 experts", 32, 7168, 2048),
)

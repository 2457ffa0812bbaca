"""Matrix products of half precision: four transposes, cubes, sizes of models, odd sizes."""

import torch

from benchmarks.pair import Pair, random_normal

SQUARE = {"trans_A": False, "trans_B": False, "dtype": "float16"}
SMALL = {"M": 100, "N": 136, "K": 72}
SMALL_TILES = {"block_M": 64, "block_N": 64, "block_K": 32, "threads": 128}


def program(
    T, M, N, K, trans_A, trans_B, dtype, block_M=128, block_N=256, block_K=64, stages=3, threads=256
):
    A_shape = (K, M) if trans_A else (M, K)
    B_shape = (N, K) if trans_B else (K, N)
    A_tile = (block_K, block_M) if trans_A else (block_M, block_K)
    B_tile = (block_N, block_K) if trans_B else (block_K, block_N)

    @T.prim_func
    def main(A: T.Tensor(A_shape, dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared(A_tile, dtype)
            B_s = T.alloc_shared(B_tile, dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(panel_size=10)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                if trans_A:
                    T.copy(A[k * block_K, by * block_M], A_s)
                else:
                    T.copy(A[by * block_M, k * block_K], A_s)
                if trans_B:
                    T.copy(B[bx * block_N, k * block_K], B_s)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_s)
                T.gemm(A_s, B_s, acc, transpose_A=trans_A, transpose_B=trans_B)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


def inputs(M, N, K, trans_A, trans_B, dtype):
    A = random_normal(*((K, M) if trans_A else (M, K)), dtype=dtype)
    B = random_normal(*((N, K) if trans_B else (K, N)), dtype=dtype)
    return A, B, torch.empty(M, N, dtype=A.dtype)


def _operands(A, B, trans_A, trans_B):
    return A.T if trans_A else A, B.T if trans_B else B


def reference(A, B, C, trans_A, trans_B, **_):
    A, B = _operands(A, B, trans_A, trans_B)
    return (A.double() @ B.double(),)


def peer(A, B, C, trans_A, trans_B, **_):
    return lambda: torch.mm(*_operands(A, B, trans_A, trans_B), out=C)


def _pair(name, M, N, K, transposes="nn", dtype="float16", **tiles):
    kinds = {"trans_A": transposes[0] == "t", "trans_B": transposes[1] == "t", "dtype": dtype}
    return Pair(
        name, program, inputs, reference, outputs=(2,),
        # Sums in float32 of K <= 28,672 terms of random sign: about sqrt(K) roundings of 2^-24 (2^-22
        # where tensor cores cut off) of a partial sum, below 2^-14; the rest is the last rounding.
        spread=2.0**-13,
        sizes={"M": M, "N": N, "K": K, **kinds}, small={**SMALL, **kinds},
        tiles=tiles, small_tiles=SMALL_TILES,
        flops=lambda M, N, K, **_: 2.0 * M * N * K, peer=peer, peer_name="cuBLAS",
    )  # fmt: skip


PAIRS = (
    _pair("matmul fp16 4096", 4096, 4096, 4096),
    _pair("matmul bf16 nt 4096", 4096, 4096, 4096, "nt", "bfloat16"),
    _pair("matmul fp16 8192", 8192, 8192, 8192),
    _pair("matmul fp16 2048", 2048, 2048, 2048, block_N=128, stages=4),
    # The operands of the two products of a backward pass, and the remaining transposes.
    _pair("matmul bf16 tn 4096", 4096, 4096, 4096, "tn", "bfloat16"),
    _pair("matmul bf16 tt 4096", 4096, 4096, 4096, "tt", "bfloat16"),
    # Weights are (N, K). Llama 3 8B: gate and up, down; 70B: query, key and value.
    _pair("matmul bf16 nt 4096x28672x4096", 4096, 28672, 4096, "nt", "bfloat16"),
    _pair("matmul bf16 nt 4096x4096x14336", 4096, 4096, 14336, "nt", "bfloat16"),
    _pair("matmul bf16 nt 8192x10240x8192", 8192, 10240, 8192, "nt", "bfloat16"),
    # Sixteen tokens: weights are read once.
    _pair(
        "matmul bf16 nt 16x28672x4096", 16, 28672, 4096, "nt", "bfloat16",
        block_M=64, block_N=64, block_K=128, stages=4, threads=128,
    ),
    # No tile divides these; rows of the second are not multiples of 16 bytes.
    _pair("matmul fp16 4104", 4104, 4104, 4104),
    _pair("matmul fp16 4095", 4095, 4095, 4095, block_N=128, block_K=32),
)  # fmt: skip

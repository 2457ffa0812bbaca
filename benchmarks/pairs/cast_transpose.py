"""A matrix in bf16 scaled, converted to e4m3, and written both as it is and transposed."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, scale, block=64, threads=256):
    fp8 = "float8_e4m3fn"

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "bfloat16"),
        Y: T.Tensor((M, N), fp8),
        Y_transposed: T.Tensor((N, M), fp8),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=threads) as (bx, by):
            x = T.alloc_fragment((block, block), "float32")
            x_s = T.alloc_shared((block, block), "float32")
            turned = T.alloc_fragment((block, block), "float32")
            T.copy(X[by * block, bx * block], x)
            for i, j in T.Parallel(block, block):
                x[i, j] *= scale
            T.copy(x, x_s)
            T.copy(x, Y[by * block, bx * block])
            for i, j in T.Parallel(block, block):
                turned[i, j] = x_s[j, i]
            T.copy(turned, Y_transposed[bx * block, by * block])

    return main


def inputs(M, N, scale):
    X = random_normal(M, N, dtype="bfloat16")
    fp8 = torch.float8_e4m3fn
    return X, torch.empty(M, N, dtype=fp8), torch.empty(N, M, dtype=fp8)


def reference(X, Y, Y_transposed, scale, **_):
    return X.double() * scale, X.double().T * scale


PAIRS = (
    Pair(
        "cast and transpose bf16 to fp8 8192x8192", program, inputs, reference, outputs=(1, 2),
        spread=2.0**-11,  # numbers below 2^-6 are multiples of 2^-9
        sizes={"M": 8192, "N": 8192, "scale": 16.0}, small={"M": 70, "N": 50, "scale": 16.0},
        small_tiles={"block": 32, "threads": 128},
    ),
)  # fmt: skip

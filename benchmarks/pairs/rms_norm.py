"""RMSNorm of rows in bf16: x * rsqrt(mean(x^2) + eps) * w."""

import torch
import torch.nn.functional as F

from benchmarks.pair import Pair, random_normal


def program(T, M, N, eps, rows=1, threads=256):
    dtype = "bfloat16"

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), W: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            squares = T.alloc_fragment((rows, N), "float32")
            scale = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            for i, j in T.Parallel(rows, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(rows):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] * scale[i] * W[j]
            T.copy(x, Y[bx * rows, 0])

    return main


def inputs(M, N, eps):
    X, W = random_normal(M, N, dtype="bfloat16"), random_normal(N, dtype="bfloat16")
    return X, W, torch.empty_like(X)


def reference(X, W, Y, eps, **_):
    x = X.double()
    return (x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * W.double(),)


def peer(X, W, Y, N, eps, **_):
    return lambda: F.rms_norm(X, (N,), W, eps)


def _pair(name, M, N, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(2,),
        spread=2.0**-16,  # float32 until the last rounding
        sizes={"M": M, "N": N, "eps": 1e-5}, small={"M": 5, "N": 200, "eps": 1e-5},
        tiles=tiles, small_tiles={"rows": 2, "threads": 128}, peer=peer,
    )  # fmt: skip


PAIRS = (
    _pair("rms_norm bf16 16384x8192", 16384, 8192),
    _pair("rms_norm bf16 2048x4096", 2048, 4096),
)

"""LayerNorm of rows in bf16, which also leaves each row's mean and reciprocal deviation."""

import torch
import torch.nn.functional as F

from benchmarks.pair import Pair, random_normal


def program(T, M, N, eps, rows=1, threads=256):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        bias: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
        mean: T.Tensor((M,), "float32"),
        rstd: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            squares = T.alloc_fragment((rows, N), "float32")
            average = T.alloc_fragment((rows,), "float32")
            scale = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_sum(x, average, dim=1)
            for i in T.Parallel(rows):
                average[i] /= N
            for i, j in T.Parallel(rows, N):
                squares[i, j] = (x[i, j] - average[i]) * (x[i, j] - average[i])
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(rows):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(rows, N):
                x[i, j] = (x[i, j] - average[i]) * scale[i] * W[j] + bias[j]
            T.copy(x, Y[bx * rows, 0])
            T.copy(average, mean[bx * rows])
            T.copy(scale, rstd[bx * rows])

    return main


def inputs(M, N, eps):
    X = random_normal(M, N, dtype="bfloat16")
    W, bias = (random_normal(N, dtype="bfloat16") for _ in range(2))
    return X, W, bias, torch.empty_like(X), torch.empty(M), torch.empty(M)


def reference(X, W, bias, *_, eps, **__):
    x = X.double()
    mean = x.mean(-1)
    rstd = (x.var(-1, unbiased=False) + eps).rsqrt()
    y = (x - mean[:, None]) * rstd[:, None] * W.double() + bias.double()
    return y, mean, rstd


def peer(X, W, bias, *_, N, eps, **__):
    return lambda: F.layer_norm(X, (N,), W, bias, eps)


def _pair(name, M, N, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(3, 4, 5),
        spread=2.0**-16,  # float32 until the last rounding
        sizes={"M": M, "N": N, "eps": 1e-5}, small={"M": 5, "N": 200, "eps": 1e-5},
        tiles=tiles, small_tiles={"rows": 2, "threads": 128}, peer=peer,
    )  # fmt: skip


PAIRS = (
    _pair("layer_norm bf16 16384x8192", 16384, 8192),
    _pair("layer_norm bf16 2048x4096", 2048, 4096),
)

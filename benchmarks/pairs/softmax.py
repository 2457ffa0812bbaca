"""Softmax of rows in bf16."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.online_softmax import LOG2_E


def program(T, M, N, rows=1, threads=256):
    dtype = "bfloat16"

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] /= total[i]
            T.copy(x, Y[bx * rows, 0])

    return main


def inputs(M, N):
    X = random_normal(M, N, dtype="bfloat16")
    return X, torch.empty_like(X)


def reference(X, Y, **_):
    return (X.double().softmax(-1),)


def peer(X, Y, **_):
    return lambda: torch.softmax(X, -1)


def _pair(name, M, N, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(1,),
        spread=2.0**-16,  # float32 until the last rounding
        sizes={"M": M, "N": N}, small={"M": 5, "N": 200},
        tiles=tiles, small_tiles={"rows": 2, "threads": 128}, peer=peer,
    )  # fmt: skip


PAIRS = (
    _pair("softmax bf16 16384x8192", 16384, 8192),
    _pair("softmax bf16 8192x1024", 8192, 1024, rows=4),
)

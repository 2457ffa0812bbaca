"""Rotary embedding of queries in bf16: the halves of each head turned by an angle of the position."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, B, S, H, D, rows=4, threads=256):
    dtype = "bfloat16"
    half = D // 2

    @T.prim_func
    def main(
        X: T.Tensor((B, S, H, D), dtype),
        cos: T.Tensor((S, half), "float32"),
        sin: T.Tensor((S, half), "float32"),
        Y: T.Tensor((B, S, H, D), dtype),
    ):
        with T.Kernel(T.ceildiv(H, rows), S, B, threads=threads) as (bx, by, bz):
            for i, j in T.Parallel(rows, half):
                if bx * rows + i < H:
                    a = T.cast(X[bz, by, bx * rows + i, j], "float32")
                    b = T.cast(X[bz, by, bx * rows + i, half + j], "float32")
                    Y[bz, by, bx * rows + i, j] = a * cos[by, j] - b * sin[by, j]
                    Y[bz, by, bx * rows + i, half + j] = b * cos[by, j] + a * sin[by, j]

    return main


def inputs(B, S, H, D):
    X = random_normal(B, S, H, D, dtype="bfloat16")
    rates = 10000.0 ** (-torch.arange(0, D, 2).double() / D)
    angles = torch.arange(S).double()[:, None] * rates
    return X, angles.cos().float(), angles.sin().float(), torch.empty_like(X)


def reference(X, cos, sin, Y, **_):
    a, b = X.double().chunk(2, -1)
    c, s = (x.double()[:, None] for x in (cos, sin))
    return (torch.cat([a * c - b * s, b * c + a * s], -1),)


PAIRS = (
    Pair(
        # The queries of Llama 3 8B, 4 prompts of 4096 tokens.
        "rope bf16 4x4096x32x128", program, inputs, reference, outputs=(3,),
        spread=2.0**-20,  # float32 until the last rounding
        sizes={"B": 4, "S": 4096, "H": 32, "D": 128}, tiles={"rows": 32},
        small={"B": 2, "S": 5, "H": 3, "D": 32}, small_tiles={"rows": 2, "threads": 128},
    ),
)  # fmt: skip

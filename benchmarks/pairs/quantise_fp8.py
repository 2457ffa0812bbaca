"""Activations in bf16 converted to e4m3 with a scale for each 128 columns of a row."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, group, rows=8, threads=128):
    fp8 = "float8_e4m3fn"

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "bfloat16"),
        Y: T.Tensor((M, N), fp8),
        scales: T.Tensor((M, T.ceildiv(N, group)), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, group), T.ceildiv(M, rows), threads=threads) as (bx, by):
            x = T.alloc_fragment((rows, group), "float32")
            most = T.alloc_fragment((rows,), "float32")
            scale = T.alloc_fragment((rows,), "float32")
            T.copy(X[by * rows, bx * group], x)
            T.reduce_absmax(x, most, dim=1)
            for i in T.Parallel(rows):
                scale[i] = T.max(most[i], 1e-4) / 448.0
            for i, j in T.Parallel(rows, group):
                x[i, j] = T.clamp(x[i, j] / scale[i], -448.0, 448.0)
            T.copy(x, Y[by * rows, bx * group])
            for i in T.Parallel(rows):
                if by * rows + i < M:
                    scales[by * rows + i, bx] = scale[i]

    return main


def inputs(M, N, group):
    X = random_normal(M, N, dtype="bfloat16")
    return X, torch.empty(M, N, dtype=torch.float8_e4m3fn), torch.empty(M, -(-N // group))


def reference(X, Y, scales, group, **_):
    M, N = X.shape
    pad = -N % group
    groups = torch.nn.functional.pad(X.double(), (0, pad)).view(M, -1, group)
    scale = groups.abs().amax(-1).clamp(min=1e-4) / 448.0
    return (groups / scale[..., None]).flatten(1)[:, :N], scale


PAIRS = (
    Pair(
        # The inputs of the block-scaled products of DeepSeek-V3.
        "quantise bf16 to fp8 16384x7168", program, inputs, reference, outputs=(1, 2),
        # Numbers below 2^-6 are multiples of 2^-9, and rows are about 150; scales are float32.
        spread=2.0**-17,
        sizes={"M": 16384, "N": 7168, "group": 128}, small={"M": 11, "N": 100, "group": 32},
        tiles={"rows": 32}, small_tiles={"rows": 4},
    ),
)  # fmt: skip

"""The sum of two tensors, element by element."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, N, dtype, block=2048, threads=256):
    @T.prim_func
    def main(X: T.Tensor((N,), dtype), Y: T.Tensor((N,), dtype), Z: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                Z[bx * block + i] = X[bx * block + i] + Y[bx * block + i]

    return main


def inputs(N, dtype):
    X, Y = (random_normal(N, dtype=dtype) for _ in range(2))
    return X, Y, torch.empty_like(X)


def reference(X, Y, Z, **_):
    return (X.double() + Y.double(),)


def peer(X, Y, Z, **_):
    return lambda: torch.add(X, Y, out=Z)


def _pair(name, N, dtype):
    return Pair(
        name, program, inputs, reference, outputs=(2,),
        spread=0.0,  # one rounding
        sizes={"N": N, "dtype": dtype}, small={"N": 1000, "dtype": dtype},
        small_tiles={"block": 256, "threads": 128}, peer=peer,
    )  # fmt: skip


PAIRS = (
    _pair("add bf16 134217728", 1 << 27, "bfloat16"),
    _pair("add fp32 1048576", 1 << 20, "float32"),
)

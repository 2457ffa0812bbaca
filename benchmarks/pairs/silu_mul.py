"""SwiGLU in bf16: silu of the first half of each row times the second half."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.online_softmax import LOG2_E


def program(T, M, N, block=1024, threads=128):
    dtype = "bfloat16"

    @T.prim_func
    def main(X: T.Tensor((M, 2 * N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block), M, threads=threads) as (bx, by):
            for j in T.Parallel(block):
                if bx * block + j < N:
                    gate = T.cast(X[by, bx * block + j], "float32")
                    up = T.cast(X[by, N + bx * block + j], "float32")
                    Y[by, bx * block + j] = gate / (1 + T.exp2(-gate * LOG2_E)) * up

    return main


def inputs(M, N):
    X = random_normal(M, 2 * N, dtype="bfloat16")
    return X, torch.empty(M, N, dtype=X.dtype)


def reference(X, Y, **_):
    gate, up = X.double().chunk(2, -1)
    return (gate * gate.sigmoid() * up,)


PAIRS = (
    Pair(
        # Llama 3 8B, 8192 tokens.
        "silu_mul bf16 8192x14336", program, inputs, reference, outputs=(1,),
        spread=2.0**-20,  # float32 until the last rounding
        sizes={"M": 8192, "N": 14336}, small={"M": 3, "N": 200},
        small_tiles={"block": 64},
    ),
)  # fmt: skip

"""The cross-entropy of rows of bf16 logits, read once, and the log of each row's sum of exps."""

import torch
import torch.nn.functional as F

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E

LN_2 = 0.6931471805599453


def program(T, M, N, block=4096, threads=256):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        target: T.Tensor((M,), "int32"),
        loss: T.Tensor((M,), "float32"),
        sums: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment((1, block), "float32")
            top = T.alloc_fragment((1,), "float32")
            before = T.alloc_fragment((1,), "float32")
            part = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(top, HIDDEN)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block)):
                for i, j in T.Parallel(1, block):
                    x[i, j] = T.if_then_else(
                        k * block + j < N, T.cast(X[row, k * block + j], "float32"), HIDDEN
                    )
                T.copy(top, before)
                T.reduce_max(x, top, dim=1, clear=False)
                for i, j in T.Parallel(1, block):
                    x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2_E)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(1):
                    total[i] = total[i] * T.exp2((before[i] - top[i]) * LOG2_E) + part[i]
            for i in T.Parallel(1):
                total[i] = T.log2(total[i]) * LN_2 + top[i]
            for i in T.Parallel(1):
                sums[row + i] = total[i]
                loss[row + i] = total[i] - T.cast(X[row, target[row]], "float32")

    return main


def inputs(M, N):
    X = random_normal(M, N, dtype="bfloat16", scale=2.0)
    return X, torch.randint(0, N, (M,)).int(), torch.empty(M), torch.empty(M)


def reference(X, target, loss, sums, **_):
    # Some rows at a time: float64 logits of a large vocabulary take many gigabytes.
    whole = torch.cat([rows.double().logsumexp(-1) for rows in X.split(512)])
    return whole - X.gather(1, target.long()[:, None])[:, 0].double(), whole


def peer(X, target, loss, sums, **_):
    labels = target.long()
    return lambda: F.cross_entropy(X, labels, reduction="none")


PAIRS = (
    Pair(
        # The vocabulary of Llama 3, 4096 tokens.
        "cross_entropy bf16 4096x128256", program, inputs, reference, outputs=(2, 3),
        spread=2.0**-18,  # float32 throughout
        sizes={"M": 4096, "N": 128256}, small={"M": 5, "N": 300},
        small_tiles={"block": 128, "threads": 128},
        moved_bytes=lambda M, N: 2.0 * M * N + 12.0 * M, peer=peer,
    ),
)  # fmt: skip

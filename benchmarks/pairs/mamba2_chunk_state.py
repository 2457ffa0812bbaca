"""The states that each chunk of a Mamba-2 layer adds: decayed inputs times B."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.online_softmax import LOG2_E


def program(T, batch, chunks, L, H, P, N, block_L=64, stages=3, threads=128):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        B: T.Tensor((batch, chunks * L, N), dtype),
        X: T.Tensor((batch, chunks * L, H, P), dtype),
        dt: T.Tensor((batch, H, chunks, L), "float32"),
        decay: T.Tensor((batch, H, chunks, L), "float32"),  # running sums within a chunk, below 0
        states: T.Tensor((batch, chunks, H, P, N), "float32"),
    ):
        with T.Kernel(H, chunks, batch, threads=threads) as (bx, by, bz):
            X_s = T.alloc_shared((block_L, P), dtype)
            B_s = T.alloc_shared((block_L, N), dtype)
            X_scaled = T.alloc_shared((block_L, P), dtype)
            scale = T.alloc_fragment((block_L,), "float32")
            acc = T.alloc_fragment((P, N), "float32")
            last = decay[bz, bx, by, L - 1]
            T.clear(acc)
            for k in T.Pipelined(L // block_L, num_stages=stages):
                T.copy(X[bz, by * L + k * block_L : by * L + (k + 1) * block_L, bx, :], X_s)
                T.copy(B[bz, by * L + k * block_L : by * L + (k + 1) * block_L, :], B_s)
                for i in T.Parallel(block_L):
                    scale[i] = dt[bz, bx, by, k * block_L + i] * T.exp2(
                        (last - decay[bz, bx, by, k * block_L + i]) * LOG2_E
                    )
                for i, j in T.Parallel(block_L, P):
                    X_scaled[i, j] = X_s[i, j] * scale[i]
                T.gemm(X_scaled, B_s, acc, transpose_A=True)
            T.copy(acc, states[bz, by, bx, :, :])

    return main


def inputs(batch, chunks, L, H, P, N):
    B = random_normal(batch, chunks * L, N, dtype="bfloat16")
    X = random_normal(batch, chunks * L, H, P, dtype="bfloat16")
    dt = torch.rand(batch, H, chunks, L)
    decay = (-0.05 * torch.rand(batch, H, chunks, L)).cumsum(-1)
    return B, X, dt, decay, torch.empty(batch, chunks, H, P, N)


def reference(B, X, dt, decay, states, batch, chunks, L, H, P, N):
    out = torch.empty(states.shape, dtype=torch.float64, device=B.device)
    scale = (decay[..., -1:].double() - decay.double()).exp() * dt.double()
    for b in range(batch):
        for c in range(chunks):
            rows = slice(c * L, (c + 1) * L)
            scaled = X[b, rows].double() * scale[b, :, c].T[..., None]  # (L, H, P)
            out[b, c] = scaled.permute(1, 2, 0) @ B[b, rows].double()
    return (out,)


PAIRS = (
    Pair(
        # Mamba-2 2.7B: 80 heads of 64, 128 states, chunks of 256 tokens.
        "mamba2 chunk state bf16 8x16x256x80x64x128", program, inputs, reference, outputs=(4,),
        # The scaled inputs are rounded to bf16: one unit of each term, of random sign, and 8 times
        # that for the largest of many results.
        spread=2.0**-5,
        sizes={"batch": 8, "chunks": 16, "L": 256, "H": 80, "P": 64, "N": 128},
        small={"batch": 2, "chunks": 2, "L": 64, "H": 2, "P": 64, "N": 32},
        small_tiles={"block_L": 32, "stages": 2},
        flops=lambda batch, chunks, L, H, P, N: 2.0 * batch * chunks * L * H * P * N,
    ),
)  # fmt: skip

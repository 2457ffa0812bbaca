"""The outputs of a Mamba-2 layer: what the state before a chunk gives, and the chunk itself."""

import torch

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.online_softmax import LOG2_E


def program(T, batch, chunks, L, H, P, N, block=64, stages=2, threads=128):
    dtype = "bfloat16"

    @T.prim_func
    def main(
        CB: T.Tensor((batch, chunks, L, L), dtype),  # C B^T of each chunk, the same for all heads
        X: T.Tensor((batch, chunks * L, H, P), dtype),
        dt: T.Tensor((batch, H, chunks, L), "float32"),
        decay: T.Tensor((batch, H, chunks, L), "float32"),  # running sums within a chunk, below 0
        C: T.Tensor((batch, chunks * L, N), dtype),
        states: T.Tensor((batch, chunks, H, P, N), dtype),  # before each chunk
        skip: T.Tensor((H,), "float32"),
        Y: T.Tensor((batch, chunks * L, H, P), dtype),
    ):
        with T.Kernel(H, T.ceildiv(L, block), batch * chunks, threads=threads) as (bx, by, bz):
            C_s = T.alloc_shared((block, N), dtype)
            state_s = T.alloc_shared((P, N), dtype)
            CB_s = T.alloc_shared((block, block), dtype)
            X_s = T.alloc_shared((block, P), dtype)
            own_s = T.alloc_shared((block, P), dtype)
            weights = T.alloc_fragment((block, block), dtype)
            row_decay = T.alloc_fragment((block,), "float32")
            column_decay = T.alloc_shared((block,), "float32")
            column_dt = T.alloc_shared((block,), "float32")
            acc = T.alloc_fragment((block, P), "float32")
            b = bz // chunks
            c = bz % chunks
            row = c * L + by * block
            T.copy(C[b, row : row + block, :], C_s)
            T.copy(states[b, c, bx, :, :], state_s)
            T.copy(X[b, row : row + block, bx, :], own_s)
            T.copy(decay[b, bx, c, by * block : (by + 1) * block], row_decay)
            T.clear(acc)
            T.gemm(C_s, state_s, acc, transpose_B=True)
            for i, j in T.Parallel(block, P):
                acc[i, j] *= T.exp2(row_decay[i] * LOG2_E)
            for k in T.Pipelined(by + 1, num_stages=stages):
                T.copy(CB[b, c, by * block : (by + 1) * block, k * block : (k + 1) * block], CB_s)
                T.copy(X[b, c * L + k * block : c * L + (k + 1) * block, bx, :], X_s)
                T.copy(decay[b, bx, c, k * block : (k + 1) * block], column_decay)
                T.copy(dt[b, bx, c, k * block : (k + 1) * block], column_dt)
                for i, j in T.Parallel(block, block):
                    weights[i, j] = T.if_then_else(
                        by * block + i >= k * block + j,
                        CB_s[i, j]
                        * T.exp2((row_decay[i] - column_decay[j]) * LOG2_E)
                        * column_dt[j],
                        0,
                    )
                T.gemm(weights, X_s, acc)
            for i, j in T.Parallel(block, P):
                acc[i, j] += skip[bx] * own_s[i, j]
            T.copy(acc, Y[b, row : row + block, bx, :])

    return main


def inputs(batch, chunks, L, H, P, N):
    X = random_normal(batch, chunks * L, H, P, dtype="bfloat16")
    return (
        random_normal(batch, chunks, L, L, dtype="bfloat16"),
        X,
        torch.rand(batch, H, chunks, L),
        (-0.05 * torch.rand(batch, H, chunks, L)).cumsum(-1),
        random_normal(batch, chunks * L, N, dtype="bfloat16"),
        random_normal(batch, chunks, H, P, N, dtype="bfloat16"),
        torch.randn(H),
        torch.empty_like(X),
    )


def reference(CB, X, dt, decay, C, states, skip, Y, batch, chunks, L, **_):
    out = torch.empty(Y.shape, dtype=torch.float64, device=Y.device)
    for b in range(batch):
        for c in range(chunks):
            rows = slice(c * L, (c + 1) * L)
            gate = decay[b, :, c].double()  # (H, L)
            x = X[b, rows].double().transpose(0, 1)  # (H, L, P)
            old = C[b, rows].double() @ states[b, c].double().mT * gate.exp()[..., None]
            inner = (gate[:, :, None] - gate[:, None, :]).exp().tril()
            new = (CB[b, c].double() * inner * dt[b, :, c].double()[:, None, :]) @ x
            out[b, rows] = (old + new + skip.double()[:, None, None] * x).transpose(0, 1)
    return (out,)


PAIRS = (
    Pair(
        # Mamba-2 2.7B: 80 heads of 64, 128 states, chunks of 256 tokens.
        "mamba2 chunk scan bf16 8x16x256x80x64x128", program, inputs, reference, outputs=(7,),
        # The weights are rounded to bf16: one unit of each term, of random sign, and 8 times that
        # for the largest of many results.
        spread=2.0**-5,
        sizes={"batch": 8, "chunks": 16, "L": 256, "H": 80, "P": 64, "N": 128},
        small={"batch": 1, "chunks": 2, "L": 128, "H": 2, "P": 32, "N": 32},
        flops=lambda batch, chunks, L, H, P, N: 2.0 * batch * chunks * L * H * P * (N + L / 2),
    ),
)  # fmt: skip

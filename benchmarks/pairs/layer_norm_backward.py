"""LayerNorm backward in bf16: blocks sum their rows' weight gradients, a second launch the blocks."""

import torch
import torch.nn.functional as F

from benchmarks.pair import Pair, random_normal


def program(T, M, N, workers, block_N=128, threads=256):
    dtype = "bfloat16"
    rows = -(-M // workers)

    @T.prim_func
    def main(
        dY: T.Tensor((M, N), dtype),
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        mean: T.Tensor((M,), "float32"),
        rstd: T.Tensor((M,), "float32"),
        W_parts: T.Tensor((workers, N), "float32"),  # workspace
        bias_parts: T.Tensor((workers, N), "float32"),  # workspace
        dX: T.Tensor((M, N), dtype),
        dW: T.Tensor((N,), "float32"),
        dbias: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(workers, threads=threads) as bx:
            x = T.alloc_fragment((1, N), "float32")
            dy = T.alloc_fragment((1, N), "float32")
            terms = T.alloc_fragment((1, N), "float32")
            W_sum = T.alloc_fragment((1, N), "float32")
            bias_sum = T.alloc_fragment((1, N), "float32")
            first = T.alloc_fragment((1,), "float32")
            second = T.alloc_fragment((1,), "float32")
            T.clear(W_sum)
            T.clear(bias_sum)
            for r in T.serial(rows):
                row = bx * rows + r
                if row < M:
                    T.copy(X[row, 0], x)
                    T.copy(dY[row, 0], dy)
                    for i, j in T.Parallel(1, N):
                        x[i, j] = (x[i, j] - mean[row]) * rstd[row]
                    for i, j in T.Parallel(1, N):
                        W_sum[i, j] += dy[i, j] * x[i, j]
                        bias_sum[i, j] += dy[i, j]
                    for i, j in T.Parallel(1, N):
                        dy[i, j] *= W[j]
                    for i, j in T.Parallel(1, N):
                        terms[i, j] = dy[i, j] * x[i, j]
                    T.reduce_sum(dy, first, dim=1)
                    T.reduce_sum(terms, second, dim=1)
                    for i, j in T.Parallel(1, N):
                        dy[i, j] = (dy[i, j] - first[i] / N - x[i, j] * (second[i] / N)) * rstd[row]
                    T.copy(dy, dX[row, 0])
            T.copy(W_sum, W_parts[bx, 0])
            T.copy(bias_sum, bias_parts[bx, 0])
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            W_total = T.alloc_fragment((block_N,), "float32")
            bias_total = T.alloc_fragment((block_N,), "float32")
            T.clear(W_total)
            T.clear(bias_total)
            for w in T.serial(workers):
                for j in T.Parallel(block_N):
                    W_total[j] += W_parts[w, bx * block_N + j]
                    bias_total[j] += bias_parts[w, bx * block_N + j]
            T.copy(W_total, dW[bx * block_N])
            T.copy(bias_total, dbias[bx * block_N])

    return main


def inputs(M, N, workers):
    dY, X = (random_normal(M, N, dtype="bfloat16") for _ in range(2))
    W = random_normal(N, dtype="bfloat16")
    x = X.double()
    mean, rstd = x.mean(-1), (x.var(-1, unbiased=False) + 1e-5).rsqrt()
    parts = (torch.empty(workers, N) for _ in range(2))
    gradients = (torch.empty_like(X), torch.empty(N), torch.empty(N))
    return dY, X, W, mean.float(), rstd.float(), *parts, *gradients


def reference(dY, X, W, mean, rstd, *_, **__):
    x = (X.double() - mean.double()[:, None]) * rstd.double()[:, None]
    dy = dY.double()
    dx = dy * W.double()
    second = (dx * x).mean(-1, keepdim=True)
    dx = (dx - dx.mean(-1, keepdim=True) - x * second) * rstd.double()[:, None]
    return dx, (dy * x).sum(0), dy.sum(0)


def peer(dY, X, W, *_, N, **__):
    x, w = X.detach().requires_grad_(), W.detach().requires_grad_()
    bias = torch.zeros_like(W).requires_grad_()
    out = F.layer_norm(x, (N,), w, bias)
    return lambda: torch.autograd.grad(out, (x, w, bias), dY, retain_graph=True)


def _moved(M, N, workers):
    return 2.0 * 3 * M * N + 4.0 * 2 * 2 * workers * N


def _pair(name, M, N, **tiles):
    return Pair(
        name, program, inputs, reference, outputs=(7, 8, 9),
        spread=2.0**-14,  # float32 until the last rounding, sums over up to M rows
        sizes={"M": M, "N": N, "workers": 264}, small={"M": 10, "N": 200, "workers": 3},
        tiles=tiles, small_tiles={"threads": 128}, moved_bytes=_moved, peer=peer,
    )  # fmt: skip


PAIRS = (_pair("layer_norm backward bf16 16384x4096", 16384, 4096),)

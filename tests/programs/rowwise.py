"""Programs that walk rows: norms and their gradients, losses, scans, selections, counting, gathers, convolution."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.family_case import (
    U_SUM,
    UNIT,
    Bounded,
    FamilyCase,
    exact,
    product,
    randint,
    randn,
)

U32 = UNIT[torch.float32]


@tileops.jit
def layer_norm(X, W, bias, eps: float = 1e-5, rows: int = 4):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    W: T.Tensor((N,), "float32")
    bias: T.Tensor((N,), "float32")
    Y = T.empty((M, N), "float32")
    mean_out = T.empty((M,), "float32")
    rstd_out = T.empty((M,), "float32")
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x = T.alloc_fragment((rows, N), "float32")
        square = T.alloc_fragment((rows, N), "float32")
        mean = T.alloc_fragment((rows,), "float32")
        rstd = T.alloc_fragment((rows,), "float32")
        T.copy(X[bx * rows, 0], x)
        T.reduce_sum(x, mean, dim=1)
        for i in T.Parallel(rows):
            mean[i] /= N
        for i, j in T.Parallel(rows, N):
            x[i, j] -= mean[i]
            square[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(square, rstd, dim=1)
        for i in T.Parallel(rows):
            rstd[i] = T.rsqrt(rstd[i] / N + eps)
        for i, j in T.Parallel(rows, N):
            x[i, j] = x[i, j] * rstd[i] * W[j] + bias[j]
        T.copy(x, Y[bx * rows, 0])
        T.copy(mean, mean_out[bx * rows])
        T.copy(rstd, rstd_out[bx * rows])
    return Y, mean_out, rstd_out


@tileops.jit
def layer_norm_backward(dY, X, W, mean, rstd, dW, db, rows: int = 4):
    M, N = T.const("M, N")
    dY: T.Tensor((M, N), "float32")
    X: T.Tensor((M, N), "float32")
    W: T.Tensor((N,), "float32")
    mean: T.Tensor((M,), "float32")
    rstd: T.Tensor((M,), "float32")
    dW: T.Tensor((N,), "float32")
    db: T.Tensor((N,), "float32")
    dX = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        dy = T.alloc_fragment((rows, N), "float32")
        hat = T.alloc_fragment((rows, N), "float32")
        wdy = T.alloc_fragment((rows, N), "float32")
        term = T.alloc_fragment((rows, N), "float32")
        c1 = T.alloc_fragment((rows,), "float32")
        c2 = T.alloc_fragment((rows,), "float32")
        column = T.alloc_fragment((N,), "float32")
        T.copy(dY[bx * rows, 0], dy)
        T.copy(X[bx * rows, 0], hat)
        for i, j in T.Parallel(rows, N):
            hat[i, j] = (hat[i, j] - mean[bx * rows + i]) * rstd[bx * rows + i]
            wdy[i, j] = dy[i, j] * W[j]
            term[i, j] = wdy[i, j] * hat[i, j]
        T.reduce_sum(term, c1, dim=1)
        T.reduce_sum(wdy, c2, dim=1)
        for i, j in T.Parallel(rows, N):
            if bx * rows + i < M:
                dX[bx * rows + i, j] = (wdy[i, j] - (hat[i, j] * c1[i] + c2[i]) / N) * rstd[
                    bx * rows + i
                ]
        for i, j in T.Parallel(rows, N):
            term[i, j] = dy[i, j] * hat[i, j]
        T.reduce_sum(term, column, dim=0)
        for j in T.Parallel(N):
            T.atomic_add(dW[j], column[j])
        T.reduce_sum(dy, column, dim=0)
        T.atomic_add(db[0:N], column)
    return dX


@tileops.jit
def cross_entropy(X, target, block_N: int = 64):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    target: T.Tensor((M,), "int64")
    loss = T.empty((M,), "float32")
    with T.Kernel(M, threads=128) as bx:
        x = T.alloc_fragment((1, block_N), "float32")
        top = T.alloc_fragment((1,), "float32")
        before = T.alloc_fragment((1,), "float32")
        part = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.fill(top, -T.infinity("float32"))
        T.clear(total)
        for k in T.serial(T.ceildiv(N, block_N)):
            for i, j in T.Parallel(1, block_N):
                x[i, j] = T.if_then_else(
                    k * block_N + j < N, X[bx, k * block_N + j], -T.infinity("float32")
                )
            T.copy(top, before)
            T.reduce_max(x, top, dim=1, clear=False)
            for i, j in T.Parallel(1, block_N):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, part, dim=1)
            for i in T.Parallel(1):
                total[i] = total[i] * T.exp(before[i] - top[i]) + part[i]
        loss[bx] = T.log(total[0]) + top[0] - X[bx, target[bx]]
    return loss


@tileops.jit
def top_k(X, k: int = 3, rows: int = 8):
    """The ``k`` largest of each row by repeated maxima; the first index wins among equals."""
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    values = T.empty((M, k), "float32")
    indices = T.empty((M, k), "int32")
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x = T.alloc_fragment((rows, N), "float32")
        at = T.alloc_fragment((rows, N), "int32")
        most = T.alloc_fragment((rows,), "float32")
        where = T.alloc_fragment((rows,), "int32")
        T.copy(X[bx * rows, 0], x)
        for n in T.serial(k):
            T.reduce_max(x, most, dim=1, clear=True)
            for i, j in T.Parallel(rows, N):
                at[i, j] = T.if_then_else(x[i, j] == most[i], j, N)
            T.reduce_min(at, where, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = T.if_then_else(j == where[i], -T.infinity("float32"), x[i, j])
            for i in T.Parallel(rows):
                values[bx * rows + i, n] = most[i]
                indices[bx * rows + i, n] = where[i]
    return values, indices


@tileops.jit
def cumulative_sum(X, reverse: bool = False, rows: int = 4):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x = T.alloc_shared((rows, N), "float32")
        T.copy(X[bx * rows, 0], x)
        T.cumsum(x, dim=1, reverse=reverse)
        T.copy(x, Y[bx * rows, 0])
    return Y


@tileops.jit
def histogram(X, counts, block: int = 64):
    N, BINS = T.const("N, BINS")
    X: T.Tensor((N,), "int32")
    counts: T.Tensor((BINS,), "int32")
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            if bx * block + i < N:
                T.atomic_add(counts[X[bx * block + i]], 1)


@tileops.jit
def embedding(table, index, rows: int = 8):
    V, D, N = T.const("V, D, N")
    table: T.Tensor((V, D), "float16")
    index: T.Tensor((N,), "int64")
    out = T.empty((N, D), "float16")
    with T.Kernel(T.ceildiv(N, rows), threads=128) as bx:
        for i, j in T.Parallel(rows, D):
            if bx * rows + i < N:
                out[bx * rows + i, j] = table[index[bx * rows + i], j]
    return out


@tileops.jit
def embedding_backward(grad, index, d_table, rows: int = 8):
    V, D, N = T.const("V, D, N")
    grad: T.Tensor((N, D), "float32")
    index: T.Tensor((N,), "int64")
    d_table: T.Tensor((V, D), "float32")
    with T.Kernel(T.ceildiv(N, rows), threads=128) as bx:
        for i, j in T.Parallel(rows, D):
            if bx * rows + i < N:
                T.atomic_add(d_table[index[bx * rows + i], j], grad[bx * rows + i, j])


@tileops.jit
def rotary(X, cos, sin, rows: int = 8):
    S, H, D = T.const("S, H, D")
    X: T.Tensor((S, H, D), "float32")
    cos: T.Tensor((S, D // 2), "float32")
    sin: T.Tensor((S, D // 2), "float32")
    Y = T.empty((S, H, D), "float32")
    with T.Kernel(T.ceildiv(S, rows), H, threads=128) as (bx, by):
        for i, j in T.Parallel(rows, D // 2):
            s = bx * rows + i
            if s < S:
                a = X[s, by, j]
                b = X[s, by, j + D // 2]
                Y[s, by, j] = a * cos[s, j] - b * sin[s, j]
                Y[s, by, j + D // 2] = b * cos[s, j] + a * sin[s, j]
    return Y


@tileops.jit
def swiglu(X, block: int = 64):
    M, N2 = T.const("M, N2")
    X: T.Tensor((M, N2), "float32")
    Y = T.empty((M, N2 // 2), "float32")
    with T.Kernel(T.ceildiv(N2 // 2, block), M, threads=128) as (bx, by):
        for j in T.Parallel(block):
            if bx * block + j < N2 // 2:
                gate = X[by, bx * block + j]
                Y[by, bx * block + j] = gate * T.sigmoid(gate) * X[by, N2 // 2 + bx * block + j]
    return Y


@tileops.jit
def transpose(X, block: int = 32):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "bfloat16")
    Y = T.empty((N, M), "bfloat16")
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        tile = T.alloc_shared((block, block), "bfloat16")
        turned = T.alloc_shared((block, block), "bfloat16")
        T.copy(X[by * block, bx * block], tile)
        T.transpose(tile, turned)
        T.copy(turned, Y[bx * block, by * block])
    return Y


@tileops.jit
def add_broadcast(X, row, column, block: int = 32):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    row: T.Tensor((N,), "float32")
    column: T.Tensor((M, 1), "float32")
    Y = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        x = T.alloc_fragment((block, block), "float32")
        T.copy(X[by * block, bx * block], x)
        for i, j in T.Parallel(block, block):
            x[i, j] = (x[i, j] + row[bx * block + j]) * column[by * block + i, 0]
        T.copy(x, Y[by * block, bx * block])
    return Y


@tileops.jit
def convolution(X, W, stride: int = 1, pad: int = 1, dilation: int = 1, block: int = 32):
    """NHWC by HWCF as a matrix product whose left operand is gathered."""
    N, H, WD, C, KH, KW, F = T.const("N, H, WD, C, KH, KW, F")
    X: T.Tensor((N, H, WD, C), "float16")
    W: T.Tensor((KH, KW, C, F), "float16")
    OH = (H + 2 * pad - dilation * (KH - 1) - 1) // stride + 1
    OW = (WD + 2 * pad - dilation * (KW - 1) - 1) // stride + 1
    Y = T.empty((N, OH, OW, F), "float32")
    with T.Kernel(T.ceildiv(F, block), T.ceildiv(N * OH * OW, block), threads=128) as (bx, by):
        X_s = T.alloc_shared((block, block), "float16")
        W_s = T.alloc_shared((block, block), "float16")
        acc = T.alloc_fragment((block, block), "float32")
        weights = T.reshape(W, (KH * KW * C, F))
        out = T.reshape(Y, (N * OH * OW, F))
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(KH * KW * C, block), num_stages=2):
            T.im2col(X, X_s, by, k, KH, stride, dilation, pad)
            T.copy(weights[k * block, bx * block], W_s)
            T.gemm(X_s, W_s, acc)
        T.copy(acc, out[by * block, bx * block])
    return Y


def _layer_norm_reference(x, w, b) -> list[Bounded]:
    x, w, b = x.double(), w.double(), b.double()
    n = x.shape[1]
    mean = x.mean(1)
    rstd = (x.var(1, unbiased=False) + 1e-5).rsqrt()
    hat = (x - mean[:, None]) * rstd[:, None]
    mean_error = (n + 4) * U_SUM * x.abs().mean(1)
    relative = (n + 8) * U_SUM / 2 + 2 * mean_error * rstd
    value = hat * w + b
    bound = (hat.abs() * relative[:, None] + (mean_error * rstd)[:, None]) * w.abs()
    bound = bound + 8 * U32 * (hat.abs() * w.abs() + b.abs())
    return [(value, bound), (mean, mean_error), (rstd, rstd * relative)]


def _backward_inputs() -> tuple[torch.Tensor, ...]:
    x = torch.randn(11, 50)
    rstd = (x.var(1, unbiased=False) + 1e-5).rsqrt()
    return (
        torch.randn(11, 50),
        x,
        torch.randn(50),
        x.mean(1),
        rstd,
        torch.zeros(50),
        torch.zeros(50),
    )


def _backward_reference(dy, x, w, mean, rstd, dw, db) -> list[Bounded]:
    dy, x, w, mean, rstd = (t.double() for t in (dy, x, w, mean, rstd))
    hat = (x - mean[:, None]) * rstd[:, None]
    size = (x.abs() + mean.abs()[:, None]) * rstd[:, None]
    wdy, n = dy * w, x.shape[1]
    c1, c2 = (wdy * hat).mean(1, keepdim=True), wdy.mean(1, keepdim=True)
    s1, s2 = (wdy.abs() * size).mean(1, keepdim=True), wdy.abs().mean(1, keepdim=True)
    whole = (wdy.abs() + size * s1 + s2) * rstd[:, None]
    columns = (x.shape[0] + 8) * U_SUM
    return [
        ((wdy - hat * c1 - c2) * rstd[:, None], (n + 12) * U_SUM * whole),
        ((dy * hat).sum(0), columns * (dy.abs() * size).sum(0)),
        (dy.sum(0), columns * dy.abs().sum(0)),
    ]


def _loss_reference(x, target) -> list[Bounded]:
    x = x.double()
    value = x.logsumexp(1) - x.gather(1, target[:, None])[:, 0]
    reach = x.abs().amax(1) + 4
    return [(value, (x.shape[1] + 8) * U_SUM + 16 * U32 * reach)]


def _top_k_reference(x) -> list[Bounded]:
    values, order = x.double().sort(dim=1, descending=True, stable=True)
    return [exact(values[:, :3]), exact(order[:, :3])]


def _sum_reference(reverse: bool):
    def reference(x) -> list[Bounded]:
        turn = (lambda t: t.flip(1)) if reverse else (lambda t: t)
        scan = [turn(turn(t).cumsum(1)) for t in (x.double(), x.double().abs())]
        return [(scan[0], (x.shape[1] + 2) * U_SUM * scan[1])]

    return reference


def _embedding_grad(grad, index, d_table) -> list[Bounded]:
    parts = [
        torch.zeros(d_table.shape, dtype=torch.float64).index_add_(0, index, t)
        for t in (grad.double(), grad.double().abs())
    ]
    return [(parts[0], (len(index) + 2) * U_SUM * parts[1])]


def _rotary_reference(x, cos, sin) -> list[Bounded]:
    a, b = x.double().chunk(2, -1)
    c, s = cos.double()[:, None], sin.double()[:, None]
    size = (a * c).abs() + (b * s).abs(), (b * c).abs() + (a * s).abs()
    return [(torch.cat([a * c - b * s, b * c + a * s], -1), 3 * U32 * torch.cat(size, -1))]


def _swiglu_reference(x) -> list[Bounded]:
    gate, up = x.double().chunk(2, -1)
    value = gate * gate.sigmoid() * up
    return [(value, value.abs() * (16 + 4 * gate.abs()) * U32 + 1e-37)]


def _broadcast_reference(x, row, column) -> list[Bounded]:
    value = (x.double() + row.double()) * column.double()
    return [(value, 3 * U32 * value.abs())]


def _convolution_reference(stride: int, pad: int, dilation: int):
    def reference(x, w) -> list[Bounded]:
        n, h, width, _ = x.shape
        k = w.shape[0]
        left = torch.nn.functional.unfold(
            x.double().permute(0, 3, 1, 2), k, dilation, pad, stride
        ).transpose(1, 2)
        right = w.double().permute(2, 0, 1, 3).reshape(-1, w.shape[-1])
        oh, ow = ((t + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for t in (h, width))
        return [tuple(t.reshape(n, oh, ow, -1) for t in product(left, right))]

    return reference


def _norm_cases() -> Iterator[FamilyCase]:
    yield FamilyCase(
        "layer_norm",
        layer_norm,
        lambda: (torch.randn(11, 50) + 1, torch.randn(50), torch.randn(50)),
        _layer_norm_reference,
    )
    yield FamilyCase(
        "layer_norm_backward",
        layer_norm_backward,
        _backward_inputs,
        _backward_reference,
        mutated=(5, 6),
    )
    yield FamilyCase(
        "cross_entropy",
        cross_entropy,
        lambda: (torch.randn(7, 150) * 4, torch.randint(0, 150, (7,))),
        _loss_reference,
    )
    yield FamilyCase(
        "top_k", top_k, lambda: (torch.randint(-20, 20, (11, 45)).float(),), _top_k_reference
    )
    for reverse in (False, True):
        yield FamilyCase(
            f"cumulative_sum{'-reverse' if reverse else ''}",
            cumulative_sum,
            lambda: (torch.randn(7, 77),),
            _sum_reference(reverse),
            {"reverse": reverse},
        )


def _index_cases() -> Iterator[FamilyCase]:
    yield FamilyCase(
        "histogram",
        histogram,
        lambda: (randint(0, 13, (300,), torch.int32), torch.zeros(13, dtype=torch.int32)),
        lambda x, counts: [exact(torch.bincount(x, minlength=13))],
        mutated=(1,),
    )
    yield FamilyCase(
        "embedding",
        embedding,
        lambda: (randn(20, 40, dtype=torch.float16), torch.randint(0, 20, (13,))),
        lambda table, index: [exact(table[index])],
    )
    yield FamilyCase(
        "embedding_backward",
        embedding_backward,
        lambda: (torch.randn(29, 40), torch.randint(0, 9, (29,)), torch.zeros(9, 40)),
        _embedding_grad,
        mutated=(2,),
    )
    yield FamilyCase(
        "transpose",
        transpose,
        lambda: (randn(45, 70, dtype=torch.bfloat16),),
        lambda x: [exact(x.T)],
    )
    for stride, pad, dilation in ((1, 1, 1), (2, 0, 1), (1, 2, 2)):
        yield FamilyCase(
            f"convolution-s{stride}p{pad}d{dilation}",
            convolution,
            lambda: (randn(2, 9, 7, 8, dtype=torch.float16), randn(3, 3, 8, 24).half()),
            _convolution_reference(stride, pad, dilation),
            {"stride": stride, "pad": pad, "dilation": dilation},
        )


def _element_cases() -> Iterator[FamilyCase]:
    yield FamilyCase(
        "rotary",
        rotary,
        lambda: (torch.randn(13, 3, 32), torch.randn(13, 16).cos(), torch.randn(13, 16).sin()),
        _rotary_reference,
    )
    yield FamilyCase("swiglu", swiglu, lambda: (torch.randn(5, 200) * 4,), _swiglu_reference)
    yield FamilyCase(
        "add_broadcast",
        add_broadcast,
        lambda: (torch.randn(45, 70), torch.randn(70), torch.randn(45, 1)),
        _broadcast_reference,
    )


CASES = (*_norm_cases(), *_index_cases(), *_element_cases())

"""The programs of the gradients of RMSNorm and LayerNorm.

``workers`` blocks share the rows. Each sums the gradients of weight and bias over its rows. A
second launch adds the sums of the workers in their order, so that equal calls give equal bits.
"""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.arguments import is_one_of
from tileops.ops.programs.norms import (
    LLAMA,
    ROUNDINGS,
    TORCH,
    W_DTYPE,
    X_DTYPE,
    row_statistics,
    standardise,
)
from tileops.ops.programs.rows import PART, accumulator, is_read_in_parts, row_tile

COLUMNS = 32  # of the sums of the workers, in one block
# A row of at most this many elements stays in registers, with its gradient and two sums.
WIDEST_GRADIENT = 8192


# -- rows in registers -------------------------------------------------------------------------
@T.macro
def add_to_sums(x, dy, W_sum, B_sum, rounding, dtype):
    """Add the gradients that a tile of standardised rows ``x`` gives weight and bias."""
    rows, columns = x.shape
    if W_sum is not None:
        for i, j in T.Parallel(rows, columns):
            if rounding == LLAMA:
                W_sum[i, j] += dy[i, j] * T.cast(T.cast(x[i, j], dtype), x.dtype)
            else:
                W_sum[i, j] += dy[i, j] * x[i, j]
    if B_sum is not None:
        for i, j in T.Parallel(rows, columns):
            B_sum[i, j] += dy[i, j]


@T.macro
def weigh_gradient(dy, W, first, offset):
    """Multiply ``dy``, columns from ``first`` on, by ``W`` + ``offset``."""
    rows, columns = dy.shape
    if W is not None:
        for i, j in T.Parallel(rows, columns):
            dy[i, j] = dy[i, j] * (T.cast(W[first + j], dy.dtype) + T.cast(offset, dy.dtype))


@T.macro
def add_sum_gradient(dx, dS, row, first):
    """Add the gradient of the sum with the residual, if there is one, to a tile of ``dx``."""
    rows, columns = dx.shape
    if dS is not None:
        for i, j in T.Parallel(rows, columns):
            dx[i, j] = dx[i, j] + T.cast(dS[row + i, first + j], dx.dtype)


@T.macro
def gradients_of_rows(dY, X, W, dS, dX, W_sum, B_sum, row, rows, eps, offset, rounding, centred):
    """The gradients of ``rows`` whole rows from ``row`` on."""
    columns = X.shape[1]
    x = T.alloc_fragment((rows, columns), accumulator(X.dtype))
    dy = T.alloc_fragment((rows, columns), x.dtype)
    terms = T.alloc_fragment((rows, columns), x.dtype)
    scale = T.alloc_fragment((rows,), x.dtype)
    mean = T.alloc_fragment((rows,), x.dtype)
    product = T.alloc_fragment((rows,), x.dtype)
    T.copy(X[row, 0], x)
    T.copy(dY[row, 0], dy)
    standardise(x, scale, eps, centred)
    add_to_sums(x, dy, W_sum, B_sum, rounding, X.dtype)
    weigh_gradient(dy, W, 0, offset)
    for i, j in T.Parallel(rows, columns):
        terms[i, j] = dy[i, j] * x[i, j]
    T.reduce_sum(terms, product, dim=1)
    if centred:
        T.reduce_sum(dy, mean, dim=1)
        for i, j in T.Parallel(rows, columns):
            dy[i, j] = dy[i, j] - mean[i] / columns
    for i, j in T.Parallel(rows, columns):
        dy[i, j] = (dy[i, j] - x[i, j] * (product[i] / columns)) * scale[i]
    add_sum_gradient(dy, dS, row, 0)
    T.copy(dy, dX[row, 0])


@T.macro
def write_sums(sums, parts, worker, first):
    """Write a worker's sums over its rows, if there are any, from column ``first`` on."""
    if sums is not None:
        totals = T.alloc_fragment((sums.shape[1],), sums.dtype)
        T.reduce_sum(sums, totals, dim=0)
        T.copy(totals, parts[worker, first])


@T.macro
def share_of_rows(
    dY, X, W, dS, dX, W_parts, B_parts, worker, workers, rows, eps, offset, rounding, centred
):
    """The gradients of a worker's rows, tile after tile."""
    columns, acc = X.shape[1], accumulator(X.dtype)
    W_sum = T.alloc_fragment((rows, columns), acc) if W_parts is not None else None
    B_sum = T.alloc_fragment((rows, columns), acc) if B_parts is not None else None
    if W_sum is not None:
        T.clear(W_sum)
    if B_sum is not None:
        T.clear(B_sum)
    tiles = T.ceildiv(T.ceildiv(X.shape[0], rows), workers)
    for tile in T.serial(tiles):
        row = (worker * tiles + tile) * rows
        if row < X.shape[0]:
            gradients_of_rows(
                dY, X, W, dS, dX, W_sum, B_sum, row, rows, eps, offset, rounding, centred
            )
    write_sums(W_sum, W_parts, worker, 0)
    write_sums(B_sum, B_parts, worker, 0)


# -- rows in parts -----------------------------------------------------------------------------
@T.macro
def facts_of_wide_row(dY, X, W, facts, row, eps, offset, centred):
    """Write what a gradient needs of its whole row: mean, scale, mean product, mean of dY."""
    columns = X.shape[1]
    x = T.alloc_fragment((1, PART), facts.dtype)
    dy = T.alloc_fragment((1, PART), facts.dtype)
    products = T.alloc_fragment((1, PART), facts.dtype)
    dy_sums = T.alloc_fragment((1, PART), facts.dtype)
    mean = T.alloc_fragment((1,), facts.dtype)
    scale = T.alloc_fragment((1,), facts.dtype)
    product = T.alloc_fragment((1,), facts.dtype)
    dy_sum = T.alloc_fragment((1,), facts.dtype)
    row_statistics(X, row, mean, scale, eps, centred)
    T.clear(products)
    T.clear(dy_sums)
    for part in T.serial(T.ceildiv(columns, PART)):
        T.copy(X[row, part * PART], x)
        T.copy(dY[row, part * PART], dy)  # 0 past the end of the row
        weigh_gradient(dy, W, part * PART, offset)
        for i, j in T.Parallel(1, PART):
            products[i, j] += dy[i, j] * (x[i, j] - mean[i]) * scale[i]
            dy_sums[i, j] += dy[i, j]
    T.reduce_sum(products, product, dim=1)
    T.reduce_sum(dy_sums, dy_sum, dim=1)
    for i in T.Parallel(1):
        facts[row + i, 0] = mean[i]
        facts[row + i, 1] = scale[i]
        facts[row + i, 2] = product[i] / columns
        facts[row + i, 3] = dy_sum[i] / columns if centred else T.cast(0, facts.dtype)


@T.macro
def share_of_part(
    dY, X, W, dS, dX, facts, W_parts, B_parts, worker, workers, first, offset, rounding
):
    """The gradients of the columns from ``first`` on of a worker's rows."""
    acc = facts.dtype
    x = T.alloc_fragment((1, PART), acc)
    dy = T.alloc_fragment((1, PART), acc)
    W_sum = T.alloc_fragment((1, PART), acc) if W_parts is not None else None
    B_sum = T.alloc_fragment((1, PART), acc) if B_parts is not None else None
    if W_sum is not None:
        T.clear(W_sum)
    if B_sum is not None:
        T.clear(B_sum)
    rows = T.ceildiv(X.shape[0], workers)
    for r in T.serial(rows):
        row = worker * rows + r
        if row < X.shape[0]:
            T.copy(X[row, first], x)
            T.copy(dY[row, first], dy)
            for i, j in T.Parallel(1, PART):
                x[i, j] = (x[i, j] - facts[row, 0]) * facts[row, 1]
            add_to_sums(x, dy, W_sum, B_sum, rounding, X.dtype)
            weigh_gradient(dy, W, first, offset)
            for i, j in T.Parallel(1, PART):
                dy[i, j] = (dy[i, j] - facts[row, 3] - x[i, j] * facts[row, 2]) * facts[row, 1]
            add_sum_gradient(dy, dS, row, first)
            T.copy(dy, dX[row, first])
    write_sums(W_sum, W_parts, worker, first)
    write_sums(B_sum, B_parts, worker, first)


# -- the sums of the workers -------------------------------------------------------------------
@T.macro
def add_workers(parts, result, block):
    """Add the sums of all workers for the columns of a block."""
    workers = parts.shape[0]
    sums = T.alloc_fragment((32, COLUMNS), parts.dtype)
    totals = T.alloc_fragment((COLUMNS,), parts.dtype)
    T.clear(sums)
    for k in T.serial(T.ceildiv(workers, 32)):
        for i, j in T.Parallel(32, COLUMNS):
            if k * 32 + i < workers:
                sums[i, j] += parts[k * 32 + i, block * COLUMNS + j]
    T.reduce_sum(sums, totals, dim=0)
    T.copy(totals, result[block * COLUMNS])


# -- backward ----------------------------------------------------------------------------------
@jit(name=f"{NAMESPACE}::rms_norm_backward", contiguous="copy")
def rms_norm_backward(
    dY, X, W=None, dS=None, eps: T.float64 = 1e-6, offset: T.float64 = 0.0,
    rounding: str = TORCH, weight_gradient: bool = True, workers: int = 16,
):  # fmt: skip
    N = T.const("N")
    dY: T.Tensor((..., N), X_DTYPE)
    X: T.Tensor((..., N), X_DTYPE)
    W: T.Tensor((N,), W_DTYPE)
    dS: T.Tensor((..., N), X_DTYPE)
    is_one_of("rms_norm_backward", "rounding", rounding, ROUNDINGS)
    M, acc = X.shape[0], accumulator(X.dtype)
    has_weight = W is not None and weight_gradient
    dX = T.empty((..., N), X_DTYPE)
    dW = T.empty((N if has_weight else 0,), W.dtype if has_weight else X_DTYPE)
    W_parts = T.alloc_global((workers, N), acc) if has_weight else None
    if is_read_in_parts(N, WIDEST_GRADIENT):
        facts = T.alloc_global((M, 4), acc)
        with T.Kernel(M, threads=256) as row:
            facts_of_wide_row(dY, X, W, facts, row, eps, offset, False)
        with T.Kernel(T.ceildiv(N, PART), workers, threads=256) as (part, worker):
            share_of_part(
                dY,
                X,
                W,
                dS,
                dX,
                facts,
                W_parts,
                None,
                worker,
                workers,
                part * PART,
                offset,
                rounding,
            )
    else:
        rows, threads = row_tile(N)
        with T.Kernel(workers, threads=threads) as worker:
            share_of_rows(
                dY, X, W, dS, dX, W_parts, None, worker, workers, rows, eps, offset, rounding, False
            )
    if has_weight:
        with T.Kernel(T.ceildiv(N, COLUMNS), threads=128) as block:
            add_workers(W_parts, dW, block)
    return dX, dW


@jit(name=f"{NAMESPACE}::layer_norm_backward", contiguous="copy")
def layer_norm_backward(
    dY, X, W=None, B=None, dS=None, eps: T.float64 = 1e-5,
    weight_gradient: bool = True, bias_gradient: bool = True, workers: int = 16,
):  # fmt: skip
    N = T.const("N")
    dY: T.Tensor((..., N), X_DTYPE)
    X: T.Tensor((..., N), X_DTYPE)
    W: T.Tensor((N,), W_DTYPE)
    B: T.Tensor((N,), W_DTYPE)  # gives its dtype to its gradient
    dS: T.Tensor((..., N), X_DTYPE)
    M, acc = X.shape[0], accumulator(X.dtype)
    has_weight = W is not None and weight_gradient
    has_bias = B is not None and bias_gradient
    dX = T.empty((..., N), X_DTYPE)
    dW = T.empty((N if has_weight else 0,), W.dtype if has_weight else X_DTYPE)
    dB = T.empty((N if has_bias else 0,), B.dtype if has_bias else X_DTYPE)
    W_parts = T.alloc_global((workers, N), acc) if has_weight else None
    B_parts = T.alloc_global((workers, N), acc) if has_bias else None
    if is_read_in_parts(N, WIDEST_GRADIENT):
        facts = T.alloc_global((M, 4), acc)
        with T.Kernel(M, threads=256) as row:
            facts_of_wide_row(dY, X, W, facts, row, eps, 0.0, True)
        with T.Kernel(T.ceildiv(N, PART), workers, threads=256) as (part, worker):
            share_of_part(
                dY, X, W, dS, dX, facts, W_parts, B_parts, worker, workers, part * PART, 0.0, TORCH
            )
    else:
        rows, threads = row_tile(N)
        with T.Kernel(workers, threads=threads) as worker:
            share_of_rows(
                dY, X, W, dS, dX, W_parts, B_parts, worker, workers, rows, eps, 0.0, TORCH, True
            )
    if has_weight:
        with T.Kernel(T.ceildiv(N, COLUMNS), threads=128) as block:
            add_workers(W_parts, dW, block)
    if has_bias:
        with T.Kernel(T.ceildiv(N, COLUMNS), threads=128) as block:
            add_workers(B_parts, dB, block)
    return dX, dW, dB

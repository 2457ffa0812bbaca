"""The programs behind RMSNorm and LayerNorm: rows that stay in registers, and wider ones in parts.

A row is read once and nothing but the result is written: the backward programs compute the mean and
the scale of a row again from the row, which they hold anyway.
"""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.arguments import is_one_of
from tileops.ops.programs.rows import DTYPES, PART, accumulator, is_read_in_parts, row_tile

X_DTYPE = T.DTypeVar("X_dtype", *DTYPES)
W_DTYPE = T.DTypeVar("W_dtype", *DTYPES)
# Roundings: of the result; also of a row before its weight.
ROUNDINGS = TORCH, LLAMA = "torch", "llama"


# -- rows in registers -------------------------------------------------------------------------
@T.macro
def standardise(x, scale, eps, centred):
    """Subtract their means from rows of ``x`` if ``centred``; multiply them by their ``scale``."""
    rows, columns = x.shape
    terms = T.alloc_fragment((rows, columns), x.dtype)
    if centred:
        T.reduce_sum(x, scale, dim=1)
        for i, j in T.Parallel(rows, columns):
            x[i, j] = x[i, j] - scale[i] / columns
    for i, j in T.Parallel(rows, columns):
        terms[i, j] = x[i, j] * x[i, j]
    T.reduce_sum(terms, scale, dim=1)
    for i in T.Parallel(rows):
        scale[i] = T.rsqrt(scale[i] / columns + T.cast(eps, x.dtype))
    for i, j in T.Parallel(rows, columns):
        x[i, j] = x[i, j] * scale[i]


@T.macro
def weigh(x, W, B, first, offset, rounding, dtype):
    """Multiply ``x``, columns from ``first`` on, by ``W`` + ``offset``, and add ``B``."""
    rows, columns = x.shape
    if rounding == LLAMA:
        for i, j in T.Parallel(rows, columns):
            x[i, j] = T.cast(T.cast(x[i, j], dtype), x.dtype)
    if W is not None:
        for i, j in T.Parallel(rows, columns):
            x[i, j] = x[i, j] * (T.cast(W[first + j], x.dtype) + T.cast(offset, x.dtype))
    if B is not None:
        for i, j in T.Parallel(rows, columns):
            x[i, j] = x[i, j] + T.cast(B[first + j], x.dtype)


@T.macro
def add_residual(x, X, R, S, row, first):
    """Load a tile of ``X``; with a residual ``R``, add it and write the rounded sum to ``S``."""
    rows, columns = x.shape
    T.copy(X[row, first], x)
    if R is not None:
        for i, j in T.Parallel(rows, columns):
            x[i, j] = T.cast(
                T.cast(x[i, j] + T.cast(R[row + i, first + j], x.dtype), X.dtype), x.dtype
            )
        T.copy(x, S[row, first])


@T.macro
def norm_of_rows(X, R, S, W, B, Y, row, rows, eps, offset, rounding, centred):
    """Norm of ``rows`` whole rows from ``row`` on."""
    x = T.alloc_fragment((rows, X.shape[1]), accumulator(X.dtype))
    scale = T.alloc_fragment((rows,), x.dtype)
    add_residual(x, X, R, S, row, 0)
    standardise(x, scale, eps, centred)
    weigh(x, W, B, 0, offset, rounding, X.dtype)
    T.copy(x, Y[row, 0])


# -- rows in parts -----------------------------------------------------------------------------
@T.macro
def row_statistics(X, row, mean, scale, eps, centred):
    """The mean (0 unless ``centred``) and the scale of one row, in ``mean[0]`` and ``scale[0]``."""
    columns = X.shape[1]
    x = T.alloc_fragment((1, PART), scale.dtype)
    total = T.alloc_fragment((1, PART), scale.dtype)
    T.clear(mean)
    if centred:
        T.clear(total)
        for part in T.serial(T.ceildiv(columns, PART)):
            T.copy(X[row, part * PART], x)
            for i, j in T.Parallel(1, PART):
                total[i, j] += x[i, j]
        T.reduce_sum(total, mean, dim=1)
        for i in T.Parallel(1):
            mean[i] = mean[i] / columns
    T.clear(total)
    for part in T.serial(T.ceildiv(columns, PART)):
        for i, j in T.Parallel(1, PART):
            x[i, j] = 0
            if part * PART + j < columns:
                x[i, j] = T.cast(X[row, part * PART + j], x.dtype) - mean[i]
        for i, j in T.Parallel(1, PART):
            total[i, j] += x[i, j] * x[i, j]
    T.reduce_sum(total, scale, dim=1)
    for i in T.Parallel(1):
        scale[i] = T.rsqrt(scale[i] / columns + T.cast(eps, scale.dtype))


@T.macro
def norm_of_wide_row(X, R, S, W, B, Y, row, eps, offset, rounding, centred):
    """Norm of one row that is read in parts, three times if ``centred``, else twice."""
    x = T.alloc_fragment((1, PART), accumulator(X.dtype))
    mean = T.alloc_fragment((1,), x.dtype)
    scale = T.alloc_fragment((1,), x.dtype)
    source = X
    if R is not None:
        for part in T.serial(T.ceildiv(X.shape[1], PART)):
            add_residual(x, X, R, S, row, part * PART)
        source = S
    row_statistics(source, row, mean, scale, eps, centred)
    for part in T.serial(T.ceildiv(X.shape[1], PART)):
        T.copy(source[row, part * PART], x)
        for i, j in T.Parallel(1, PART):
            x[i, j] = (x[i, j] - mean[i]) * scale[i]
        weigh(x, W, B, part * PART, offset, rounding, X.dtype)
        T.copy(x, Y[row, part * PART])


# -- forward -----------------------------------------------------------------------------------
@jit(name=f"{NAMESPACE}::rms_norm", contiguous="copy")
def rms_norm(X, W=None, eps: T.float64 = 1e-6, offset: T.float64 = 0.0, rounding: str = TORCH):
    N = T.const("N")
    X: T.Tensor((..., N), X_DTYPE)
    W: T.Tensor((N,), W_DTYPE)
    is_one_of("rms_norm", "rounding", rounding, ROUNDINGS)
    Y = T.empty((..., N), X_DTYPE)
    rows, threads = row_tile(N)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=threads) as block:
        if is_read_in_parts(N):
            norm_of_wide_row(X, None, None, W, None, Y, block, eps, offset, rounding, False)
        else:
            norm_of_rows(
                X, None, None, W, None, Y, block * rows, rows, eps, offset, rounding, False
            )
    return Y


@jit(name=f"{NAMESPACE}::add_rms_norm", contiguous="copy")
def add_rms_norm(
    X, R, W=None, eps: T.float64 = 1e-6, offset: T.float64 = 0.0, rounding: str = TORCH
):
    N = T.const("N")
    X: T.Tensor((..., N), X_DTYPE)
    R: T.Tensor((..., N), X_DTYPE)
    W: T.Tensor((N,), W_DTYPE)
    is_one_of("add_rms_norm", "rounding", rounding, ROUNDINGS)
    Y = T.empty((..., N), X_DTYPE)
    S = T.empty((..., N), X_DTYPE)
    rows, threads = row_tile(N)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=threads) as block:
        if is_read_in_parts(N):
            norm_of_wide_row(X, R, S, W, None, Y, block, eps, offset, rounding, False)
        else:
            norm_of_rows(X, R, S, W, None, Y, block * rows, rows, eps, offset, rounding, False)
    return Y, S


@jit(name=f"{NAMESPACE}::layer_norm", contiguous="copy")
def layer_norm(X, W=None, B=None, eps: T.float64 = 1e-5):
    N = T.const("N")
    X: T.Tensor((..., N), X_DTYPE)
    W: T.Tensor((N,), W_DTYPE)
    B: T.Tensor((N,), W_DTYPE)
    Y = T.empty((..., N), X_DTYPE)
    rows, threads = row_tile(N)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=threads) as block:
        if is_read_in_parts(N):
            norm_of_wide_row(X, None, None, W, B, Y, block, eps, 0.0, TORCH, True)
        else:
            norm_of_rows(X, None, None, W, B, Y, block * rows, rows, eps, 0.0, TORCH, True)
    return Y


@jit(name=f"{NAMESPACE}::add_layer_norm", contiguous="copy")
def add_layer_norm(X, R, W=None, B=None, eps: T.float64 = 1e-5):
    N = T.const("N")
    X: T.Tensor((..., N), X_DTYPE)
    R: T.Tensor((..., N), X_DTYPE)
    W: T.Tensor((N,), W_DTYPE)
    B: T.Tensor((N,), W_DTYPE)
    Y = T.empty((..., N), X_DTYPE)
    S = T.empty((..., N), X_DTYPE)
    rows, threads = row_tile(N)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=threads) as block:
        if is_read_in_parts(N):
            norm_of_wide_row(X, R, S, W, B, Y, block, eps, 0.0, TORCH, True)
        else:
            norm_of_rows(X, R, S, W, B, Y, block * rows, rows, eps, 0.0, TORCH, True)
    return Y, S

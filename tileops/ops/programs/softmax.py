"""The programs behind softmax: rows that stay in registers, and wider ones in parts."""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.programs.rows import DTYPES, PART, accumulator, is_read_in_parts, row_tile

DTYPE = T.DTypeVar("dtype", *DTYPES)


# -- rows in registers -------------------------------------------------------------------------
@T.macro
def softmax_of_rows(X, Y, row, rows):
    """Softmax of whole rows from ``row`` on."""
    columns = X.shape[1]
    x = T.alloc_fragment((rows, columns), accumulator(X.dtype))
    top = T.alloc_fragment((rows,), x.dtype)
    total = T.alloc_fragment((rows,), x.dtype)
    T.copy(X[row, 0], x)
    T.reduce_max(x, top, dim=1)
    for i, j in T.Parallel(rows, columns):
        x[i, j] = T.exp(x[i, j] - top[i])
    T.reduce_sum(x, total, dim=1)
    for i, j in T.Parallel(rows, columns):
        x[i, j] = x[i, j] / total[i]
    T.copy(x, Y[row, 0])


@T.macro
def gradients_of_rows(dY, Y, dX, row, rows):
    """The gradients of whole rows from ``row`` on, from the results."""
    columns = Y.shape[1]
    y = T.alloc_fragment((rows, columns), accumulator(Y.dtype))
    dy = T.alloc_fragment((rows, columns), y.dtype)
    product = T.alloc_fragment((rows,), y.dtype)
    T.copy(Y[row, 0], y)
    T.copy(dY[row, 0], dy)
    for i, j in T.Parallel(rows, columns):
        dy[i, j] = dy[i, j] * y[i, j]
    T.reduce_sum(dy, product, dim=1)
    for i, j in T.Parallel(rows, columns):
        dy[i, j] = dy[i, j] - product[i] * y[i, j]
    T.copy(dy, dX[row, 0])


# -- rows in parts -----------------------------------------------------------------------------
@T.macro
def load_part(X, x, row, first):
    """Load columns from ``first`` on of a row of logits; those past its end are -inf."""
    for i, j in T.Parallel(1, PART):
        x[i, j] = -T.infinity(x.dtype)
        if first + j < X.shape[1]:
            x[i, j] = T.cast(X[row + i, first + j], x.dtype)


@T.macro
def add_part(x, top, total):
    """Take a part of a row into its largest logit so far and its sum of exponentials.

    ``top`` begins with -inf and ``total`` with 0. A row of -inf alone ends with the sum 0; NaN and
    +inf make the sum NaN.
    """
    before = T.alloc_fragment((1,), x.dtype)
    shift = T.alloc_fragment((1,), x.dtype)
    part = T.alloc_fragment((1,), x.dtype)
    T.copy(top, before)
    T.reduce_max(x, top, dim=1, clear=False)
    for i in T.Parallel(1):
        shift[i] = T.if_then_else(top[i] == -T.infinity(x.dtype), 0, top[i])
    for i, j in T.Parallel(1, PART):
        x[i, j] = T.exp(x[i, j] - shift[i])
    T.reduce_sum(x, part, dim=1)
    for i in T.Parallel(1):
        total[i] = total[i] * T.exp(before[i] - shift[i]) + part[i]


@T.macro
def softmax_of_wide_row(X, Y, row):
    """Softmax of one row that is read twice."""
    x = T.alloc_fragment((1, PART), accumulator(X.dtype))
    top = T.alloc_fragment((1,), x.dtype)
    total = T.alloc_fragment((1,), x.dtype)
    T.fill(top, -T.infinity(x.dtype))
    T.clear(total)
    for part in T.serial(T.ceildiv(X.shape[1], PART)):
        load_part(X, x, row, part * PART)
        add_part(x, top, total)
    for part in T.serial(T.ceildiv(X.shape[1], PART)):
        T.copy(X[row, part * PART], x)
        for i, j in T.Parallel(1, PART):
            x[i, j] = T.exp(x[i, j] - top[i]) / total[i]
        T.copy(x, Y[row, part * PART])


@T.macro
def gradients_of_wide_row(dY, Y, dX, row):
    """The gradients of one row that is read twice."""
    y = T.alloc_fragment((1, PART), accumulator(Y.dtype))
    dy = T.alloc_fragment((1, PART), y.dtype)
    products = T.alloc_fragment((1, PART), y.dtype)
    product = T.alloc_fragment((1,), y.dtype)
    T.clear(products)
    for part in T.serial(T.ceildiv(Y.shape[1], PART)):
        T.copy(Y[row, part * PART], y)
        T.copy(dY[row, part * PART], dy)
        for i, j in T.Parallel(1, PART):
            products[i, j] += dy[i, j] * y[i, j]
    T.reduce_sum(products, product, dim=1)
    for part in T.serial(T.ceildiv(Y.shape[1], PART)):
        T.copy(Y[row, part * PART], y)
        T.copy(dY[row, part * PART], dy)
        for i, j in T.Parallel(1, PART):
            dy[i, j] = (dy[i, j] - product[i]) * y[i, j]
        T.copy(dy, dX[row, part * PART])


# -- programs ----------------------------------------------------------------------------------
@jit(name=f"{NAMESPACE}::softmax", contiguous="copy")
def softmax(X):
    N = T.const("N")
    X: T.Tensor((..., N), DTYPE)
    Y = T.empty((..., N), DTYPE)
    rows, threads = row_tile(N)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=threads) as block:
        if is_read_in_parts(N):
            softmax_of_wide_row(X, Y, block)
        else:
            softmax_of_rows(X, Y, block * rows, rows)
    return Y


@jit(name=f"{NAMESPACE}::softmax_backward", contiguous="copy")
def softmax_backward(dY, Y):
    N = T.const("N")
    dY: T.Tensor((..., N), DTYPE)
    Y: T.Tensor((..., N), DTYPE)
    dX = T.empty((..., N), DTYPE)
    rows, threads = row_tile(N)
    with T.Kernel(T.ceildiv(Y.shape[0], rows), threads=threads) as block:
        if is_read_in_parts(N):
            gradients_of_wide_row(dY, Y, dX, block)
        else:
            gradients_of_rows(dY, Y, dX, block * rows, rows)
    return dX

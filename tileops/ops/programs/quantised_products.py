"""The programs behind products of quantised operands: of 8-bit floats, and by 4-bit weights."""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.arguments import is_one_of
from tileops.ops.programs.linear import Tile
from tileops.ops.programs.rows import DTYPES, accumulator

FLOAT8 = (T.float8_e4m3fn, T.float8_e5m2)
A_DTYPE = T.DTypeVar("A_dtype", *FLOAT8)
B_DTYPE = T.DTypeVar("B_dtype", *FLOAT8)
BIAS_DTYPE = T.DTypeVar("bias_dtype", T.bfloat16, T.float16, T.float32)
RESULTS = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2")
# Products of up to so many rows take a tile of that height.
FEW_ROWS = 64
FEW_ROWS_OF_INT4 = 16
# The terms of 8-bit floats that tensor cores sum with fewer bits than float32 has; such sums are
# added up in float32, unless a call asks for fast ones.
PART = 128


def tile_of_float8(few_rows: bool) -> Tile:
    """The tile of a product of 8-bit floats."""
    return Tile(FEW_ROWS, 64, PART, 4, 128) if few_rows else Tile(128, 128, PART, 4, 256)


@T.macro
def scale(acc, scale_a, scale_b, bias, scale_result, row, column, by_row):
    """Multiply a tile of products by their scales; add ``bias``; scale the result."""
    rows, columns = acc.shape
    if by_row:
        of_rows = T.alloc_fragment((rows,), acc.dtype)
        of_columns = T.alloc_fragment((columns,), acc.dtype)
        T.copy(scale_a[row], of_rows)
        T.copy(scale_b[column], of_columns)
        for i, j in T.Parallel(rows, columns):
            acc[i, j] = acc[i, j] * of_rows[i] * of_columns[j]
    else:
        for i, j in T.Parallel(rows, columns):
            acc[i, j] = acc[i, j] * (scale_a[0] * scale_b[0])
    if bias is not None:
        own = T.alloc_fragment((columns,), acc.dtype)
        T.copy(bias[column], own)
        for i, j in T.Parallel(rows, columns):
            acc[i, j] += own[j]
    if scale_result is not None:
        for i, j in T.Parallel(rows, columns):
            acc[i, j] = acc[i, j] * scale_result[0]


@jit(name=f"{NAMESPACE}::scaled_mm", contiguous="copy")
def scaled_mm(
    A, B, scale_a, scale_b, bias=None, scale_result=None,
    by_row: bool = False, dtype: str = "bfloat16", fast: bool = False, few_rows: bool = False,
):  # fmt: skip
    """The product of ``A`` and the transpose of ``B``, times the scales."""
    M = T.dynamic("M")
    N, K = T.const("N, K")
    A: T.Tensor((M, K), A_DTYPE)
    B: T.Tensor((N, K), B_DTYPE)
    scale_a: T.Tensor((M if by_row else 1,), T.float32)
    scale_b: T.Tensor((N if by_row else 1,), T.float32)
    bias: T.Tensor((N,), BIAS_DTYPE)
    scale_result: T.Tensor((1,), T.float32)
    is_one_of("scaled_mm", "dtype", dtype, RESULTS)
    Y = T.empty((M, N), dtype)
    tile = tile_of_float8(few_rows)
    with T.Kernel(T.ceildiv(N, tile.columns), T.ceildiv(M, tile.rows), threads=tile.threads) as (
        bx,
        by,
    ):
        row, column = by * tile.rows, bx * tile.columns
        A_s = T.alloc_shared((tile.rows, tile.terms), A_DTYPE)
        B_s = T.alloc_shared((tile.columns, tile.terms), B_DTYPE)
        acc = T.alloc_fragment((tile.rows, tile.columns), T.float32)
        T.use_swizzle(panel_size=10)
        T.clear(acc)
        if fast:
            for k in T.Pipelined(T.ceildiv(K, tile.terms), num_stages=tile.stages):
                T.copy(A[row, k * tile.terms], A_s)
                T.copy(B[column, k * tile.terms], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
        else:
            sums = T.alloc_fragment(acc.shape, acc.dtype)
            for k in T.Pipelined(T.ceildiv(K, tile.terms), num_stages=tile.stages):
                T.copy(A[row, k * tile.terms], A_s)
                T.copy(B[column, k * tile.terms], B_s)
                T.gemm(A_s, B_s, sums, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(*acc.shape):
                    acc[i, j] += sums[i, j]
        scale(acc, scale_a, scale_b, bias, scale_result, row, column, by_row)
        T.copy(acc, Y[row, column])
    return Y


# -- 4-bit weights -----------------------------------------------------------------------------
X_DTYPE = T.DTypeVar("X_dtype", *DTYPES)
SCALE_DTYPE = T.DTypeVar("scale_dtype", *DTYPES)
# A product of float32 has all bits, as torch's has.
OPTIONS = {"tl.gemm_f32_precision": "ieee"}


def tile_of_int4(bits: int, few_rows: bool) -> Tile:
    """The tile of a product of elements of so many bits by 4-bit weights."""
    if bits > 16:
        return Tile(32, 32, 32, 2, 128)
    if few_rows:
        return Tile(FEW_ROWS_OF_INT4, 32, 256, 3, 128)
    return Tile(64, 64, 64, 3, 128)


@jit(name=f"{NAMESPACE}::int4_linear", contiguous="copy", pass_configs=OPTIONS)
def int4_linear(
    X, W, scales, zeros=None, bias=None, group: int = 128, few_rows: bool = False
):  # fmt: skip
    """The product of ``X`` and the transpose of the weights, and ``bias``."""
    N, K = T.const("N, K")
    X: T.Tensor((..., K), X_DTYPE)
    W: T.Tensor((N, K // 2), T.uint8)
    scales: T.Tensor((N, T.ceildiv(K, group)), SCALE_DTYPE)
    zeros: T.Tensor((N, T.ceildiv(K, group)), SCALE_DTYPE)
    bias: T.Tensor((N,), X_DTYPE)
    Y = T.empty((..., N), X_DTYPE)
    tile = tile_of_int4(X.dtype.bits, few_rows)
    with T.Kernel(
        T.ceildiv(N, tile.columns), T.ceildiv(X.shape[0], tile.rows), threads=tile.threads
    ) as (bx, by):
        row, column = by * tile.rows, bx * tile.columns
        X_s = T.alloc_shared((tile.rows, tile.terms), X_DTYPE)
        W_s = T.alloc_shared((tile.columns, tile.terms // 2), T.uint8)
        wide = T.alloc_shared((tile.columns, tile.terms), X_DTYPE)
        acc = T.alloc_fragment((tile.rows, tile.columns), accumulator(X.dtype))
        T.use_swizzle(panel_size=10)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, tile.terms), num_stages=tile.stages):
            T.copy(X[row, k * tile.terms], X_s)
            T.copy(W[column, k * (tile.terms // 2)], W_s)
            for i, j in T.Parallel(tile.columns, tile.terms):
                nibble = (W_s[i, j // 2] >> T.cast((j % 2) * 4, T.uint8)) & T.cast(15, T.uint8)
                at = k * tile.terms + j
                zero = 8 if zeros is None else T.cast(zeros[column + i, at // group], acc.dtype)
                of_group = T.cast(scales[column + i, at // group], acc.dtype)
                weight = T.cast((T.cast(nibble, acc.dtype) - zero) * of_group, X_DTYPE)
                wide[i, j] = T.if_then_else(at < K, weight, T.cast(0, X_DTYPE))
            T.gemm(X_s, wide, acc, transpose_B=True)
        if bias is not None:
            own = T.alloc_fragment((tile.columns,), acc.dtype)
            T.copy(bias[column], own)
            for i, j in T.Parallel(tile.rows, tile.columns):
                acc[i, j] += own[j]
        T.copy(acc, Y[row, column])
    return Y

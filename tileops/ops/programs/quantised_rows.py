"""The programs behind norms and gates whose results are quantised, with a scale for each row."""

from __future__ import annotations

from typing import Any

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.arguments import is_one_of
from tileops.ops.programs import gates, norms
from tileops.ops.programs.rows import (
    DTYPES,
    PART,
    RowTile,
    accumulator,
    is_read_in_parts,
    row_tile,
)

X_DTYPE = T.DTypeVar("X_dtype", *DTYPES)
W_DTYPE = T.DTypeVar("W_dtype", *DTYPES)
E4M3, E5M2, INT8 = "float8_e4m3fn", "float8_e5m2", "int8"
# The largest number of each dtype of a result; of int8 one with a negative of the same size.
LARGEST = {E4M3: 448.0, E5M2: 57344.0, INT8: 127.0}


def tile_of(columns: object) -> RowTile:
    """The tile for rows of ``columns`` elements; an empty row has a scale, too."""
    tile = row_tile(columns)
    return RowTile(1, tile.threads) if is_read_in_parts(columns) else tile


def quantised(x: Any, scale: Any, dtype: str) -> Any:
    """``x / scale`` as ``dtype``. Conversions to 8 bits saturate; NaN becomes 0 in int8."""
    if dtype == INT8:
        return T.max(T.cast(T.round(x / scale), T.int8), T.cast(-127, T.int8))
    return T.cast(x / scale, dtype)


@T.macro
def set_scales(largest, given, scale, scales, row, dtype):
    """The scales of rows from their largest absolute values, or the one that is given."""
    for i in T.Parallel(scale.shape[0]):
        if given is not None:
            scale[i] = given[0]
        else:
            quotient = T.cast(largest[i] / LARGEST[dtype], T.float32)
            scale[i] = T.if_then_else(quotient == 0, T.cast(1.0, T.float32), quotient)
            if row + i < scales.shape[0]:
                scales[row + i, 0] = scale[i]


@T.macro
def write_quantised(x, scale, Y, row, first, dtype):
    """Write a tile of ``x``, divided by the scales of its rows, columns from ``first`` on."""
    rows, columns = x.shape
    for i, j in T.Parallel(rows, columns):
        if (row + i < Y.shape[0]) and (first + j < Y.shape[1]):
            Y[row + i, first + j] = quantised(x[i, j], T.cast(scale[i], x.dtype), dtype)


@T.macro
def take_largest(x, largest, part):
    """Take a part of a row into its largest absolute value so far; NaN stays."""
    own = T.alloc_fragment(largest.shape, largest.dtype)
    T.reduce_absmax(x, own, dim=1, nan_propagate=True)
    for i in T.Parallel(largest.shape[0]):
        is_kept = (part > 0) and ((largest[i] >= own[i]) or (largest[i] != largest[i]))
        largest[i] = T.if_then_else(is_kept, largest[i], own[i])


# -- norms -------------------------------------------------------------------------------------
@T.macro
def weigh_and_round(x, X, W, first, offset, rounding):
    """The weights of standardised rows, and the rounding of the norm."""
    rows, columns = x.shape
    norms.weigh(x, W, None, first, offset, rounding, X.dtype)
    for i, j in T.Parallel(rows, columns):
        x[i, j] = T.cast(T.cast(x[i, j], X.dtype), x.dtype)


@T.macro
def norm_of_rows(X, W, given, Y, scales, row, rows, eps, offset, rounding, dtype):
    """The quantised norm of ``rows`` whole rows from ``row`` on."""
    x = T.alloc_fragment((rows, X.shape[1]), accumulator(X.dtype))
    largest = T.alloc_fragment((rows,), x.dtype)
    scale = T.alloc_fragment((rows,), T.float32)
    T.copy(X[row, 0], x)
    norms.standardise(x, largest, eps, False)
    weigh_and_round(x, X, W, 0, offset, rounding)
    T.reduce_absmax(x, largest, dim=1, nan_propagate=True)
    set_scales(largest, given, scale, scales, row, dtype)
    write_quantised(x, scale, Y, row, 0, dtype)


@T.macro
def part_of_norm(x, X, W, row, part, of_row, offset, rounding):
    """A part of the norm of one row."""
    T.copy(X[row, part * PART], x)
    for i, j in T.Parallel(1, PART):
        x[i, j] = x[i, j] * of_row[i]
    weigh_and_round(x, X, W, part * PART, offset, rounding)


@T.macro
def norm_of_wide_row(X, W, given, Y, scales, row, eps, offset, rounding, dtype):
    """The quantised norm of one row, which is read three times, and twice with a given scale."""
    x = T.alloc_fragment((1, PART), accumulator(X.dtype))
    mean = T.alloc_fragment((1,), x.dtype)
    of_row = T.alloc_fragment((1,), x.dtype)
    largest = T.alloc_fragment((1,), x.dtype)
    scale = T.alloc_fragment((1,), T.float32)
    norms.row_statistics(X, row, mean, of_row, eps, False)
    T.clear(largest)
    if given is None:
        for part in T.serial(T.ceildiv(X.shape[1], PART)):
            part_of_norm(x, X, W, row, part, of_row, offset, rounding)
            take_largest(x, largest, part)
    set_scales(largest, given, scale, scales, row, dtype)
    for part in T.serial(T.ceildiv(X.shape[1], PART)):
        part_of_norm(x, X, W, row, part, of_row, offset, rounding)
        write_quantised(x, scale, Y, row, part * PART, dtype)


@jit(name=f"{NAMESPACE}::rms_norm_quant", contiguous="copy")
def rms_norm_quant(
    X, W=None, given=None, eps: T.float64 = 1e-6, offset: T.float64 = 0.0,
    rounding: str = norms.TORCH, dtype: str = E4M3,
):  # fmt: skip
    """The quantised norm, and the scales of its rows unless one is given."""
    N = T.const("N")
    X: T.Tensor((..., N), X_DTYPE)
    W: T.Tensor((N,), W_DTYPE)
    given: T.Tensor((1,), T.float32)
    is_one_of("rms_norm_quant", "rounding", rounding, norms.ROUNDINGS)
    is_one_of("rms_norm_quant", "dtype", dtype, LARGEST)
    Y = T.empty((..., N), dtype)
    scales = T.empty((..., 1 if given is None else 0), T.float32)
    rows, threads = tile_of(N)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=threads) as block:
        if is_read_in_parts(N):
            norm_of_wide_row(X, W, given, Y, scales, block, eps, offset, rounding, dtype)
        else:
            norm_of_rows(
                X, W, given, Y, scales, block * rows, rows, eps, offset, rounding, dtype
            )  # fmt: skip
    return Y, scales


# -- gates -------------------------------------------------------------------------------------
@T.macro
def load_product(x, gate, up, row, first):
    """A tile of ``silu(gate) * up``, rounded as the operator rounds it."""
    rows, columns = x.shape
    other = T.alloc_fragment((rows, columns), gate.dtype)
    T.copy(gate[row, first], x)
    T.copy(up[row, first], other)
    for i, j in T.Parallel(rows, columns):
        a = T.cast(gates.activation(x[i, j], gates.SILU), gate.dtype)
        x[i, j] = T.cast(T.cast(a * other[i, j], gate.dtype), x.dtype)


@jit(name=f"{NAMESPACE}::silu_mul_quant", contiguous="copy")
def silu_mul_quant(gate, up, given=None, dtype: str = E4M3):
    """The quantised product, and the scales of its rows unless one is given."""
    N = T.const("N")
    gate: T.Tensor((..., N), X_DTYPE)
    up: T.Tensor((..., N), X_DTYPE)
    given: T.Tensor((1,), T.float32)
    is_one_of("silu_mul_quant", "dtype", dtype, LARGEST)
    Y = T.empty((..., N), dtype)
    scales = T.empty((..., 1 if given is None else 0), T.float32)
    rows, threads = tile_of(N)
    width = PART if is_read_in_parts(N) else N
    with T.Kernel(T.ceildiv(gate.shape[0], rows), threads=threads) as block:
        x = T.alloc_fragment((rows, width), accumulator(gate.dtype))
        largest = T.alloc_fragment((rows,), x.dtype)
        scale = T.alloc_fragment((rows,), T.float32)
        T.clear(largest)
        if is_read_in_parts(N):
            if given is None:
                for part in T.serial(T.ceildiv(N, PART)):
                    load_product(x, gate, up, block, part * PART)
                    take_largest(x, largest, part)
            set_scales(largest, given, scale, scales, block, dtype)
            for part in T.serial(T.ceildiv(N, PART)):
                load_product(x, gate, up, block, part * PART)
                write_quantised(x, scale, Y, block, part * PART, dtype)
        else:
            load_product(x, gate, up, block * rows, 0)
            T.reduce_absmax(x, largest, dim=1, nan_propagate=True)
            set_scales(largest, given, scale, scales, block * rows, dtype)
            write_quantised(x, scale, Y, block * rows, 0, dtype)
    return Y, scales

"""The programs behind a linear layer: a product with bias, activation and residual at its end."""

from __future__ import annotations

from typing import Any, NamedTuple

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.arguments import is_one_of
from tileops.ops.programs import gates
from tileops.ops.programs.rows import DTYPES, accumulator

DTYPE = T.DTypeVar("dtype", *DTYPES)
NONE, RELU = "none", "relu"
# The activations by name, and what ``gates`` calls them.
_GATES = {"silu": gates.SILU, "gelu": gates.GELU, "gelu_tanh": gates.GELU_TANH}
ACTIVATIONS = (RELU, *_GATES)
# Products of float32 have all bits, as torch's have.
OPTIONS = {"tl.gemm_f32_precision": "ieee"}
FEW_ROWS = 64
# Terms of float32 that are summed one after another: the sums of such parts are added up. The
# rounding errors of a long sum grow with its terms (Higham, Accuracy and Stability of Numerical
# Algorithms, section 4.2).
PART = 256


class Tile(NamedTuple):
    """Rows and columns of a block, terms of a step of its sums, stages of its loop, its threads."""

    rows: int
    columns: int
    terms: int
    stages: int
    threads: int


def tile_of(bits: int, few_rows: bool, has_residual: bool) -> Tile:
    """The tile for elements of so many bits. A residual takes registers that columns have else."""
    if bits > 16:
        return Tile(64, 64, 32, 2, 128)
    if few_rows:
        return Tile(64, 64, 128, 4, 128)
    return Tile(128, 128 if has_residual else 256, 64, 3, 256)


def activated(x: Any, activation: str) -> Any:
    """The value of the activation at ``x``."""
    return T.max(x, 0) if activation == RELU else gates.activation(x, _GATES[activation])


def slope(x: Any, activation: str) -> Any:
    """The derivative of the activation at ``x``."""
    if activation == RELU:
        return T.if_then_else(x > 0, T.cast(1.0, x.dtype), T.cast(0.0, x.dtype))
    return gates.slope(x, _GATES[activation])


@T.macro
def finish(acc, bias, residual, Z, Y, row, column, activation):
    """Write a tile of products with what comes after them."""
    if bias is not None:
        own = T.alloc_fragment((acc.shape[1],), acc.dtype)
        T.copy(bias[column], own)
        for i, j in T.Parallel(*acc.shape):
            acc[i, j] += own[j]
    if Z is not None:
        T.copy(acc, Z[row, column])
    if activation != NONE:
        for i, j in T.Parallel(*acc.shape):
            acc[i, j] = activated(acc[i, j], activation)
    if residual is not None:
        before = T.alloc_fragment(acc.shape, residual.dtype)
        T.copy(residual[row, column], before)
        for i, j in T.Parallel(*acc.shape):
            acc[i, j] += T.cast(before[i, j], acc.dtype)
    T.copy(acc, Y[row, column])


@T.macro
def add_products(acc, X, W, row, column, first, terms, tile):
    """Add the products of ``terms`` columns from ``first`` on to a tile of sums."""
    X_s = T.alloc_shared((tile.rows, tile.terms), DTYPE)
    W_s = T.alloc_shared((tile.columns, tile.terms), DTYPE)
    for k in T.Pipelined(T.ceildiv(terms, tile.terms), num_stages=tile.stages):
        T.copy(X[row, first + k * tile.terms], X_s)
        T.copy(W[column, first + k * tile.terms], W_s)
        T.gemm(X_s, W_s, acc, transpose_B=True)


@jit(name=f"{NAMESPACE}::linear", contiguous="copy", pass_configs=OPTIONS)
def linear(
    X, W, bias=None, residual=None,
    activation: str = NONE, with_products: bool = True, few_rows: bool = False,
):  # fmt: skip
    """The result, and what the activation was taken of."""
    N, K = T.const("N, K")
    X: T.Tensor((..., K), DTYPE)
    W: T.Tensor((N, K), DTYPE)
    bias: T.Tensor((N,), DTYPE)
    residual: T.Tensor((..., N), DTYPE)
    is_one_of("linear", "activation", activation, (NONE, *ACTIVATIONS))
    saves = with_products and activation != NONE
    Y = T.empty((..., N), DTYPE)
    Z = T.empty((..., N if saves else 0), DTYPE)
    tile = tile_of(X.dtype.bits, few_rows, residual is not None)
    with T.Kernel(
        T.ceildiv(N, tile.columns), T.ceildiv(X.shape[0], tile.rows), threads=tile.threads
    ) as (bx, by):
        row, column = by * tile.rows, bx * tile.columns
        acc = T.alloc_fragment((tile.rows, tile.columns), accumulator(X.dtype))
        T.use_swizzle(panel_size=10)
        T.clear(acc)
        if X.dtype.bits == 32 and K > PART:
            sums = T.alloc_fragment(acc.shape, acc.dtype)
            for part in T.serial(T.ceildiv(K, PART)):
                T.clear(sums)
                add_products(sums, X, W, row, column, part * PART, PART, tile)
                for i, j in T.Parallel(*acc.shape):
                    acc[i, j] += sums[i, j]
        else:
            add_products(acc, X, W, row, column, 0, K, tile)
        finish(
            acc, bias, residual, Z if saves else None, Y, row, column, activation
        )  # fmt: skip
    return Y, Z


@jit(name=f"{NAMESPACE}::activation_backward", contiguous="copy")
def activation_backward(dY, Z, activation: str = RELU):
    """The gradient of what the activation was taken of."""
    dY: T.Tensor((...,), DTYPE)
    Z: T.Tensor((...,), DTYPE)
    is_one_of("activation_backward", "activation", activation, ACTIVATIONS)
    dZ = T.empty((...,), DTYPE)
    acc = accumulator(Z.dtype)
    with T.Kernel(T.ceildiv(Z.shape[0], gates.BLOCK), threads=256) as block:
        for i in T.Parallel(gates.BLOCK):
            at = block * gates.BLOCK + i
            x = T.cast(Z[at], acc)
            dZ[at] = T.cast(T.cast(dY[at], acc) * slope(x, activation), Z.dtype)
    return dZ

"""Matrix products in groups of rows or of terms, whose ends a tensor holds.

A *turned* operand is given as the transposed tensor, in the order of its memory.
"""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.programs.linear import OPTIONS, PART, tile_of
from tileops.ops.programs.rows import DTYPES, accumulator

DTYPE = T.DTypeVar("dtype", *DTYPES)


def shape_of(outer, terms, terms_first):
    """The shape of a matrix whose products sum over ``terms``."""
    return (terms, outer) if terms_first else (outer, terms)


@T.macro
def add_products(acc, A, B, group, row, column, first, terms, tile, a_turned, b_turned):
    """Add the products of ``terms`` terms from ``first`` on; ``B`` has a matrix for each group."""
    A_s = T.alloc_shared(shape_of(tile.rows, tile.terms, a_turned), DTYPE)
    B_s = T.alloc_shared(shape_of(tile.columns, tile.terms, not b_turned), DTYPE)
    for k in T.Pipelined(T.ceildiv(terms, tile.terms), num_stages=tile.stages):
        at = first + k * tile.terms
        if a_turned:
            T.copy(A[at, row], A_s)
        else:
            T.copy(A[row, at], A_s)
        if b_turned:
            T.copy(B[group, column, at], B_s)
        else:
            T.copy(B[group, at, column], B_s)
        T.gemm(A_s, B_s, acc, transpose_A=a_turned, transpose_B=b_turned)


@jit(name=f"{NAMESPACE}::grouped_mm", contiguous="copy", pass_configs=OPTIONS)
def grouped_mm(
    A, B, ends, a_turned: bool = False, b_turned: bool = False, is_wide: bool = False
):  # fmt: skip
    """Each row of A times the matrix of its group; 0 for rows behind the last group.

    A block looks for its group: there is a block for each tile of rows and for each group, since
    every group may end within a tile.
    """
    M = T.dynamic("M")
    G, N, K = T.const("G, N, K")
    A: T.Tensor(shape_of(M, K, a_turned), DTYPE)
    B: T.Tensor((G, *shape_of(N, K, not b_turned)), DTYPE)
    ends: T.Tensor((G,), T.int32)
    sums = accumulator(A.dtype)
    C = T.empty((M, N), sums if is_wide else DTYPE)
    tile = tile_of(A.dtype.bits, False, False)
    with T.Kernel(
        T.ceildiv(N, tile.columns), T.ceildiv(M, tile.rows) + G, threads=tile.threads
    ) as (bx, by):
        column = bx * tile.columns
        acc = T.alloc_fragment((tile.rows, tile.columns), sums)
        group = T.alloc_var(T.int32, -1)
        before = T.alloc_var(T.int32, 0)  # tiles of the groups before
        start = T.alloc_var(T.int32, 0)
        row = T.alloc_var(T.int32, 0)
        stop = T.alloc_var(T.int32, 0)
        for g in T.serial(G):
            end = T.max(T.min(ends[g], M), start)
            if before <= by and by < before + T.ceildiv(end - start, tile.rows):
                group = g
                row = start + (by - before) * tile.rows
                stop = end
            before += T.ceildiv(end - start, tile.rows)
            start = end
        T.clear(acc)
        if group >= 0:
            if A.dtype.bits == 32 and K > PART:
                part = T.alloc_fragment(acc.shape, sums)
                for p in T.serial(T.ceildiv(K, PART)):
                    T.clear(part)
                    add_products(
                        part, A, B, group, row, column, p * PART, PART, tile, a_turned, b_turned
                    )
                    for i, j in T.Parallel(*acc.shape):
                        acc[i, j] += part[i, j]
            else:
                add_products(acc, A, B, group, row, column, 0, K, tile, a_turned, b_turned)
        else:
            row = start + (by - before) * tile.rows
            stop = M
        for i, j in T.Parallel(*acc.shape):
            if row + i < stop and column + j < N:
                C[row + i, column + j] = acc[i, j]
    return C


@T.macro
def add_terms(acc, A, B, row, column, first, tiles, A_s, B_s, tile, a_turned, b_turned):
    """Add the products of whole tiles of terms from ``first`` on."""
    for k in T.Pipelined(tiles, num_stages=tile.stages):
        at = first + k * tile.terms
        if a_turned:
            T.copy(A[at, row], A_s)
        else:
            T.copy(A[row, at], A_s)
        if b_turned:
            T.copy(B[column, at], B_s)
        else:
            T.copy(B[at, column], B_s)
        T.gemm(A_s, B_s, acc, transpose_A=a_turned, transpose_B=b_turned)


@T.macro
def copy_before(X, X_s, outer, count, first, end, terms_first):
    """Copy a tile with 0 for terms from ``end`` on: those of the next group may be no numbers."""
    for i, j in T.Parallel(*X_s.shape):
        if terms_first:
            X_s[i, j] = T.if_then_else(
                first + i < end and outer + j < count, X[first + i, outer + j], 0
            )
        else:
            X_s[i, j] = T.if_then_else(
                first + j < end and outer + i < count, X[outer + i, first + j], 0
            )


@jit(name=f"{NAMESPACE}::grouped_mm_terms", contiguous="copy", pass_configs=OPTIONS)
def grouped_mm_terms(
    A, B, ends, a_turned: bool = False, b_turned: bool = False, is_wide: bool = False
):  # fmt: skip
    """For each group a matrix: the products that sum over the terms of the group alone."""
    K = T.dynamic("K")
    G, M, N = T.const("G, M, N")
    A: T.Tensor(shape_of(M, K, a_turned), DTYPE)
    B: T.Tensor(shape_of(N, K, not b_turned), DTYPE)
    ends: T.Tensor((G,), T.int32)
    sums = accumulator(A.dtype)
    C = T.empty((G, M, N), sums if is_wide else DTYPE)
    tile = tile_of(A.dtype.bits, False, True)
    with T.Kernel(T.ceildiv(N, tile.columns), T.ceildiv(M, tile.rows), G, threads=tile.threads) as (
        bx,
        by,
        g,
    ):
        row, column = by * tile.rows, bx * tile.columns
        start = T.alloc_var(T.int32, 0)
        if g > 0:
            start = T.max(0, T.min(ends[g - 1], K))
        end = T.max(T.min(ends[g], K), start)
        whole = (end - start) // tile.terms
        A_s = T.alloc_shared(shape_of(tile.rows, tile.terms, a_turned), DTYPE)
        B_s = T.alloc_shared(shape_of(tile.columns, tile.terms, not b_turned), DTYPE)
        acc = T.alloc_fragment((tile.rows, tile.columns), sums)
        T.clear(acc)
        if A.dtype.bits == 32:
            per_part = PART // tile.terms
            part = T.alloc_fragment(acc.shape, sums)
            for p in T.serial(T.ceildiv(whole, per_part)):
                T.clear(part)
                add_terms(
                    part, A, B, row, column, start + p * PART,
                    T.min(per_part, whole - p * per_part), A_s, B_s, tile, a_turned, b_turned,
                )  # fmt: skip
                for i, j in T.Parallel(*acc.shape):
                    acc[i, j] += part[i, j]
        else:
            add_terms(acc, A, B, row, column, start, whole, A_s, B_s, tile, a_turned, b_turned)
        first = start + whole * tile.terms
        if first < end:
            copy_before(A, A_s, row, M, first, end, a_turned)
            copy_before(B, B_s, column, N, first, end, not b_turned)
            T.gemm(A_s, B_s, acc, transpose_A=a_turned, transpose_B=b_turned)
        T.copy(acc, C[g, row, column])
    return C

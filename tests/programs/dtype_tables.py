"""The programs of the dtype table: one tensor of the dtype through every kind of storage."""

from __future__ import annotations

import tileops
import tileops.language as T


@tileops.jit
def through(A, dt: str = "float32", wide: str = "float64"):
    """A copied through shared and fragment tiles; A widened tile by tile and element by element."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), dt)
    same = T.empty((M, K), dt)
    tiles = T.empty((M, K), wide)
    elements = T.empty((M, K), wide)
    with T.Kernel(T.ceildiv(M, 8), threads=32) as bx:
        shared = T.alloc_shared((8, 32), dt)
        fragment = T.alloc_fragment((8, 32), dt)
        widened = T.alloc_fragment((8, 32), wide)
        for k in T.serial(T.ceildiv(K, 32)):
            T.copy(A[bx * 8, k * 32], shared)
            T.copy(shared, fragment)
            T.copy(fragment, same[bx * 8, k * 32])
            T.copy(fragment, widened)
            T.copy(widened, tiles[bx * 8, k * 32])
            for i, j in T.Parallel(8, 32):
                elements[bx * 8 + i, k * 32 + j] = T.cast(A[bx * 8 + i, k * 32 + j], wide)
    return same, tiles, elements


@tileops.jit
def narrowed(X, dt: str = "float32", source: str = "float32"):
    """X converted to the dtype: in a copy, in an elementwise nest, and back again."""
    M, K = T.const("M, K")
    X: T.Tensor((M, K), source)
    tiles = T.empty((M, K), dt)
    elements = T.empty((M, K), dt)
    with T.Kernel(T.ceildiv(M, 8), threads=32) as bx:
        x = T.alloc_fragment((8, 32), source)
        y = T.alloc_shared((8, 32), dt)
        for k in T.serial(T.ceildiv(K, 32)):
            T.copy(X[bx * 8, k * 32], x)
            T.copy(x, y)
            T.copy(y, tiles[bx * 8, k * 32])
            for i, j in T.Parallel(8, 32):
                elements[bx * 8 + i, k * 32 + j] = T.cast(x[i, j], dt)
    return tiles, elements

"""Packed tensors in the less usual forms of loops, copies, views and names."""

from __future__ import annotations

import tileops
import tileops.language as T


@tileops.jit
def loops(A, dt: str = "int4"):
    """Stores under nested loops of each kind; what is read is permuted."""
    A: T.Tensor((32, 32), dt)
    turned = T.empty((32, 32), dt)
    rows = T.empty((32, 32), dt)
    chunks = T.empty((32, 32), dt)
    chosen = T.empty((32, 32), dt)
    with T.Kernel(1, threads=32) as _:
        for i, j in T.Parallel(32, 32):
            turned[i, j] = A[j, i]
        for i in T.Parallel(32):
            for j in T.serial(32):
                rows[i, j] = A[i, 31 - j]
        for i, j in T.Parallel(32, 16):
            for v in T.vectorized(2):
                chunks[i, j * 2 + v] = A[31 - i, j * 2 + v]
        for i, j in T.Parallel(32, 32):
            if i % 3 == 0:
                chosen[i, j] = A[i, j]
            else:
                x = A[i, 31 - j]
                y = A[31 - i, j]
                chosen[i, j] = T.if_then_else(x > y, x, y)
    return turned, rows, chunks, chosen


@tileops.jit
def copies(A, dt: str = "int4"):
    """Copies from odd starts, of parts of rows, between tensors and through one-dimensional tiles."""
    A: T.Tensor((6, 48), dt)
    shifted = T.empty((6, 48), dt)
    parts = T.empty((6, 48), dt)
    moved = T.empty((6, 48), dt)
    with T.Kernel(6, threads=32) as i:
        T.copy(A[i, 1:33], shifted[i, 0:32])
        T.fill(shifted[i, 32:48], 1)
        line = T.alloc_fragment((12,), dt)
        for k in T.serial(4):
            T.copy(A[i, k * 12 : (k + 1) * 12], line)
            T.copy(line, parts[i, (3 - k) * 12 : (4 - k) * 12])
        T.copy(A[i, 0:48], moved[5 - i, 0:48])
    return shifted, parts, moved


@tileops.jit
def names(A, dt: str = "int4"):
    """Variables, conditions and loops on single elements; a row of counts."""
    A: T.Tensor((8, 64), dt)
    C = T.empty((8, 64), dt)
    counts = T.empty((8,), "int32")
    with T.Kernel(8, threads=32) as i:
        best = T.alloc_var(dt, init=0)
        count = T.alloc_var("int32", init=0)
        for j in T.serial(64):
            if A[i, j] > best:
                best = A[i, j]
        k = T.alloc_var("int32", init=0)
        while k < 64 and A[i, k] != best:
            k += 1
            count += 1
        counts[i] = count
        for j in T.Parallel(64):
            C[i, j] = best
    return C, counts


@tileops.jit
def reshaped(A, dt: str = "int4"):
    """Other shapes of a packed tensor and of a tile, and its bytes under another name."""
    A: T.Tensor((8, 64), dt)
    raw = T.Tensor((8, 32), "uint8", A.data)
    flat = T.empty((512,), dt)
    tall = T.empty((16, 32), dt)
    bytes_ = T.empty((8, 32), "uint8")
    with T.Kernel(1, threads=32) as _:
        one = T.reshape(A, (512,))
        T.copy(one, flat)
        tile = T.alloc_shared((8, 64), dt)
        T.copy(A, tile)
        T.copy(T.reshape(tile, (16, 32)), tall)
        T.copy(raw, bytes_)
    return flat, tall, bytes_


@tileops.jit
def outside(A, dt: str = "int4", value: float = 1.5):
    """Reads outside give the safe value, element by element and in copies."""
    A: T.Tensor((5, 34), dt)
    C = T.empty((8, 64), "float32")
    with T.Kernel(1, threads=32) as _:
        T.annotate_safe_value({A: value})
        tile = T.alloc_fragment((8, 32), dt)
        T.copy(A[0, 0], tile)
        T.copy(tile, C[0:8, 0:32])
        for i, j in T.Parallel(8, 32):
            C[i, 32 + j] = T.cast(A[i - 1, j + 5], "float32")
    return C

"""Programs on vectors of scalars, on dot products of four bytes, and on thread indices."""

from __future__ import annotations

import tileops
import tileops.language as T


def make_pair(dtype, low, high):
    return getattr(T, f"{dtype}x2")(low, high)


def store_rows(target, vectors, i):
    for row, vector in enumerate(vectors):
        target[row, 2 * i] = vector[0]
        target[row, 2 * i + 1] = vector[1]


def store_codes(target, codes, i):
    for n in range(8):
        target[i, n] = codes[n]


@tileops.jit
def packed_math(A, B, dtype: str = "float32"):
    """Two neighbours at a time: every function of two lanes, in the rows of the result."""
    N = T.const("N")
    A: T.Tensor((N,), dtype)
    B: T.Tensor((N,), dtype)
    C = T.empty((8, N), dtype)
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(N // 2):
            a = make_pair(dtype, A[2 * i], A[2 * i + 1])
            b = make_pair(dtype, B[2 * i], B[2 * i + 1])
            results = [
                T.add2(a, b), T.sub2(a, b), T.mul2(a, b), T.max2(a, b), T.min2(a, b),
                T.fma2(a, b, a), T.abs2(a), a * 2 - b,
            ]  # fmt: skip
            store_rows(C, results, i)
    return C


@tileops.jit
def bits_of_pairs(A):
    """float16 pairs as 32-bit integers and back; lanes exchanged by T.Shuffle."""
    N = T.const("N")
    A: T.Tensor((N,), "float16")
    words = T.empty((N // 2,), "uint32")
    swapped = T.empty((N,), "float16")
    nibbles = T.empty((N // 2, 8), "int32")
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(N // 2):
            pair = T.float16x2(A[2 * i], A[2 * i + 1])
            word = T.reinterpret(pair, "uint32")
            words[i] = word
            back = T.reinterpret(word, "float16x2")
            turned = T.Shuffle([back], [1, 0])
            swapped[2 * i] = turned[0]
            swapped[2 * i + 1] = T.Shuffle([pair, turned], [3])
            codes = T.cast(T.reinterpret(word, "uint4x8"), "int32")
            store_codes(nibbles, codes, i)
    return words, swapped, nibbles


@tileops.jit
def gemv_dp4a(A, X):
    """Rows of int8 times a vector, four products at a time."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), "int8")
    X: T.Tensor((K,), "int8")
    Y = T.empty((M,), "int32")
    with T.Kernel(M, threads=32) as bx:
        total = T.alloc_fragment((1,), "int32")
        T.clear(total)
        for k in T.serial(K // 4):
            T.dp4a(A[bx, 4 * k], X[4 * k], total)
        Y[bx] = total[0]
    return Y


@tileops.jit
def roles(A):
    """Warp-specialised bodies without barriers run in order; a thread index chooses elements."""
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    C = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, 128), threads=256) as bx:
        tile = T.alloc_shared((128,), "float32")
        tx = T.get_thread_binding()
        with T.ws(0):
            T.copy(A[bx * 128], tile)
        with T.ws(1):
            for i in T.Parallel(128):
                tile[i] = tile[i] * 3
        T.sync_threads()
        if tx < 128:
            C[bx * 128 + tx] = tile[tx] + 1
    return C

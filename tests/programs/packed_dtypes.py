"""Programs on tensors of 4-bit dtypes: every way to store, alias and multiply them."""

from __future__ import annotations

import tileops
import tileops.language as T


@tileops.jit
def in_place(A, dt: str = "int4"):
    """A[i, j] = A[i, j] + 1 where i is odd; neighbours share the condition."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), dt)
    with T.Kernel(T.ceildiv(M, 8), T.ceildiv(K, 32), threads=32) as (bx, by):
        for i, j in T.Parallel(8, 32):
            if (bx * 8 + i) % 2 == 1 and by * 32 + j < K:
                x = A[bx * 8 + i, by * 32 + j] + T.cast(1, dt)
                A[bx * 8 + i, by * 32 + j] = x


@tileops.jit
def spelled_out(A, dt: str = "int4"):
    """Two stores side by side, and a serial loop along the last dimension."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), dt)
    B = T.empty((M, K), dt)
    C = T.empty((M, K), dt)
    with T.Kernel(M, threads=32) as bx:
        for j in T.Parallel(K // 2):
            low = A[bx, 2 * j + 1]
            B[bx, 2 * j] = low
            high = A[bx, 2 * j]
            B[bx, 2 * j + 1] = high
        for j in T.serial(K):
            C[bx, j] = A[bx, K - 1 - j]
    return B, C


@tileops.jit
def filled(value: float = 1.5, dt: str = "float4_e2m1fn"):
    """A tensor of one value, with rows of bytes."""
    C = T.empty((6, 32), dt)
    with T.Kernel(3, threads=32) as bx:
        T.fill(C[bx * 2 : bx * 2 + 2, 0:16], value)
        T.clear(C[bx * 2 : bx * 2 + 2, 16:32])
    return C


@tileops.jit
def aliased(A, dt: str = "int4"):
    """The bytes of a packed tensor and of a packed tile, by views, and back."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), dt)
    raw = T.empty((M, K // 2), "uint8")
    again = T.empty((M, K), dt)
    flat = T.empty((M, K), "float32")
    with T.Kernel(M, threads=32) as bx:
        bytes_of_a = T.view(A, (M, K // 2), "uint8")
        T.copy(bytes_of_a[bx, 0:64], raw[bx, 0:64])
        tile = T.alloc_shared((2, 64), "uint8")
        nibbles = T.view(tile, (2, 128), dt)
        T.copy(A[bx, 0:128], nibbles[0, 0:128])
        for j in T.Parallel(64):
            tile[1, j] = tile[0, j] ^ T.cast(255, "uint8")
        for j in T.Parallel(128):
            flat[bx, j] = T.cast(nibbles[1, j], "float32")
        T.copy(nibbles[0, :], again[bx, 0:128])
    return raw, again, flat


@tileops.jit
def bit_casts(A):
    """The codes of float4 values as integers, and values from codes."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), "float4_e2m1fn")
    codes = T.empty((M, K), "int32")
    back = T.empty((M, K), "float32")
    signed = T.empty((M, K), "int32")
    with T.Kernel(M, threads=32) as bx:
        for j in T.Parallel(64):
            code = T.reinterpret(A[bx, j], "uint4")
            codes[bx, j] = T.cast(code, "int32")
            signed[bx, j] = T.cast(T.reinterpret(code, "int4"), "int32")
            back[bx, j] = T.cast(T.reinterpret(code, "float4_e2m1fn"), "float32")
    return codes, signed, back


@tileops.jit
def arithmetic(A, B, dt: str = "int4"):
    """Operators on 4-bit operands: each result is brought back to the dtype."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), dt)
    B: T.Tensor((M, K), dt)
    total = T.empty((M, K), "float32")
    product = T.empty((M, K), "float32")
    least = T.empty((M, K), "float32")
    negated = T.empty((M, K), "float32")
    with T.Kernel(M, threads=32) as bx:
        for j in T.Parallel(64):
            a = A[bx, j]
            b = B[bx, j]
            total[bx, j] = T.cast(a + b, "float32")
            product[bx, j] = T.cast(a * b, "float32")
            least[bx, j] = T.cast(T.min(a, b), "float32")
            negated[bx, j] = T.cast(-a, "float32")
    return total, product, least, negated


@tileops.jit
def matmul(A, B, dt: str = "int4", acc: str = "int32", transposed: bool = True):
    """C = A @ B.T (or A.T @ B) on packed operands."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), dt)
    B: T.Tensor((N, K), dt)
    C = T.empty((M, N), acc)
    with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=64) as (bx, by):
        a = T.alloc_shared((32, 64), dt)
        b = T.alloc_shared((32, 64), dt)
        c = T.alloc_fragment((32, 32), acc)
        T.clear(c)
        for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
            T.copy(A[by * 32, k * 64], a)
            T.copy(B[bx * 32, k * 64], b)
            T.gemm(a, b, c, transpose_B=True)
        T.copy(c, C[by * 32, bx * 32])
    return C


@tileops.jit
def reduced(A, dt: str = "int4"):
    """Sums and extremes of rows of a packed tensor, and a transposed tile."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), dt)
    total = T.empty((M,), "float32")
    most = T.empty((M,), dt)
    turned = T.empty((64, 8), "float32")
    with T.Kernel(1, threads=32) as _:
        a = T.alloc_shared((8, 64), dt)
        turn = T.alloc_shared((64, 8), dt)
        sums = T.alloc_fragment((8,), "float32")
        tops = T.alloc_fragment((8,), dt)
        T.copy(A, a)
        T.reduce_sum(a, sums, dim=1)
        T.reduce_max(a, tops, dim=1)
        T.copy(sums, total)
        T.copy(tops, most)
        T.transpose(a, turn)
        T.copy(turn, turned)
    return total, most, turned


@tileops.jit
def dynamic_rows(A, dt: str = "int4"):
    """Sizes known at the call only; an odd start is read, safe values fill what is outside."""
    M, K = T.dynamic("M, K")
    A: T.Tensor((M, K), dt)
    C = T.empty((M, K), dt)
    shifted = T.empty((M, K), "float32")
    with T.Kernel(T.ceildiv(M, 4), T.ceildiv(K, 32), threads=32) as (bx, by):
        T.annotate_safe_value({A: 1})
        tile = T.alloc_fragment((4, 32), dt)
        T.copy(A[bx * 4, by * 32], tile)
        T.copy(tile, C[bx * 4, by * 32])
        T.copy(A[bx * 4, by * 32 + 1], tile)
        T.copy(tile, shifted[bx * 4, by * 32])
    return C, shifted


@tileops.jit
def workspace(A, dt: str = "int4"):
    """A packed workspace between two launches."""
    M, K = T.const("M, K")
    A: T.Tensor((M, K), dt)
    C = T.empty((M, K), dt)
    W = T.alloc_global((M, K), dt)
    with T.Kernel(M, threads=32) as bx:
        T.copy(A[bx, 0:K], W[bx, 0:K])
    with T.Kernel(M, threads=32) as bx:
        T.copy(W[M - 1 - bx, 0:K], C[bx, 0:K])
    return C


@tileops.jit
def strided(A, B, C, dt: str = "int4"):
    """B = A by tiles and C = -A by elements; each row starts a stride further, in elements."""
    M, K, S = T.const("M, K, S")
    R = T.dynamic("R")
    A: T.StridedTensor((M, K), (S, 1), dt)
    B: T.StridedTensor((M, K), (R, 1), dt)
    C: T.StridedTensor((M, K), (2 * S, 1), dt)
    with T.Kernel(T.ceildiv(M, 8), T.ceildiv(K, 32), threads=32) as (bx, by):
        tile = T.alloc_fragment((8, 32), dt)
        T.copy(A[bx * 8, by * 32], tile)
        T.copy(tile, B[bx * 8, by * 32])
        for i, j in T.Parallel(8, 32):
            C[bx * 8 + i, by * 32 + j] = -A[bx * 8 + i, by * 32 + j]

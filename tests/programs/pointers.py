"""Programs on addresses: pointer parameters, tables of pointers, strided tensors at them."""

from __future__ import annotations

import tileops
import tileops.language as T


@tileops.jit
def from_pointer(A: T.ptr, C: T.ptr, m: T.int32, k: T.int32):
    """C = A + 1 on row-major (m, k) tensors that are passed as pointers."""
    with T.Kernel(T.ceildiv(m, 8), T.ceildiv(k, 32), threads=32) as (bx, by):
        a = T.make_tensor(A, (m, k), T.float32)
        c = T.make_tensor(C, (m, k), T.float32)
        tile = T.alloc_fragment((8, 32), T.float32)
        T.copy(a[bx * 8, by * 32], tile)
        for i, j in T.Parallel(8, 32):
            tile[i, j] = tile[i, j] + 1
        T.copy(tile, c[bx * 8, by * 32])


@tileops.jit
def scaled_rows(Rows, Sizes, factor: float = 2.0):
    """Each row, of a length of its own, is multiplied in place."""
    N = T.const("N")
    Rows: T.Tensor((N,), T.ptr)
    Sizes: T.Tensor((N,), T.int32)
    with T.Kernel(N, threads=32) as g:
        address = Rows[g]
        row = T.make_tensor(address, (Sizes[g],), T.float32)
        for k in T.serial(T.ceildiv(Sizes[g], 32)):
            for j in T.Parallel(32):
                row[k * 32 + j] = row[k * 32 + j] * factor


@tileops.jit
def gathered_columns(Tables, C, pick: int = 0):
    """A strided tensor at an address: the columns of a row-major matrix, transposed."""
    N, M, K = T.const("N, M, K")
    Tables: T.Tensor((N, 2), T.ptr)
    C: T.Tensor((N, K, M), T.float16)
    with T.Kernel(N, threads=32) as g:
        turned = T.make_tensor(Tables[g, pick], (K, M), T.float16, strides=(1, K))
        for i, j in T.Parallel(K, M):
            C[g, i, j] = turned[i, j]


@tileops.jit
def grouped_matmul(As, Bs, Cs, Ms, n: int = 48, k: int = 64, block: int = 32):
    """C[g] = A[g] @ B[g] for groups of different row counts, each by its address."""
    G = T.const("G")
    As: T.Tensor((G,), T.ptr)
    Bs: T.Tensor((G,), T.ptr)
    Cs: T.Tensor((G,), T.ptr)
    Ms: T.Tensor((G,), T.int32)
    with T.Kernel(T.ceildiv(n, block), 3, G, threads=64) as (bx, by, g):
        m = Ms[g]
        A = T.make_tensor(As[g], (m, k), T.float16)
        B = T.make_tensor(Bs[g], (k, n), T.float16)
        C = T.make_tensor(Cs[g], (m, n), T.float32)
        a = T.alloc_shared((block, 32), T.float16)
        b = T.alloc_shared((32, block), T.float16)
        acc = T.alloc_fragment((block, block), T.float32)
        if by * block < m:
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * block, ko * 32], a)
                T.copy(B[ko * 32, bx * block], b)
                T.gemm(a, b, acc)
            T.copy(acc, C[by * block, bx * block])


@tileops.jit
def packed_at_address(Ws, N: int = 2):
    """Packed rows at addresses are unpacked."""
    Ws: T.Tensor((N,), T.ptr)
    C = T.empty((N, 64), T.float32)
    with T.Kernel(N, threads=32) as g:
        w = T.make_tensor(Ws[g], (64,), T.int4)
        for j in T.Parallel(64):
            C[g, j] = T.cast(w[j], T.float32)
    return C

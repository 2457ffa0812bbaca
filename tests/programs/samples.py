"""Small programs for the tests of calls, ops and kernels."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T


@tileops.jit(name="sample_axpy")
def axpy(X, Y, alpha: T.float32, block_N: int = 256):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            Z[bx * block_N + i] = alpha * X[bx * block_N + i] + Y[bx * block_N + i]
    return Z


@tileops.jit(name="sample_add_into")
def add_into(X, Y, block_N: int = 256):
    """Writes into ``Y``."""
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            Y[bx * block_N + i] = Y[bx * block_N + i] + X[bx * block_N + i]


@tileops.jit(name="sample_sum_difference")
def sum_difference(X, Y, block_N: int = 64):
    """Two outputs, returned in the other order than they are made."""
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    Y: T.Tensor((M, N), T.float32)
    S = T.empty((M, N), T.float32)
    D = T.empty((N, M), T.float16)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            S[bx, by * block_N + i] = X[bx, by * block_N + i] + Y[bx, by * block_N + i]
            D[by * block_N + i, bx] = X[bx, by * block_N + i] - Y[bx, by * block_N + i]
    return D, S


@tileops.jit(name="sample_scaled")
def scaled(X, factor: float = 2.0, dtype: str = "float32", block_N: int = 128):
    N = T.const("N")
    X: T.Tensor((N,), dtype)
    Y = T.empty((N,), dtype)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            Y[bx * block_N + i] = X[bx * block_N + i] * factor
    return Y


@tileops.jit(name="sample_counted")
def counted(n: T.int32, start: T.int32 = 0, block_N: int = 64):
    """No tensor goes in: the caller names the device."""
    Y = T.empty((n,), T.int32)
    with T.Kernel(T.ceildiv(n, block_N)) as bx:
        for i in T.Parallel(block_N):
            Y[bx * block_N + i] = bx * block_N + i + start
    return Y


@tileops.jit(name="sample_row_sums")
def row_sums(X, block_M: int = 16):
    """Any strides; one row in two."""
    M, N = T.dynamic("M, N")
    sm, sn = T.dynamic("sm, sn")
    X: T.StridedTensor((2 * M, N), (sm, sn), T.float32)
    Y = T.empty((M,), T.float32)
    with T.Kernel(T.ceildiv(M, block_M)) as bx:
        total = T.alloc_fragment((block_M,), T.float32)
        T.clear(total)
        for k in T.serial(N):
            for i in T.Parallel(block_M):
                total[i] += X[2 * (bx * block_M + i), k]
        T.copy(total, Y[bx * block_M])
    return Y


@tileops.jit(name="sample_typed")
def typed(X, dtype, act=None, block_N=128):
    """``dtype`` has no default; ``act`` is a function that no schema carries."""
    N = T.const("N")
    X: T.Tensor((N,), dtype)
    Y = T.empty((N,), dtype)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            value = X[bx * block_N + i]
            Y[bx * block_N + i] = value if act is None else act(value)
    return Y


@tileops.jit(out_idx=[-1])
def lazy_add(N, block_N=128, dtype="float32"):
    @T.prim_func
    def main(
        A: T.Tensor((N,), dtype),
        B: T.Tensor((N,), dtype),
        C: T.Tensor((N,), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            for i in T.Parallel(block_N):
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]

    return main


@tileops.jit
def lazy_split(N, block_N=128):
    """Two results through ``out_idx`` of the caller, or written into what is passed."""

    @T.prim_func
    def main(
        A: T.Tensor((N,), T.float32), P: T.Tensor((N,), T.float32), Q: T.Tensor((N,), T.float32)
    ):
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            for i in T.Parallel(block_N):
                P[bx * block_N + i] = T.max(A[bx * block_N + i], 0)
                Q[bx * block_N + i] = T.min(A[bx * block_N + i], 0)

    return main


def relu(x):
    return T.max(x, 0)


def negate(x):
    return -x


def vector(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n).to(dtype)

"""The programs of ``tests.programs.samples`` that a package calls, by kernels of others on a GPU."""

from __future__ import annotations

import triton
import triton.language as tl

import tileops
import tileops.language as T
from tests.programs import samples


@triton.jit
def axpy_kernel(x, y, z, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + i, a * tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def sum_difference_kernel(x, y, s, d, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(x + row * n + i, mask=i < n)
    q = tl.load(y + row * n + i, mask=i < n)
    tl.store(s + row * n + i, p + q, mask=i < n)
    tl.store(d + i * m + row, p - q, mask=i < n)


@tileops.jit(name="foreign_axpy", cpu=samples.axpy)
def axpy(X, Y, alpha: T.float32, block_N: int = 256):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Extern():
        axpy_kernel[(T.ceildiv(N, block_N),)](X, Y, Z, alpha, N, BLOCK=block_N)
    return Z


@tileops.jit(name="foreign_sum_difference", cpu=samples.sum_difference)
def sum_difference(X, Y, block_N: int = 64):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    Y: T.Tensor((M, N), T.float32)
    S = T.empty((M, N), T.float32)
    D = T.empty((N, M), T.float16)
    with T.Extern():
        sum_difference_kernel[(M, T.ceildiv(N, block_N))](X, Y, S, D, M, N, BLOCK=block_N)
    return D, S

"""Programs with extents of zero: no body over them runs, on any executor."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


def empty_nest(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.int32)
    B = T.empty((M,), T.int32)
    with T.Kernel(M, threads=32) as m:
        B[m] = 0
        for _j in T.Parallel(N):
            B[m] = 1
    return B


def empty_remainder(A):
    N = T.const("N")
    A: T.Tensor((N,), T.int32)
    B = T.empty((N + 2,), T.int32)
    with T.Kernel(1, threads=32):
        B[N] = 0
        B[N + 1] = 0
        for k in T.serial(N // 32):
            for i in T.Parallel(32):
                B[k * 32 + i] = A[k * 32 + i] + 1
        for i in T.Parallel(N % 32):
            B[N // 32 * 32 + i] = A[N // 32 * 32 + i] + 1
            B[N] = 5
        for _i in T.serial(N % 32):
            B[N + 1] += 1
    return B


def empty_remainder_expected(a: torch.Tensor) -> torch.Tensor:
    left = len(a) % 32
    return torch.cat([a + 1, torch.tensor([5 if left else 0, left], dtype=torch.int32)])


def empty_nests(A):
    N = T.const("N")
    A: T.Tensor((4, N), T.int32)
    B = T.empty((4,), T.int32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(4):
            B[i] = 7
        for i, _j in T.Parallel(4, N):
            B[i] = 1
        for _j, i in T.Parallel(N, 4):
            B[i] = 2
        for i in T.Parallel(4):
            for _j in T.Parallel(N):
                B[i] = 3
    return B


def empty_loops(A):
    N = T.const("N")
    A: T.Tensor((4, N), T.int32)
    B = T.empty((4,), T.int32)
    with T.Kernel(1, threads=32):
        T.fill(B, 7)
        for i in T.Parallel(4):
            for _j in T.serial(N):
                B[i] += 1
        for _i in T.serial(N):
            for j in T.Parallel(4):
                B[j] = 2
        for _i in T.unroll(N):
            B[0] = 5
        for i, _j in T.grid(4, N):
            B[i] = 6
        for k in T.Pipelined(N, num_stages=2):
            B[k] = 8
        for _i in T.serial(5, N, 3):
            B[0] = 9
    return B


def empty_branches(A):
    N = T.const("N")
    A: T.Tensor((4, N), T.int32)
    B = T.empty((4,), T.int32)
    with T.Kernel(1, threads=32):
        T.fill(B, 7)
        if B[0] == 7:
            for _i in T.Parallel(N):
                B[0] = 10
        else:
            B[1] = 10
        if B[0] == 7:
            for _i in T.Parallel(N):
                B[0] = 11
    return B


def empty_effects(A):
    """Tiles, variables, atomics and assertions of a body that does not run."""
    N = T.const("N")
    A: T.Tensor((N,), T.int32)
    B = T.empty((3,), T.int32)
    with T.Kernel(1, threads=32):
        count = T.alloc_var(T.int32, 4)
        f = T.alloc_fragment((2,), T.int32)
        s = T.alloc_shared((1,), T.int32)
        T.fill(f, 3)
        T.fill(s, 6)
        B[0] = 0
        for i in T.Parallel(N):
            f[0] = 9
            s[0] = A[i]
            x = T.alloc_var(T.int32, A[i])
            while x > 0:
                x -= 1
            T.atomic_add(B[0], 1)
            T.device_assert(False, "a body that does not run")
        for _i in T.serial(N):
            count = 5
        B[0] += f[0]
        B[1] = count
        B[2] = s[0]
    return B


def empty_sums(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    B = T.empty((M,), T.float32)
    with T.Kernel(1, threads=32):
        r = T.alloc_reducer((M,), T.float32, op="sum", replication="all")
        T.fill(r, 0.0)
        for i, j in T.Parallel(M, N):
            r[i] += A[i, j]
        T.finalize_reducer(r)
        T.copy(r, B)
    return B


def empty_product(A, B):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=128) as (bx, by):
        a = T.alloc_shared((32, 32), T.float16)
        b = T.alloc_shared((32, 32), T.float16)
        c = T.alloc_fragment((32, 32), T.float32)
        T.clear(c)
        for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
            T.copy(A[by * 32, k * 32], a)
            T.copy(B[k * 32, bx * 32], b)
            T.gemm(a, b, c)
        T.copy(c, C[by * 32, bx * 32])
    return C


def empty_tensors(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    B = T.empty((M, N), T.float32)
    with T.Kernel(1, threads=32):
        T.fill(B, 1.0)
        T.copy(A, B)
        T.atomic_add(B, A)
        T.clear(B)
    return B


def empty_slices(A, width: int = 32):
    """A tail that is copied: nothing where the width divides N."""
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N + 3,), T.float32)
    full = N // width * width
    rest = N % width
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((width,), T.float32)
        ones = T.alloc_fragment((2, width), T.float32)
        sums = T.alloc_fragment((2,), T.float32)
        T.copy(A[0:full], B[0:full])
        T.fill(tile, 2.0)
        T.copy(A[full:N], tile[0:rest])
        T.copy(tile[0:rest], B[full:N])
        B[N] = tile[width - 1]
        T.clear(tile[0:rest])
        B[N + 1] = tile[width - 1]
        T.fill(ones, 1.0)
        T.fill(sums, 5.0)
        T.reduce_sum(ones[:, 0:rest], sums, dim=1, clear=False)
        B[N + 2] = sums[1]
    return B


def empty_slices_expected(a: torch.Tensor) -> torch.Tensor:
    return torch.cat((a, torch.tensor([2.0, 2.0, 5.0 + len(a) % 32])))


def empty_grids(A):
    N = T.const("N")
    A: T.Tensor((N,), T.int32)
    B = T.empty((4,), T.int32)
    with T.Kernel(4, threads=32) as bx:
        B[bx] = 7
    with T.Kernel(N, threads=32) as bx:
        B[bx] = 1
    with T.Kernel(4, N, threads=32) as (bx, by):
        B[bx] = by
    return B


def _sevens(*_: torch.Tensor) -> torch.Tensor:
    return torch.full((4,), 7, dtype=torch.int32)


def _products(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return ints(m, k).half(), ints(k, n).half()


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.float() @ b.float()


EMPTY = (
    Construct(empty_nest, lambda: (ints(3, 0),), lambda a: torch.zeros(3, dtype=torch.int32)),
    Construct(empty_remainder, lambda: (ints(64),), empty_remainder_expected),
    *(
        Construct(func, lambda: (ints(4, 0),), _sevens)
        for func in (empty_nests, empty_loops, empty_branches)
    ),
    Construct(
        empty_effects, lambda: (ints(0),), lambda a: torch.tensor([3, 4, 6], dtype=torch.int32)
    ),
    Construct(empty_sums, lambda: (torch.empty(3, 0),), lambda a: torch.zeros(3)),
    Construct(empty_product, lambda: _products(40, 24, 0), _product),
    Construct(empty_tensors, lambda: (torch.empty(3, 0),), lambda a: torch.empty(3, 0)),
    Construct(empty_grids, lambda: (ints(0),), _sevens),
    Construct(empty_slices, lambda: (torch.randn(64),), empty_slices_expected),
    # The same with other inputs, some of them without a zero.
    Construct(empty_nest, lambda: (ints(3, 5),), lambda a: torch.ones(3, dtype=torch.int32)),
    Construct(empty_remainder, lambda: (ints(0),), empty_remainder_expected),
    Construct(empty_remainder, lambda: (ints(37),), empty_remainder_expected),
    Construct(empty_slices, lambda: (torch.empty(0),), empty_slices_expected),
    Construct(empty_slices, lambda: (torch.randn(37),), empty_slices_expected),
    Construct(empty_product, lambda: _products(0, 24, 32), _product),
    Construct(empty_product, lambda: _products(40, 0, 32), _product),
    Construct(empty_product, lambda: _products(40, 24, 40), _product),
    Construct(empty_tensors, lambda: (torch.empty(0, 3),), lambda a: torch.empty(0, 3)),
    Construct(empty_tensors, lambda: (torch.ones(3, 5),), torch.zeros_like),
)

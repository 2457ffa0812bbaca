"""Programs whose tensors have layouts: every kind of access, with the exact result as stored."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


def bands(t):
    """Element (i, j) lies at (i // 8, j, i % 8)."""
    return T.Layout(t.shape, lambda i, j: (i // 8, j, i % 8))


def in_bands(x: torch.Tensor) -> torch.Tensor:
    """``x`` as ``bands`` stores it."""
    m, n = x.shape
    return x.reshape(m // 8, 8, n).transpose(1, 2).reshape(m, n)


def out_of_bands(x: torch.Tensor) -> torch.Tensor:
    """``x``, stored as ``bands`` says, by index."""
    m, n = x.shape
    return x.reshape(m // 8, n, 8).transpose(1, 2).reshape(m, n)


def placed_copies(A):
    """Tiles that hang over the edges; what is outside reads as the safe value."""
    A: T.Tensor((24, 20), T.int32)
    C = T.empty((2, 16, 24), T.int32)
    with T.Kernel(2, 2, threads=64) as (bx, by):
        T.annotate_layout({A: bands(A)})
        T.annotate_safe_value({A: -7})
        s = T.alloc_shared((16, 12), T.int32)
        f = T.alloc_fragment((16, 12), T.int32)
        T.copy(A[by * 16, bx * 12], s)
        T.copy(s, f)
        T.copy(f, C[by, :, bx * 12 : (bx + 1) * 12])
    return C


def placed_copies_expected(a: torch.Tensor) -> torch.Tensor:
    full = torch.full((32, 24), -7, dtype=torch.int32)
    full[:24, :20] = out_of_bands(a)
    return full.reshape(2, 16, 24)


def placed_tiles(A):
    """Tiles that hang over the edges, from one layout to another."""
    A: T.Tensor((24, 20), T.int32)
    B = T.empty((24, 20), T.int32)
    with T.Kernel(2, 2, threads=64) as (bx, by):
        T.annotate_layout({A: lambda i, j: (j, i), B: bands(B)})
        f = T.alloc_fragment((16, 12), T.int32)
        T.copy(A[by * 16, bx * 12], f)
        T.copy(f, B[by * 16, bx * 12])
    return B


def placed_tiles_expected(a: torch.Tensor) -> torch.Tensor:
    return in_bands(a.reshape(20, 24).T)


def placed_writes(A):
    """Copies from global to global, stores of elements, fills and conditions."""
    A: T.Tensor((24, 20), T.int32)
    B = T.empty((24, 20), T.int32)
    with T.Kernel(3, threads=64) as bx:
        T.annotate_layout({B: lambda i, j: [j, i % 3, i // 3]})
        T.fill(B[bx * 8 : bx * 8 + 8, 0:10], 5)
        T.copy(A[bx * 8 : bx * 8 + 8, 10:24], B[bx * 8 : bx * 8 + 8, 10:24])
        for i, j in T.Parallel(8, 10):
            if (i + j) % 3 == 0:
                B[bx * 8 + i, j] = A[bx * 8 + i, j] * 2
        B[bx * 8, 0] = B[bx * 8, 11] + 1
        B[bx * 8 + 100, 0] = 1
        B[bx * 8, 2 - T.max(bx, 3)] = 1
    return B


def placed_writes_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.full_like(a, 5)
    out[:, 10:] = a[:, 10:]
    i, j = torch.meshgrid(torch.arange(24), torch.arange(10), indexing="ij")
    hit = (i % 8 + j) % 3 == 0
    out[:, :10][hit] = a[:, :10][hit] * 2
    out[::8, 0] = out[::8, 11] + 1
    return out.reshape(8, 3, 20).permute(2, 1, 0).reshape(24, 20)


def placed_atomics(A):
    """Atomics of elements and of tiles, a value before, and a gather and a scatter."""
    A: T.Tensor((16, 20), T.int32)
    B = T.empty((16, 20), T.int32)
    with T.Kernel(1, threads=64):
        T.annotate_layout({B: bands(B), A: lambda i, j: 20 * i + j})
        tile = T.alloc_fragment((16, 20), T.int32)
        T.clear(B)
        T.copy(A, tile)
        T.atomic_add(B, tile)
        T.atomic_max(B[0:8, 0:5], tile[8:16, 0:5])
        T.atomic_add(B[12, 8], A[2:6, 4:8])
        for i in T.Parallel(16):
            T.atomic_add(B[i, (i * 7) % 20], i)
            T.atomic_add(B[i + 9, 19], 100)
        old = T.atomic_add(B[3, 3], 4, return_prev=True)
        T.atomic_store(B[4, 4], old)
        B[5, 5] = T.atomic_load(B[3, 3]) + B[4, 4]
    return B


def placed_atomics_expected(a: torch.Tensor) -> torch.Tensor:
    out = a.clone()
    out[:8, :5] = torch.maximum(out[:8, :5], a[8:, :5])
    out[12:16, 8:12] += a[2:6, 4:8]
    i = torch.arange(16)
    out[i, (i * 7) % 20] += i.int()
    out[9:, 19] += 100
    old = out[3, 3].clone()
    out[3, 3] += 4
    out[4, 4] = old
    out[5, 5] = out[3, 3] + out[4, 4]
    return in_bands(out)


def placed_workspace(A):
    """A workspace and a byte tensor that two launches lay out alike; a swizzle by exclusive or."""
    A: T.Tensor((32, 8), T.uint8)
    W = T.alloc_global((32, 8), T.int32)
    B = T.empty((32, 8), T.int32)
    with T.Kernel(2, threads=32) as bx:
        T.annotate_layout({W: lambda i, j: (i, (j ^ (i % 8)))})
        for i, j in T.Parallel(16, 8):
            W[bx * 16 + i, j] = T.cast(A[bx * 16 + i, j], T.int32) - 100
    with T.Kernel(1, threads=32):
        T.annotate_layout({W: lambda i, j: (i, (j ^ (i % 8))), A: lambda i, j: (j, i)})
        total = T.alloc_fragment((32,), T.int32)
        tile = T.alloc_fragment((32, 8), T.int32)
        T.copy(W, tile)
        T.reduce_sum(tile, total, dim=1)
        for i, j in T.Parallel(32, 8):
            B[i, j] = total[i] + W[i, j] * T.cast(A[i, j], T.int32)
    return B


def placed_workspace_expected(a: torch.Tensor) -> torch.Tensor:
    w = a.int() - 100
    return w.sum(1, keepdim=True).int() + w * a.flatten().reshape(8, 32).T.int()


def placed_rows(A, S):
    """A dimension whose extent is only known at run time may be moved; other views of a size."""
    N = T.dynamic("N")
    A: T.Tensor((N, 3, 16), T.float32)
    S: T.Tensor((N,), T.int32)
    B = T.empty((N, 3, 16), T.float32)
    with T.Kernel(T.ceildiv(N, 8), 3, threads=32) as (bx, by):
        T.annotate_layout({A: T.Layout(A.shape, lambda n, h, d: [h, n, d])})
        t = T.alloc_fragment((8, 16), T.float32)
        T.copy(A[bx * 8 : bx * 8 + 8, by, :], t)
        for i, j in T.Parallel(8, 16):
            t[i, j] += A[S[bx * 8 + i], by, j]
        T.copy(t, B[bx * 8 : bx * 8 + 8, by, :])
    return B


def placed_rows_expected(a: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    by_index = a.reshape(3, -1, 16).transpose(0, 1)
    return by_index + by_index[s.long()]


PLACED = (
    Construct(placed_copies, lambda: (ints(24, 20),), placed_copies_expected),
    Construct(placed_tiles, lambda: (ints(24, 20),), placed_tiles_expected),
    Construct(placed_writes, lambda: (ints(24, 20),), placed_writes_expected),
    Construct(placed_atomics, lambda: (ints(16, 20),), placed_atomics_expected),
    Construct(
        placed_workspace,
        lambda: (torch.randint(0, 256, (32, 8), dtype=torch.uint8),),
        placed_workspace_expected,
    ),
    Construct(
        placed_rows,
        lambda: (torch.randn(21, 3, 16), ints(21, low=0, high=21)),
        placed_rows_expected,
    ),
)

"""Programs that reach elements at computed places, some outside, with their exact results."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


def shifts_in_two_dimensions(A, S):
    """Part of a tile is written at run-time places of both dimensions, in steps, under conditions."""
    A: T.Tensor((4, 8), T.int32)
    S: T.Tensor((2,), T.int32)
    C = T.empty((5, 16, 32), T.int32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((16, 32), T.int32)
        a = S[0]
        b = S[1]
        T.clear(tile)
        for i, j in T.Parallel(4, 8):
            tile[a + i, b + 2 * j] = A[i, j]
        T.copy(tile, C[0, :, :])
        for i, j in T.Parallel(4, 8):
            if A[i, j] > 0:
                tile[a + 3 - i, b + j] = A[i, j] + 100
        T.copy(tile, C[1, :, :])
        for i, j in T.Parallel(4, 8):
            if i > 1 and j < 5:
                tile[a + j, b + i * 3] = A[i, j] + 200
        T.copy(tile, C[2, :, :])
        T.copy(A, tile[a : a + 4, b : b + 8])
        T.copy(tile, C[3, :, :])
        T.cumsum(tile[a : a + 4, b : b + 8], dim=1, reverse=True)
        T.copy(tile, C[4, :, :])
    return C


def shifts_in_two_dimensions_expected(a: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    row, column = s.tolist()
    tile, out = torch.zeros(16, 32, dtype=torch.int32), []
    tile[row : row + 4, column : column + 16 : 2] = a
    out.append(tile.clone())
    part = tile[row : row + 4, column : column + 8]
    part.copy_(torch.where(a.flip(0) > 0, a.flip(0) + 100, part))
    out.append(tile.clone())
    tile[row : row + 5, column + 6 : column + 12 : 3] = a[2:, :5].T + 200
    out.append(tile.clone())
    part.copy_(a)
    out.append(tile.clone())
    part.copy_(a.flip(1).cumsum(1).flip(1))
    return torch.stack([*out, tile])


def results_of_skipped_atomics(A):
    """An atomic outside its tensor is skipped and gives what a read there gives: 0."""
    A: T.Tensor((16,), T.int32)
    C = T.empty((4, 16), T.int32)
    with T.Kernel(1, threads=32):
        for i, j in T.Parallel(2, 16):
            C[i, j] = A[j]
        for i in T.serial(16):
            before = T.atomic_add(C[0, i + 3], i + 1, return_prev=True)
            C[2, i] = before + 1
        for i in T.Parallel(16):
            before = T.atomic_max(C[1, i - 3], 3, return_prev=True)
            C[3, i] = before
    return C


def results_of_skipped_atomics_expected(a: torch.Tensor) -> torch.Tensor:
    none = torch.zeros(3, dtype=torch.int32)
    added = torch.cat([none, torch.arange(1, 14)])
    results = [torch.cat([a[3:], none]) + 1, torch.cat([none, a[:13]])]
    most = torch.cat([a[:13].clamp(min=3), a[13:]])
    return torch.stack([a + added, most, *results]).int()


def constant_places(A):
    """Constant indices beyond a tensor: reads give 0, stores and atomics are dropped."""
    A: T.Tensor((16,), T.int32)
    C = T.empty((48,), T.int32)
    with T.Kernel(1, threads=32):
        for j in T.Parallel(48):
            C[j] = j
        T.atomic_add(C[48], A[3])
        C[60] = 5
        C[3] = A[99] + 1
        for i in T.Parallel(16):
            C[i + 16] = A[20] + i
        for i in T.Parallel(16):
            if A[i] > 0:
                T.atomic_add(C[50], A[i])
                T.atomic_add(C[-1], 1)
        if A[0] > 0:
            T.atomic_add(C[50], A[0])
            C[51] = 3
    return C


def constant_places_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.arange(48, dtype=torch.int32)
    out[3] = 1
    out[16:32] = torch.arange(16)
    out[-1] += int((a > 0).sum())
    return out


def reductions_into_slices(A):
    """Sums into a row, a column, a page and an element of tiles that hold more than the result."""
    A: T.Tensor((3, 6, 40), T.int32)
    R = T.empty((5, 46), T.int32)
    with T.Kernel(1, threads=64) as _:
        x = T.alloc_shared((3, 6, 40), T.int32)
        page = T.alloc_shared((6, 40), T.int32)
        rows = T.alloc_fragment((5, 6), T.int32)
        columns = T.alloc_fragment((6, 3), T.int32)
        pages = T.alloc_shared((2, 5, 1, 40), T.int32)
        T.copy(A, x)
        T.fill(rows, 1)
        T.fill(pages, 2)
        for k in T.serial(3):
            T.reduce_sum(x[k, 0:6, k * 8 : k * 8 + 20], rows[k, 0:6], dim=-1)
            T.copy(x[k, 0:6, 0:40], page)
            T.reduce_max(page[0:6, 0:24], columns[0:6, k : k + 1], dim=1)
            T.reduce_sum(x[k : k + 1, 0:6, 0:40], pages[1, k : k + 1, 0, 0:40], dim=1)
        T.reduce_max(rows[0:3, 0:6], rows[4, 0:6], dim=0)
        T.reduce_sum(columns[0:6, 1:2], rows[3, 2:3], dim=0, clear=False)
        T.copy(rows, R[0:5, 0:6])
        T.copy(pages[1, 0:5, 0, 0:40], R[0:5, 6:46])
    return R


def reductions_into_slices_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.ones(5, 46, dtype=torch.int32)
    for k in range(3):
        out[k, :6] = a[k, :, k * 8 : k * 8 + 20].sum(1)
    out[4, :6] = out[:3, :6].amax(0)
    out[3, 2] += a[1, :, :24].amax(1).sum()
    out[:3, 6:], out[3:, 6:] = a.sum(1), 2
    return out


ELEMENTS = (
    Construct(constant_places, lambda: (ints(16),), constant_places_expected),
    Construct(
        shifts_in_two_dimensions,
        lambda: (
            ints(4, 8),
            torch.stack([torch.randint(0, 9, ()), torch.randint(0, 15, ())]).int(),
        ),
        shifts_in_two_dimensions_expected,
    ),
    Construct(reductions_into_slices, lambda: (ints(3, 6, 40),), reductions_into_slices_expected),
    Construct(results_of_skipped_atomics, lambda: (ints(16),), results_of_skipped_atomics_expected),
)

"""Programs of atomics on tiles and on neighbouring elements, each with inputs and its exact result."""

from __future__ import annotations

import functools

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


def ored(A):
    A: T.Tensor((4, 33), T.int32)
    B = T.empty((4, 33), T.int32)
    all_of_them = T.alloc_global((34,), T.int32)
    with T.Kernel(1, threads=32):
        T.clear(all_of_them)
    with T.Kernel(4, threads=32) as bx:
        t = T.alloc_fragment((33,), T.int32)
        s = T.alloc_shared((33,), T.int32)
        T.copy(A[bx, 0], t)
        T.clear(s)
        T.atomic_or(s, t)
        T.atomic_or(s[0:16], 1 << 20)
        for i in T.Parallel(33):
            T.atomic_or(s[i], 1 << 21)
        T.atomic_or(all_of_them[0:33], s)
        before = T.atomic_or(all_of_them[33], 1 << bx, "relaxed", True)
        T.device_assert(before & (1 << bx) == 0)
    with T.Kernel(4, threads=32) as bx:
        T.copy(all_of_them[0:33], B[bx, :])
        B[bx, 32] = all_of_them[33]
    return B


def ored_expected(a: torch.Tensor) -> torch.Tensor:
    once = functools.reduce(torch.bitwise_or, a) | 1 << 21
    once[:16] |= 1 << 20
    once[32] = 15
    return once.expand(4, 33).contiguous()


def neighbours(A):
    A: T.Tensor((6, 8), T.float32)
    B = T.empty((5, 8), T.float32)
    with T.Kernel(1, threads=32):
        T.clear(B)
    with T.Kernel(6, threads=32) as bx:
        s = T.alloc_shared((8,), T.float32)
        four = T.alloc_fragment((4,), T.float32)
        pair = T.alloc_fragment((1, 2), T.float32)
        T.copy(A[bx, 0], s)
        T.copy(A[bx, 0:4], four)
        T.copy(A[bx, 0:2], pair)
        for j in T.Parallel(2):
            T.atomic_addx4(B[0, j * 4 : j * 4 + 4], s[j * 4 : j * 4 + 4])
            T.atomic_addx4(B[1, j * 4], s[j * 4 : j * 4 + 4])
        for j in T.Parallel(4):
            T.atomic_addx2(B[2:3, j * 2 : j * 2 + 2], s[j * 2])
        T.atomic_addx4(B[3, 0], four)
        T.atomic_addx2(B[4, 2:4], pair)
    return B


def neighbours_expected(a: torch.Tensor) -> torch.Tensor:
    sums = a.sum(0).expand(5, 8).clone()
    sums[3, 4:] = 0
    sums[4] = 0
    sums[4, 2:4] = sums[0, :2]
    return sums


ATOMICS = (
    Construct(ored, lambda: (ints(4, 33, low=0, high=1 << 16),), ored_expected),
    # Small whole numbers: sums are exact in any order.
    Construct(neighbours, lambda: (ints(6, 8).float(),), neighbours_expected),
)

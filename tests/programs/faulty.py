"""Programs with a fault that only a run shows, and the line on which it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

import tileops
import tileops.language as T

INDICES = torch.tensor([0, 1, 2, 3, 4, 5, 6, 15], dtype=torch.int32)
WRONG = torch.tensor([0, 1, 2, 16, 4, 5, 6, 15], dtype=torch.int32)
NEGATIVE = torch.tensor([0, 1, 2, 3, 4, -7, 6, 15], dtype=torch.int32)
VALUES = torch.arange(16.0)


def line_of(program: Any, text: str) -> int:
    """The number of the line of ``program`` that holds ``text``."""
    lines, first = inspect.getsourcelines(program.func)
    return first + next(n for n, line in enumerate(lines) if text in line)


@tileops.jit
def check_read(A, I):
    A: T.Tensor((16,), T.float32)
    I: T.Tensor((8,), T.int32)
    B = T.empty((8,), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((16,), T.float32)
        T.copy(A, tile)
        for i in T.Parallel(8):
            B[i] = tile[I[i]]
    return B


@tileops.jit
def check_write(A, I):
    A: T.Tensor((16,), T.float32)
    I: T.Tensor((8,), T.int32)
    B = T.empty((2, 16), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((2, 16), T.float32)
        T.clear(tile)
        for i in T.serial(8):
            tile[1, I[i]] = A[i]
        T.copy(tile, B)
    return B


@tileops.jit
def check_region(A, I):
    A: T.Tensor((16,), T.float32)
    I: T.Tensor((8,), T.int32)
    B = T.empty((8, 4), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((20,), T.float32)
        row = T.alloc_fragment((4,), T.float32)
        T.fill(tile, 0)
        T.copy(A, tile[0:16])
        for i in T.serial(8):
            T.copy(tile[I[i] : I[i] + 4], row)
            T.copy(row, B[i, 0:4])
    return B


@tileops.jit
def check_guarded(A, I):
    A: T.Tensor((16,), T.float32)
    I: T.Tensor((8,), T.int32)
    B = T.empty((8,), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((16,), T.float32)
        T.copy(A, tile)
        for i in T.Parallel(8):
            known = I[i] >= 0 and I[i] < 16
            B[i] = T.if_then_else(known, tile[I[i]], -1.0)
    return B


@tileops.jit
def check_assert(A, limit: T.float32):
    A: T.Tensor((12,), T.float32)
    B = T.empty((12,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(12):
            T.device_assert(A[i] < limit, "a value over the limit")
            B[i] = A[i]
    return B


@tileops.jit
def check_uninitialised(A):
    A: T.Tensor((16,), T.float32)
    B = T.empty((16,), T.float32)
    with T.Kernel(1, threads=32):
        half = T.alloc_fragment((16,), T.float32)
        whole = T.alloc_fragment((16,), T.float32)
        for i in T.Parallel(8):
            half[i] = A[i]
        T.copy(half, whole)
        T.copy(whole, B)
    return B


@tileops.jit
def check_root(A):
    A: T.Tensor((16,), T.float32)
    B = T.empty((16,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(16):
            B[i] = T.sqrt(A[i])
    return B


# Program, wrong indices, the line with the fault, and what the message must say.
OUTSIDE: list[tuple[Callable[..., Any], torch.Tensor, str, str]] = [
    (check_read, WRONG, "tile[I[i]]", "buffer 'tile': the index 16 is outside 0..15"),
    (check_read, NEGATIVE, "tile[I[i]]", "buffer 'tile': the index -7 is outside 0..15"),
    (check_write, WRONG, "tile[1, I[i]]", "buffer 'tile', dimension 1: the index 16 is"),
    (check_region, NEGATIVE, "T.copy(tile[I[i]", "buffer 'tile': the index -7 is outside 0..19"),
]
IDS = [f"{case[0].func.__name__}-{int(case[1].min())}" for case in OUTSIDE]

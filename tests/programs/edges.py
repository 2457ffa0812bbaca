"""Programs at the edges of arithmetic, with their exact results: NaN, infinity and negative zero."""

from __future__ import annotations

import math

import torch

import tileops.language as T
from tests.programs.construct import Construct


def extremes_of_nans(A, H):
    """A number beats NaN; of NaNs alone remains what the reduction starts from, by any shape."""
    A: T.Tensor((8, 16), T.float32)
    H: T.Tensor((6, 11), T.float16)
    C = T.empty((4, 8), T.float32)
    with T.Kernel(1, threads=32):
        wide = T.alloc_fragment((8, 16), T.float32)
        row = T.alloc_fragment((8,), T.float32)
        T.copy(A, wide)
        T.reduce_max(wide, row, dim=1)
        T.copy(row, C[0, :])
        T.reduce_min(wide, row, dim=1)
        T.copy(row, C[1, :])
        T.reduce_absmax(wide, row, dim=1)
        T.copy(row, C[2, :])
        narrow = T.alloc_fragment((6, 11), T.float16)
        few = T.alloc_fragment((6,), T.float16)
        T.copy(H, narrow)
        T.reduce_max(narrow, few, dim=1)
        for i in T.Parallel(8):
            C[3, i] = T.if_then_else(i < 6, few[i % 6], 0)
    return C


def extremes_of_nans_expected(a: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    def numbers(x: torch.Tensor, instead: float) -> torch.Tensor:
        return torch.where(x.isnan(), instead, x)

    last = torch.zeros(8)
    last[:6] = numbers(h, -math.inf).amax(1)
    rows = [numbers(a, -math.inf).amax(1), numbers(a, math.inf).amin(1)]
    return torch.stack([*rows, numbers(a, 0.0).abs().amax(1), last])


def negatives(A, H, B, D):
    """One over the negative of each element: it shows which zero the negative is."""
    A: T.Tensor((8,), T.float32)
    H: T.Tensor((8,), T.float16)
    B: T.Tensor((8,), T.bfloat16)
    D: T.Tensor((8,), T.float64)
    C = T.empty((5, 8), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((8,), T.float32)
        T.copy(A, tile)
        for i in T.Parallel(8):
            tile[i] = -tile[i]
        for i in T.Parallel(8):
            C[0, i] = 1.0 / (-A[i])
            C[1, i] = 1.0 / T.cast(-H[i], T.float32)
            C[2, i] = 1.0 / T.cast(-B[i], T.float32)
            C[3, i] = 1.0 / T.cast(-D[i], T.float32)
            C[4, i] = 1.0 / tile[i]
    return C


def negatives_expected(*inputs: torch.Tensor) -> torch.Tensor:
    one = torch.stack([1.0 / -x.float() for x in inputs])
    return torch.cat([one, one[:1]])


def _zeros_and_powers() -> torch.Tensor:
    return torch.tensor([0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, 0.5, -0.25])


def _with_nans(rows: int, columns: int) -> torch.Tensor:
    x = torch.randn(rows, columns)
    x[0, 3] = math.nan
    x[1] = math.nan
    x[2, 1:3] = torch.tensor([math.inf, math.nan])
    x[3] = -math.inf
    x[4, 5] = -math.inf
    return x


EDGES = (
    Construct(
        extremes_of_nans,
        lambda: (_with_nans(8, 16), _with_nans(6, 11).half()),
        extremes_of_nans_expected,
    ),
    Construct(
        negatives,
        lambda: tuple(
            _zeros_and_powers().to(dtype)
            for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)
        ),
        negatives_expected,
    ),
)

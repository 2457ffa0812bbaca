"""Programs at the edges, with their exact results: NaN, infinity, negative zero, a last tile."""

from __future__ import annotations

import math

import torch

import tileops.language as T
from tests.programs.construct import Construct


def im2col_past_the_taps(X):
    """4 taps of 3 channels are 12 columns; a tile of 8 reaches past them, where an image has NaN."""
    X: T.Tensor((1, 4, 4, 3), T.float16)
    Y = T.empty((9, 16), T.float32)
    with T.Kernel(2, threads=32) as bx:
        tile = T.alloc_shared((9, 8), T.float16)
        T.im2col(X, tile, 0, bx, 2, 1, 1, 0)
        T.copy(tile, Y[0, bx * 8])
    return Y


def im2col_past_the_taps_expected(x: torch.Tensor) -> torch.Tensor:
    windows = [x[0, i : i + 2, j : j + 2].reshape(12) for i in range(3) for j in range(3)]
    return torch.nn.functional.pad(torch.stack(windows), (0, 4)).float()


def _image_with_nans() -> torch.Tensor:
    x = torch.randn(1, 4, 4, 3).half()
    x[0, 2:] = math.nan
    return x


def extremes_of_nans(A, H):
    """A number beats NaN; of NaNs alone remains NaN, by any shape."""
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
    def greatest(x: torch.Tensor) -> torch.Tensor:
        found = torch.where(x.isnan(), -math.inf, x).amax(1)
        return torch.where(x.isnan().all(1), math.nan, found)

    last = torch.zeros(8)
    last[:6] = greatest(h)
    return torch.stack([greatest(a), -greatest(-a), greatest(a.abs()), last])


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


def quotients(A, B, H, G, E):
    """Quotients and remainders are rounded in the operands' type; infinities and sizes far apart."""
    A: T.Tensor((64,), T.float32)
    B: T.Tensor((64,), T.float32)
    H: T.Tensor((64,), T.float16)
    G: T.Tensor((64,), T.bfloat16)
    E: T.Tensor((64,), T.float8_e5m2)
    C = T.empty((7, 64), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            C[0, i] = A[i] % B[i]
            C[1, i] = H[i] / T.cast(B[i], T.float16)
            C[2, i] = H[i] % T.cast(B[i], T.float16)
            C[3, i] = G[i] / T.cast(B[i], T.bfloat16)
            C[4, i] = H[i] / 3
            C[5, i] = T.fmod(A[i], B[i])
            C[6, i] = T.copysign(E[i], T.cast(B[i], T.float8_e5m2))
    return C


def quotients_expected(*inputs: torch.Tensor) -> torch.Tensor:
    a, b, h, g, e = inputs
    rows = [
        a.remainder(b),
        (h.float() / b.half().float()).half(),
        h.float().remainder(b.half().float()).half(),
        (g.float() / b.bfloat16().float()).bfloat16(),
        (h.float() / 3).half(),
        a.fmod(b),
        e.float().copysign(b),
    ]
    return torch.stack([x.float() for x in rows])


def remainders(A, B):
    """Remainders are exact however large the quotient is."""
    A: T.Tensor((64,), T.float64)
    B: T.Tensor((64,), T.float64)
    C = T.empty((3, 64), T.float64)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            C[0, i] = A[i] % B[i]
            C[1, i] = T.fmod(A[i], B[i])
            C[2, i] = A[i] % 7
    return C


def remainders_expected(*inputs: torch.Tensor) -> torch.Tensor:
    a, b = inputs
    return torch.stack([a.remainder(b), a.fmod(b), a.remainder(7)])


def _dividends(dtype: torch.dtype) -> torch.Tensor:
    x = torch.randn(64) * 100
    x[:5] = torch.tensor([3.0, -3.0, 1e30, -1e30, 0.25])
    x[4:6] = math.inf if dtype == torch.float8_e5m2 else 7.0
    return x.clamp(-6e4, 6e4).to(dtype) if dtype == torch.float16 else x.to(dtype)


def _divisors() -> torch.Tensor:
    x = torch.randn(64)
    x = torch.where(x.abs() < 0.01, 1.0, x)
    x[:4] = torch.tensor([math.inf, math.inf, 3.3, 3.3])
    return x


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
        quotients,
        lambda: (
            _dividends(torch.float32),
            _divisors(),
            _dividends(torch.float16),
            _dividends(torch.bfloat16),
            _dividends(torch.float8_e5m2),
        ),
        quotients_expected,
    ),
    Construct(
        remainders,
        lambda: (_dividends(torch.float64) * 1e100, _divisors().double()),
        remainders_expected,
    ),
    Construct(
        im2col_past_the_taps,
        lambda: (_image_with_nans(),),
        im2col_past_the_taps_expected,
    ),
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

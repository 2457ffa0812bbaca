"""Programs over any number of leading dimensions and several dtypes: norms, one of which adds in place."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.family_case import TINY, U_SUM, UNIT, Bounded, FamilyCase

U32 = UNIT[torch.float32]


@tileops.jit
def any_rms_norm(X, W, eps: float = 1e-6, rows: int = 4):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    X: T.Tensor((..., N), dt)
    W: T.Tensor((N,), dt)
    Y = T.empty((..., N), dt)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=128) as bx:
        given = T.alloc_fragment((rows, N), dt)
        x = T.alloc_fragment((rows, N), T.float32)
        square = T.alloc_fragment((rows, N), T.float32)
        scale = T.alloc_fragment((rows,), T.float32)
        T.copy(X[bx * rows, 0], given)
        for i, j in T.Parallel(rows, N):
            x[i, j] = T.cast(given[i, j], T.float32)
            square[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(square, scale, dim=1)
        for i in T.Parallel(rows):
            scale[i] = T.rsqrt(scale[i] / N + eps)
        for i, j in T.Parallel(rows, N):
            given[i, j] = T.cast(x[i, j] * scale[i] * T.cast(W[j], T.float32), dt)
        T.copy(given, Y[bx * rows, 0])
    return Y


@tileops.jit
def any_row_scale(X, eps: float = 1e-6, rows: int = 4):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    X: T.Tensor((..., N), dt)
    rstd = T.empty((...,), T.float32)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=128) as bx:
        square = T.alloc_fragment((rows, N), T.float32)
        scale = T.alloc_fragment((rows,), T.float32)
        for i, j in T.Parallel(rows, N):
            x = T.cast(X[bx * rows + i, j], T.float32)
            square[i, j] = x * x
        T.reduce_sum(square, scale, dim=1)
        for i in T.Parallel(rows):
            scale[i] = T.rsqrt(scale[i] / N + eps)
        T.copy(scale, rstd[bx * rows])
    return rstd


@tileops.jit(differentiable=False)
def any_add_rms_norm(X, residual, eps: float = 1e-6, rows: int = 2):
    N = T.const("N")
    S = T.dynamic("S")
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    X: T.StridedTensor((..., N), (S, 1), dt)
    residual: T.Tensor((..., N), T.float32)
    Y = T.empty((..., N), dt)
    with T.Kernel(T.ceildiv(X.shape[0], rows), threads=128) as bx:
        x = T.alloc_fragment((rows, N), T.float32)
        square = T.alloc_fragment((rows, N), T.float32)
        scale = T.alloc_fragment((rows,), T.float32)
        T.copy(residual[bx * rows, 0], x)
        for i, j in T.Parallel(rows, N):
            x[i, j] += T.cast(X[bx * rows + i, j], T.float32)
            square[i, j] = x[i, j] * x[i, j]
        T.copy(x, residual[bx * rows, 0])
        T.reduce_sum(square, scale, dim=1)
        for i, j in T.Parallel(rows, N):
            Y[bx * rows + i, j] = T.cast(x[i, j] * T.rsqrt(scale[i] / N + eps), dt)
    return Y


def _normed(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The norm of float64 rows, their scales, and the relative error of the norm."""
    rstd = torch.rsqrt((x * x).mean(-1) + 1e-6)
    # The terms of the sum are positive; a division, a square root and two products follow.
    return x * rstd[..., None], rstd, (x.shape[-1] + 2) * U_SUM + 10 * U32 + UNIT[dtype]


def _norm_reference(x, w) -> list[Bounded]:
    value, _, error = _normed(x.double(), x.dtype)
    value = value * w.double()
    return [(value, value.abs() * error + TINY[x.dtype])]


def _scale_reference(x) -> list[Bounded]:
    _, rstd, error = _normed(x.double(), torch.float32)
    return [(rstd, rstd * error)]


def _add_reference(x, residual) -> list[Bounded]:
    total = residual.double() + x.double()
    value, _, error = _normed(total, x.dtype)
    # A sum in float32 is off by half a unit, which a norm magnifies by the scale alone.
    return [
        (value, value.abs() * (error + 2 * U32) + TINY[x.dtype]),
        (total, U32 * total.abs()),
    ]


def _cases() -> Iterator[FamilyCase]:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for shape in ((50,), (9, 50), (2, 3, 5, 32)):
            yield FamilyCase(
                f"rms_norm-{name}-{len(shape)}d",
                any_rms_norm,
                lambda s=shape, d=dtype: (torch.randn(s).to(d), torch.randn(s[-1]).to(d)),
                _norm_reference,
            )
        yield FamilyCase(
            f"row_scale-{name}",
            any_row_scale,
            lambda d=dtype: (torch.randn(2, 8, 50).to(d),),
            _scale_reference,
        )
        yield FamilyCase(
            f"add_rms_norm-{name}",
            any_add_rms_norm,
            lambda d=dtype: (torch.randn(3, 4, 96).to(d)[..., :48], torch.randn(3, 4, 48)),
            _add_reference,
            mutated=(1,),
        )


CASES = tuple(_cases())

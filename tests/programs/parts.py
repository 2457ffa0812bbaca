"""Programs over extents that GPUs hold in parts, and over 8-bit floats, with their exact results."""

from __future__ import annotations

from typing import Any

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


# -- extents in parts ------------------------------------------------------------------------------
def gemm_of_96(A, B):
    """Every extent is 64 + 32: operands, sums, a nest with places, a reduction on top."""
    A: T.Tensor((96, 192), T.float16)
    B: T.Tensor((96, 192), T.float16)
    C = T.empty((96, 97), T.float32)
    with T.Kernel(1, threads=128) as _:
        a = T.alloc_shared((96, 96), T.float16)
        b = T.alloc_shared((96, 96), T.float16)
        acc = T.alloc_fragment((96, 96), T.float32)
        top = T.alloc_fragment((96,), T.float32)
        T.clear(acc)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 96], a)
            T.copy(B[0, k * 96], b)
            T.gemm(a, b, acc, transpose_B=True)
        for i, j in T.Parallel(96, 96):
            acc[i, j] = T.if_then_else(j <= i, acc[i, j], -1000)
        T.reduce_max(acc, top, dim=1)
        T.copy(acc[0:96, 0:96], C[0:96, 0:96])
        for i in T.Parallel(96):
            C[i, 96] = top[i]
    return C


def gemm_of_96_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = a.float() @ b.float().T
    product = torch.where(torch.ones(96, 96).tril() > 0, product, torch.tensor(-1000.0))
    return torch.cat([product, product.amax(1, keepdim=True)], 1)


def latent_attention(Q, KV):
    """One step of attention on a latent cache: 576 columns are keys, the first 512 of them values."""
    Q: T.Tensor((16, 576), T.float16)
    KV: T.Tensor((64, 576), T.float16)
    O = T.empty((16, 512), T.float32)
    with T.Kernel(1, threads=128) as _:
        q = T.alloc_shared((16, 576), T.float16)
        kv = T.alloc_shared((32, 576), T.float16)
        s = T.alloc_fragment((16, 32), T.float32)
        p = T.alloc_shared((16, 32), T.float16)
        acc = T.alloc_fragment((16, 512), T.float32)
        T.copy(Q, q)
        T.clear(acc)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(KV[k * 32 : (k + 1) * 32, :], kv)
            T.gemm(q, kv, s, transpose_B=True, clear_accum=True)
            T.copy(s, p)
            T.gemm(p, kv[:, 0:512], acc)
        T.copy(acc, O)
    return O


def latent_attention_expected(q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    return (q.float() @ kv.float().T) @ kv[:, :512].float()


# -- 8-bit floats ----------------------------------------------------------------------------------
def fp8_program(dtype: str) -> Any:
    def fp8_arithmetic(A, B):
        """A tile that is rounded at each update, copies with conversions, a product, a reduction."""
        A: T.Tensor((64, 64), dtype)
        B: T.Tensor((64, 64), T.float32)
        C = T.empty((64, 130), T.float32)
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 64), dtype)
            f = T.alloc_fragment((64, 64), dtype)
            acc = T.alloc_fragment((64, 64), T.float32)
            top = T.alloc_fragment((64,), T.float32)
            T.copy(A, a)
            T.copy(B, f)
            for i, j in T.Parallel(64, 64):
                f[i, j] += a[i, j]
                x = f[i, j] * T.cast(0.5, dtype)
                f[i, j] = T.if_then_else(x > a[i, j], x, -a[i, j])
            T.gemm(a, f, acc, clear_accum=True)
            T.reduce_max(f, top, dim=1)
            T.copy(f, C[0:64, 0:64])
            T.copy(acc, C[0:64, 64:128])
            for i in T.Parallel(64):
                C[i, 128] = top[i]
                C[i, 129] = T.cast(T.reinterpret(a[i, 0], "uint8"), "float32")
        return C

    return fp8_arithmetic


def fp8_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(a.dtype).float()

    wide = a.float()
    f = rounded(rounded(b) + wide)
    x = rounded(f * 0.5)
    f = torch.where(x > wide, x, -wide)
    bits = a.view(torch.uint8)[:, :1].float()
    return torch.cat([f, wide @ f, f.amax(1, keepdim=True), bits], 1)


PARTS = [
    # Values of a few bits: every product and sum is exact.
    *(
        Construct(
            fp8_program(dtype),
            lambda dtype=dtype: (
                ints(64, 64, low=-8, high=9).float().to(getattr(torch, dtype)),
                ints(64, 64, low=-60, high=61).float() / 8,
            ),
            fp8_expected,
        )
        for dtype in ("float8_e4m3fn", "float8_e5m2")
    ),
    # Small integers: every product and sum is exact.
    Construct(
        gemm_of_96,
        lambda: (ints(96, 192, low=-3, high=4).half(), ints(96, 192, low=-3, high=4).half()),
        gemm_of_96_expected,
    ),
    Construct(
        latent_attention,
        lambda: (ints(16, 576, low=-1, high=2).half(), ints(64, 576, low=-1, high=2).half()),
        latent_attention_expected,
    ),
]

"""Quantised operands: packed integers that a program unpacks, scaled fp8 blocks, and quantisation itself."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.family_case import U_SUM, UNIT, Bounded, FamilyCase, randint, randn, rounded


@tileops.jit
def dequant_int8(A, W, scales, block_M: int = 32, block_N: int = 32, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    W: T.Tensor((N, K), "int8")
    scales: T.Tensor((N,), "float32")
    C = T.empty((M, N), "float16")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), "float16")
        W_s = T.alloc_shared((block_N, block_K), "int8")
        W_local = T.alloc_fragment((block_N, block_K), "int8")
        W_half = T.alloc_fragment((block_N, block_K), "float16")
        W_half_s = T.alloc_shared((block_N, block_K), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(W[bx * block_N, k * block_K], W_s)
            T.copy(W_s, W_local)
            for i, j in T.Parallel(block_N, block_K):
                W_half[i, j] = W_local[i, j].astype("float16")
            T.copy(W_half, W_half_s)
            T.gemm(A_s, W_half_s, acc, transpose_B=True)
        for i, j in T.Parallel(block_M, block_N):
            acc[i, j] = acc[i, j] * scales[bx * block_N + j]
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def dequant_int4(
    A, W, scales, group: int = 32, block_M: int = 32, block_N: int = 32, block_K: int = 32
):
    """Two unsigned 4-bit weights a byte, low half first, around 8; one scale for ``group`` of them."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    W: T.Tensor((N, K // 2), "uint8")
    scales: T.Tensor((N, T.ceildiv(K, group)), "float16")
    C = T.empty((M, N), "float16")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), "float16")
        W_s = T.alloc_shared((block_N, block_K // 2), "uint8")
        W_half = T.alloc_shared((block_N, block_K), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(W[bx * block_N, k * block_K // 2], W_s)
            for i, j in T.Parallel(block_N, block_K):
                nibble = (W_s[i, j // 2] >> T.cast((j % 2) * 4, "uint8")) & T.cast(15, "uint8")
                W_half[i, j] = (T.cast(nibble, "float16") - T.cast(8, "float16")) * scales[
                    bx * block_N + i, (k * block_K + j) // group
                ]
            T.gemm(A_s, W_half, acc, transpose_B=True)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def dequant_fp4(A, W, block_M: int = 32, block_N: int = 32, block_K: int = 32):
    """Packed e2m1 weights decoded by shifts and masks: sign, two bits of exponent, one of fraction."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    W: T.Tensor((N, K // 2), "uint8")
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), "float16")
        W_s = T.alloc_shared((block_N, block_K // 2), "uint8")
        W_half = T.alloc_shared((block_N, block_K), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(W[bx * block_N, k * block_K // 2], W_s)
            for i, j in T.Parallel(block_N, block_K):
                bits = T.cast(W_s[i, j // 2], "uint16") >> T.cast((j % 2) * 4, "uint16")
                sign = (bits & T.cast(8, "uint16")) << T.cast(12, "uint16")
                rest = (bits & T.cast(7, "uint16")) << T.cast(9, "uint16")
                small = T.reinterpret(sign | rest, "float16")
                W_half[i, j] = small * T.cast(2.0**14, "float16")
            T.gemm(A_s, W_half, acc, transpose_B=True)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def gemm_block_scaled(A, B, scale_a, scale_b, block: int = 32):
    """fp8 operands; A has a scale for each row and ``block`` of K, B one for each block by block."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float8_e4m3fn")
    B: T.Tensor((N, K), "float8_e4m3fn")
    scale_a: T.Tensor((M, T.ceildiv(K, block)), "float32")
    scale_b: T.Tensor((T.ceildiv(N, block), T.ceildiv(K, block)), "float32")
    C = T.empty((M, N), "bfloat16")
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        A_s = T.alloc_shared((block, block), "float8_e4m3fn")
        B_s = T.alloc_shared((block, block), "float8_e4m3fn")
        C_s = T.alloc_shared((block, block), "bfloat16")
        scale = T.alloc_shared((block,), "float32")
        part = T.alloc_fragment((block, block), "float32")
        acc = T.alloc_fragment((block, block), "float32")
        T.use_swizzle(panel_size=10)
        T.clear(acc)
        T.clear(part)
        for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
            T.copy(A[by * block, k * block], A_s)
            T.copy(B[bx * block, k * block], B_s)
            b_scale = scale_b[bx, k]
            for i in T.Parallel(block):
                scale[i] = scale_a[by * block + i, k] * b_scale
            T.gemm(A_s, B_s, part, transpose_B=True)
            for i, j in T.Parallel(block, block):
                acc[i, j] += part[i, j] * scale[i]
            T.clear(part)
        T.copy(acc, C_s)
        T.copy(C_s, C[by * block, bx * block])
    return C


@tileops.jit
def quantise_per_token(X, dtype: str = "float8_e4m3fn", top: float = 448.0, rows: int = 8):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y = T.empty((M, N), dtype)
    scales = T.empty((M,), "float32")
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x = T.alloc_fragment((rows, N), "float32")
        most = T.alloc_fragment((rows,), "float32")
        scale = T.alloc_fragment((rows,), "float32")
        T.copy(X[bx * rows, 0], x)
        T.reduce_absmax(x, most, dim=1)
        for i in T.Parallel(rows):
            scale[i] = T.max(most[i], 1e-4) / top
            scales[bx * rows + i] = scale[i]
        for i, j in T.Parallel(rows, N):
            x[i, j] = T.clamp(x[i, j] / scale[i], -top, top)
        T.copy(x, Y[bx * rows, 0])
    return Y, scales


def _matrix(a, w, lost: float = 0.0) -> Bounded:
    size = a.double().abs() @ w.double().abs().T
    return a.double() @ w.double().T, ((a.shape[1] + 4) * U_SUM + lost) * size


def _int8_reference(a, w, scales) -> list[Bounded]:
    value, bound = _matrix(a, w)
    factor = scales.double()[None]
    bound = bound * factor + 2 * UNIT[torch.float32] * value.abs() * factor
    return [rounded((value * factor, bound), torch.float16)]


def _unpack(w: torch.Tensor) -> torch.Tensor:
    return torch.stack([w & 15, w >> 4], -1).flatten(-2)


def _int4_reference(a, w, scales) -> list[Bounded]:
    grown = scales.double().repeat_interleave(32, 1)[:, : a.shape[1]]
    weights = (_unpack(w).double() - 8) * grown
    # The scaled weight is rounded to half precision before the product.
    return [rounded(_matrix(a, weights, UNIT[torch.float16]), torch.float16)]


def _fp4_reference(a, w) -> list[Bounded]:
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    bits = _unpack(w).long()
    weights = table[bits & 7] * (1 - 2 * (bits >> 3))
    return [_matrix(a, weights)]


def _scaled_reference(a, b, sa, sb) -> list[Bounded]:
    k, n = a.shape[1], b.shape[0]
    left = a.double() * sa.double().repeat_interleave(32, 1)[:, :k]
    right = b.double() * sb.double().repeat_interleave(32, 0)[:n].repeat_interleave(32, 1)[:, :k]
    # Hopper's fp8 units keep 13 fraction bits of a partial sum of 32 products: 2^-13 of the largest.
    return [rounded(_matrix(left, right, 2.0**-12), torch.bfloat16)]


def _quantise_reference(dtype: torch.dtype, top: float):
    def reference(x) -> list[Bounded]:
        scale = x.double().abs().amax(1).clamp(min=1e-4) / top
        value = x.double() / scale[:, None]
        bound = 4 * UNIT[torch.float32] * value.abs()
        return [rounded((value, bound), dtype), rounded((scale, scale * 2.0**-22), torch.float32)]

    return reference


def _cases() -> Iterator[FamilyCase]:
    half, fp8 = torch.float16, torch.float8_e4m3fn
    yield FamilyCase(
        "dequant_int8",
        dequant_int8,
        lambda: (
            randn(45, 70, dtype=half),
            randint(-128, 128, (50, 70), torch.int8),
            torch.rand(50) / 64,
        ),
        _int8_reference,
    )
    yield FamilyCase(
        "dequant_int4",
        dequant_int4,
        lambda: (
            randn(45, 70, dtype=half),
            randint(0, 256, (50, 35), torch.uint8),
            torch.rand(50, 3).half(),
        ),
        _int4_reference,
    )
    yield FamilyCase(
        "dequant_fp4",
        dequant_fp4,
        lambda: (randn(45, 70, dtype=half), randint(0, 256, (50, 35), torch.uint8)),
        _fp4_reference,
    )
    yield FamilyCase(
        "gemm_block_scaled",
        gemm_block_scaled,
        lambda: (
            randn(45, 70, dtype=fp8),
            randn(50, 70, dtype=fp8),
            torch.rand(45, 3),
            torch.rand(2, 3),
        ),
        _scaled_reference,
    )
    for name, top in (("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)):
        yield FamilyCase(
            f"quantise_per_token-{name}",
            quantise_per_token,
            lambda: (torch.randn(13, 100) * 5,),
            _quantise_reference(getattr(torch, name), top),
            {"dtype": name, "top": top},
        )


CASES = tuple(_cases())

"""Matrix products on tensors of 4-bit dtypes: weights unpacked on the way, and both operands packed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.family_case import Bounded, FamilyCase, exact, product, randint, randn, rounded

FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)


@tileops.jit
def dequant_gemm(
    A,
    W,
    scales,
    dtype: str = "int4",
    group: int = 32,
    block_M: int = 32,
    block_N: int = 32,
    block_K: int = 32,
):
    """A @ W.T for packed W; ``group`` weights of a row share a scale."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    W: T.Tensor((N, K), dtype)
    scales: T.Tensor((N, T.ceildiv(K, group)), "float16")
    C = T.empty((M, N), "float16")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), "float16")
        W_s = T.alloc_shared((block_N, block_K), dtype)
        W_local = T.alloc_fragment((block_N, block_K), dtype)
        W_half = T.alloc_shared((block_N, block_K), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(W[bx * block_N, k * block_K], W_s)
            T.copy(W_s, W_local)
            for i, j in T.Parallel(block_N, block_K):
                W_half[i, j] = (
                    W_local[i, j].astype("float16")
                    * scales[bx * block_N + i, (k * block_K + j) // group]
                )
            T.gemm(A_s, W_half, acc, transpose_B=True)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def packed_gemm(A, B, dtype: str = "int4", out: str = "int32", block: int = 32):
    """A @ B.T with both operands packed, summed without loss."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), dtype)
    B: T.Tensor((N, K), dtype)
    C = T.empty((M, N), out)
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        A_s = T.alloc_shared((block, 64), dtype)
        B_s = T.alloc_shared((block, 64), dtype)
        acc = T.alloc_fragment((block, block), out)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
            T.copy(A[by * block, k * 64], A_s)
            T.copy(B[bx * block, k * 64], B_s)
            T.gemm(A_s, B_s, acc, transpose_B=True)
        T.copy(acc, C[by * block, bx * block])
    return C


@tileops.jit
def quantise_groups(X, group: int = 32, rows: int = 8):
    """Rows to float4 with an exponent for each ``group`` of elements, as microscaling formats have."""
    M, K = T.const("M, K")
    X: T.Tensor((M, K), "float32")
    Y = T.empty((M, K), "float4_e2m1fn")
    scales = T.empty((M, K // group), "float8_e8m0fnu")
    with T.Kernel(T.ceildiv(M, rows), K // group, threads=128) as (bx, by):
        x = T.alloc_fragment((rows, group), "float32")
        top = T.alloc_fragment((rows,), "float32")
        scale = T.alloc_fragment((rows,), "float32")
        y = T.alloc_shared((rows, group), "float4_e2m1fn")
        T.copy(X[bx * rows, by * group], x)
        T.reduce_absmax(x, top, dim=1)
        for i in T.Parallel(rows):
            # The power of two under which the largest magnitude is below 8: 6 with saturation.
            bits = T.reinterpret(T.max(top[i], 2.0**-120), "uint32") & T.cast(0x7F800000, "uint32")
            scale[i] = T.reinterpret(bits, "float32") * 0.25
        for i, j in T.Parallel(rows, group):
            y[i, j] = T.cast(x[i, j] / scale[i], "float4_e2m1fn")
        for i in T.Parallel(rows):
            scales[bx * rows + i, by] = T.cast(scale[i], "float8_e8m0fnu")
        T.copy(y, Y[bx * rows, by * group])
    return Y, scales


def unpacked(w: torch.Tensor, dtype: str) -> torch.Tensor:
    raw = w.view(torch.uint8)
    codes = torch.stack([raw & 15, raw >> 4], -1).flatten(-2).long()
    if dtype == "float4_e2m1fn":
        return torch.tensor(FP4, dtype=torch.float64)[codes]
    return (codes if dtype == "uint4" else (codes ^ 8) - 8).double()


def _dequant_reference(dtype: str):
    def reference(a, w, scales) -> list[Bounded]:
        k = a.shape[1]
        exactly = unpacked(w, dtype) * scales.double().repeat_interleave(32, 1)[:, :k]
        # A weight times its scale is rounded to float16 once: at most 2^-11 of it.
        return [rounded(product(a, exactly.T, 2.0**-11), torch.float16)]

    return reference


def _product_reference(dtype: str):
    def reference(a, b) -> list[Bounded]:
        # Multiples of a quarter below 2^13: exact in int32 and in float32.
        return [exact(unpacked(a, dtype) @ unpacked(b, dtype).T)]

    return reference


def _quantised_reference(x) -> list[Bounded]:
    groups = x.double().unflatten(1, (-1, 32))
    scale = 2.0 ** torch.floor(torch.log2(groups.abs().amax(-1))) / 4
    value = (groups / scale[..., None]).clamp(-6, 6).flatten(1)
    table = torch.tensor(sorted(set(FP4)), dtype=torch.float64)
    distance = (value[..., None] - table).abs().amin(-1)
    # As near as any value of the format is; the division by a power of two is exact.
    return [(value, distance), exact(scale)]


class QuantisedCase(FamilyCase):
    """Compares the packed output by its values."""

    def check(self, before, inputs, out) -> None:
        super().check(before, inputs, (unpacked(out[0].cpu(), "float4_e2m1fn"), out[1].float()))


def _cases() -> Iterator[FamilyCase]:
    half = torch.float16
    for dtype in ("int4", "uint4", "float4_e2m1fn"):
        store = torch.float4_e2m1fn_x2 if dtype == "float4_e2m1fn" else torch.int8

        def weights(rows: int, k: int, store: torch.dtype = store) -> torch.Tensor:
            return randint(0, 256, (rows, k // 2), torch.uint8).view(store)

        yield FamilyCase(
            f"dequant_gemm-{dtype}",
            dequant_gemm,
            lambda w=weights: (
                randn(45, 70, dtype=half),
                w(50, 70),
                torch.rand(50, 3).half() / 8,
            ),
            _dequant_reference(dtype),
            {"dtype": dtype},
        )
        out = "float32" if dtype == "float4_e2m1fn" else "int32"
        yield FamilyCase(
            f"packed_gemm-{dtype}",
            packed_gemm,
            lambda w=weights: (w(45, 130), w(50, 130)),
            _product_reference(dtype),
            {"dtype": dtype, "out": out},
        )
    yield QuantisedCase(
        "quantise_groups-float4",
        quantise_groups,
        lambda: (torch.randn(13, 96) * 5,),
        _quantised_reference,
    )


CASES = tuple(_cases())

"""Matrix products: every transpose pair and dtype, and the ways to hand out tiles to blocks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.family_case import (
    U_TF32,
    Bounded,
    FamilyCase,
    exact,
    product,
    randint,
    randn,
    rounded,
)


@tileops.jit
def gemm(
    A,
    B,
    trans_A: bool = False,
    trans_B: bool = False,
    in_dtype: str = "float16",
    out_dtype: str = "float16",
    accum_dtype: str = "float32",
    block_M: int = 32,
    block_N: int = 32,
    block_K: int = 32,
):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((K, M) if trans_A else (M, K), in_dtype)
    B: T.Tensor((N, K) if trans_B else (K, N), in_dtype)
    C = T.empty((M, N), out_dtype)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_K, block_M) if trans_A else (block_M, block_K), in_dtype)
        B_s = T.alloc_shared((block_N, block_K) if trans_B else (block_K, block_N), in_dtype)
        acc = T.alloc_fragment((block_M, block_N), accum_dtype)
        T.use_swizzle(10)
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            if trans_A:
                T.copy(A[ko * block_K, by * block_M], A_s)
            else:
                T.copy(A[by * block_M, ko * block_K], A_s)
            if trans_B:
                T.copy(B[bx * block_N, ko * block_K], B_s)
            else:
                T.copy(B[ko * block_K, bx * block_N], B_s)
            T.gemm(A_s, B_s, acc, trans_A, trans_B)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def gemm_stream_k(
    A, B, C, workers: int = 5, block_M: int = 32, block_N: int = 32, block_K: int = 32
):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    B: T.Tensor((N, K), "float16")
    C: T.Tensor((M, N), "float32")
    steps = T.ceildiv(K, block_K)
    columns = T.ceildiv(N, block_N)
    total = steps * columns * T.ceildiv(M, block_M)
    share = T.ceildiv(total, workers)
    with T.Kernel(workers, threads=128) as worker:
        A_s = T.alloc_shared((block_M, block_K), "float16")
        B_s = T.alloc_shared((block_N, block_K), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        first = T.alloc_var("int32", worker * share)
        last = T.min(worker * share + share, total)
        while first < last:
            tile = first // steps
            end = T.min((tile + 1) * steps, last)
            T.clear(acc)
            for step in T.serial(end - first):
                ko = (first + step) % steps
                T.copy(A[tile // columns * block_M, ko * block_K], A_s)
                T.copy(B[tile % columns * block_N, ko * block_K], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                T.atomic_add(
                    C[tile // columns * block_M + i, tile % columns * block_N + j], acc[i, j]
                )
            first = end


@tileops.jit
def gemm_persistent(
    A, B, workers: int = 3, block_M: int = 32, block_N: int = 32, block_K: int = 32
):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "bfloat16")
    B: T.Tensor((K, N), "bfloat16")
    C = T.empty((M, N), "bfloat16")
    with T.Kernel(workers, threads=128) as worker:
        A_s = T.alloc_shared((block_M, block_K), "bfloat16")
        B_s = T.alloc_shared((block_K, block_N), "bfloat16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        for bx, by in T.Persistent([T.ceildiv(M, block_M), T.ceildiv(N, block_N)], workers, worker):
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[bx * block_M, ko * block_K], A_s)
                T.copy(B[ko * block_K, by * block_N], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[bx * block_M, by * block_N])
    return C


@tileops.jit
def gemm_scheduled(A, B, workers: int = 3, block_M: int = 32, block_N: int = 32, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    B: T.Tensor((K, N), "float16")
    C = T.empty((M, N), "float16")
    with T.Kernel(workers, threads=128) as worker:
        A_s = T.alloc_shared((block_M, block_K), "float16")
        B_s = T.alloc_shared((block_K, block_N), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        tiles = T.PersistentTileScheduler(
            T.ceildiv(M, block_M), T.ceildiv(N, block_N), num_workers=workers
        )
        tiles.init(worker)
        while tiles.valid():
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[tiles.m_idx * block_M, ko * block_K], A_s)
                T.copy(B[ko * block_K, tiles.n_idx * block_N], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[tiles.m_idx * block_M, tiles.n_idx * block_N])
            tiles.next_tile()
    return C


@tileops.jit
def gemm_grouped(
    A, B, sizes, offsets, padded, block_M: int = 16, block_N: int = 32, block_K: int = 32
):
    """Rows of A belong to groups; ``padded`` holds where each group's first tile row lies."""
    S, N, K, G = T.const("S, N, K, G")
    A: T.Tensor((S, K), "float16")
    B: T.Tensor((G, K, N), "float16")
    sizes: T.Tensor((G,), "int32")
    offsets: T.Tensor((G,), "int32")
    padded: T.Tensor((G,), "int32")
    C = T.empty((S, N), "float16")
    with T.Kernel(T.ceildiv(S, block_M) + G, T.ceildiv(N, block_N), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), "float16")
        B_s = T.alloc_shared((block_K, block_N), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        group = T.alloc_var("int32", 0)
        start = bx * block_M
        for g in range(G):
            group = T.if_then_else(start >= padded[g], g, group)
        row = offsets[group] + start - padded[group]
        rows = T.max(0, T.min(block_M, sizes[group] + padded[group] - start))
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[row : row + block_M, ko * block_K : (ko + 1) * block_K], A_s)
            T.copy(
                B[group, ko * block_K : (ko + 1) * block_K, by * block_N : (by + 1) * block_N], B_s
            )
            T.gemm(A_s, B_s, acc)
        for i, j in T.Parallel(block_M, block_N):
            if i < rows:
                C[row + i, by * block_N + j] = acc[i, j]
    return C


@tileops.jit
def gemm_block_sparse(A, B, mask, block_M: int = 32, block_N: int = 32, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    B: T.Tensor((K, N), "float16")
    mask: T.Tensor((T.ceildiv(M, block_M), T.ceildiv(N, block_N), T.ceildiv(K, block_K)), "bool")
    C = T.empty((M, N), "float16")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), "float16")
        B_s = T.alloc_shared((block_K, block_N), "float16")
        acc = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=1):
            if mask[by, bx, ko]:
                T.copy(A[by * block_M, ko * block_K], A_s)
                T.copy(B[ko * block_K, bx * block_N], B_s)
                T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def gemv(A, x, block_N: int = 32, block_K: int = 64):
    N, K = T.const("N, K")
    A: T.Tensor((N, K), "float16")
    x: T.Tensor((K,), "float16")
    y = T.empty((N,), "float16")
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bn:
        A_f = T.alloc_fragment((block_N, block_K), "float16")
        x_s = T.alloc_shared((block_K,), "float16")
        terms = T.alloc_fragment((block_N, block_K), "float32")
        acc = T.alloc_fragment((block_N,), "float32")
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[bn * block_N, ko * block_K], A_f)
            T.copy(x[ko * block_K], x_s)
            for i, j in T.Parallel(block_N, block_K):
                terms[i, j] = T.cast(A_f[i, j], "float32") * T.cast(x_s[j], "float32")
            T.reduce_sum(terms, acc, dim=1, clear=False)
        T.copy(acc, y[bn * block_N])
    return y


def _gemm_case(trans_a: bool, trans_b: bool, name: str, out: str, accum: str) -> FamilyCase:
    m, n, k = 49, 70, 83
    dtype = getattr(torch, name)

    def inputs() -> tuple[torch.Tensor, ...]:
        shapes = ((k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n))
        if name == "int8":
            return tuple(randint(-128, 128, s, torch.int8) for s in shapes)
        return tuple(randn(*s, dtype=dtype) for s in shapes)

    def reference(a: torch.Tensor, b: torch.Tensor) -> list[Bounded]:
        a, b = (a.T if trans_a else a), (b.T if trans_b else b)
        if name == "int8":
            return [exact(a.double() @ b.double())]
        # Hopper's fp8 units keep 13 fraction bits of a partial sum.
        lost = U_TF32 if name == "float32" else 2.0**-13 if "float8" in name else 0.0
        return [rounded(product(a.double(), b.double(), lost), getattr(torch, out))]

    flags = {"trans_A": trans_a, "trans_B": trans_b}
    types = {"in_dtype": name, "out_dtype": out, "accum_dtype": accum}
    label = f"{'t' if trans_a else 'n'}{'t' if trans_b else 'n'}"
    return FamilyCase(f"gemm-{label}-{name}", gemm, inputs, reference, {**flags, **types})


def _half_pair(m: int, n: int, k: int, dtype: torch.dtype = torch.float16):
    return randn(m, k, dtype=dtype), randn(k, n, dtype=dtype)


def _sparse_reference(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> list[Bounded]:
    value = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    bound = value.clone()
    for i, j, k in mask.nonzero().tolist():
        rows, cols, mid = (slice(32 * x, 32 * x + 32) for x in (i, j, k))
        part, _ = product(a[rows, mid], b[mid, cols])
        value[rows, cols] += part
        bound[rows, cols] += (
            (a.shape[1] + 2)
            * 2.0**-22
            * (a[rows, mid].double().abs() @ b[mid, cols].double().abs())
        )
    return [rounded((value, bound), torch.float16)]


def _grouped_inputs() -> tuple[torch.Tensor, ...]:
    sizes = torch.tensor([20, 1, 33], dtype=torch.int32)
    tiles = (sizes + 15) // 16 * 16
    starts = (sizes.cumsum(0) - sizes).int()
    padded = (tiles.cumsum(0) - tiles).int()
    a, b = randn(54, 40, dtype=torch.float16), randn(3, 40, 50, dtype=torch.float16)
    return a, b, sizes, starts, padded


def _grouped_reference(a, b, sizes, offsets, padded) -> list[Bounded]:
    parts = [product(x, y) for x, y in zip(a.split(sizes.tolist()), b, strict=True)]
    return [rounded((torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])), a.dtype)]


def _cases() -> Iterator[FamilyCase]:
    for ta in (False, True):
        for tb in (False, True):
            yield _gemm_case(ta, tb, "float16", "float16", "float32")
            yield _gemm_case(ta, tb, "bfloat16", "bfloat16", "float32")
            yield _gemm_case(ta, tb, "float32", "float32", "float32")
            yield _gemm_case(ta, tb, "int8", "int32", "int32")
    for name in ("float8_e4m3fn", "float8_e5m2"):
        yield _gemm_case(False, True, name, "float32", "float32")
        yield _gemm_case(False, False, name, "float16", "float32")
    yield FamilyCase(
        "gemm_stream_k",
        gemm_stream_k,
        lambda: (
            randn(50, 100, dtype=torch.float16),
            randn(70, 100, dtype=torch.float16),
            torch.zeros(50, 70),
        ),
        lambda a, b, c: [rounded(product(a, b.T), torch.float32)],
        mutated=(2,),
    )
    yield FamilyCase(
        "gemm_persistent",
        gemm_persistent,
        lambda: _half_pair(70, 100, 45, torch.bfloat16),
        lambda a, b: [rounded(product(a, b), torch.bfloat16)],
    )
    yield FamilyCase(
        "gemm_scheduled",
        gemm_scheduled,
        lambda: _half_pair(70, 100, 45),
        lambda a, b: [rounded(product(a, b), torch.float16)],
    )
    yield FamilyCase("gemm_grouped", gemm_grouped, _grouped_inputs, _grouped_reference)
    yield FamilyCase(
        "gemm_block_sparse",
        gemm_block_sparse,
        lambda: (*_half_pair(50, 70, 90), torch.rand(2, 3, 3) < 0.5),
        _sparse_reference,
    )
    yield FamilyCase(
        "gemv",
        gemv,
        lambda: (randn(45, 150, dtype=torch.float16), randn(150, dtype=torch.float16)),
        lambda a, x: [rounded(tuple(t[:, 0] for t in product(a, x[:, None])), torch.float16)],
    )


CASES = tuple(_cases())

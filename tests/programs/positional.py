"""Constructs with all their arguments by position, and Python's forms: exact results everywhere."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.constructs import Construct, ints


def gemm(A, B, C):
    A: T.Tensor((32, 16), T.float16)
    B: T.Tensor((32, 16), T.float16)
    C: T.Tensor((2, 16, 16), T.float32)
    D = T.empty((2, 16, 16), T.float32)
    with T.Kernel(1, 1, 2, threads=128) as (bx, by, bz):
        a = T.alloc_shared((32, 16), "float16", "shared")
        b = T.alloc_shared((32, 16), "float16", "shared.dyn")
        acc = T.alloc_fragment((16, 16), "float32", "local.fragment")
        T.copy(A, a)
        T.copy(B, b)
        T.copy(C[bz, 0:16, 0:16], acc)
        T.gemm(a, b, acc, True, False, T.GemmWarpPolicy.FullRow, bz == 1, 1, None, None)
        T.copy(acc, D[bz, bx * 16, by * 16])
    return D


def gemm_expected(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    product = a.float().T @ b.float()
    return torch.stack([c[0] + product, product])


def reductions(X):
    X: T.Tensor((16, 32), T.int32)
    Y = T.empty((9, 16), T.int32)
    with T.Kernel(1, threads=128):
        x = T.alloc_fragment((16, 32), "int32")
        r = T.alloc_fragment((16,), "int32")
        T.copy(X, x)
        T.fill(r, 3)
        T.reduce_sum(x, r, 1, False, 1, None)
        T.copy(r, Y[0, 0:16])
        T.reduce_max(x, r, 1, True, 1, False, None)
        T.copy(r, Y[1, 0:16])
        T.reduce_min(x, r, 1, False, 1, False, None)
        T.copy(r, Y[2, 0:16])
        T.reduce_absmax(x, r, 1, True, 1, False, None)
        T.copy(r, Y[3, 0:16])
        T.reduce_abssum(x, r, 1, 1, None)
        T.copy(r, Y[4, 0:16])
        T.reduce_bitand(x, r, 1, True, 1, None)
        T.copy(r, Y[5, 0:16])
        T.reduce_bitor(x, r, 1, True, 1, None)
        T.copy(r, Y[6, 0:16])
        T.reduce_bitxor(x, r, 1, True, 1, None)
        T.copy(r, Y[7, 0:16])
        T.reduce(x, r, "sum", 1, True, 1, False, None)
        T.copy(r, Y[8, 0:16])
    return Y


def reductions_expected(x: torch.Tensor) -> torch.Tensor:
    bits = [x[:, 0], x[:, 0], x[:, 0]]
    for column in x.T[1:]:
        bits = [bits[0] & column, bits[1] | column, bits[2] ^ column]
    size = x.abs()
    rows = [x.sum(1) + 3, x.amax(1), x.amin(1), size.amax(1), size.sum(1), *bits, x.sum(1)]
    return torch.stack([row.int() for row in rows])


def scans(X):
    X: T.Tensor((8, 16), T.int32)
    Y = T.empty((2, 8, 16), T.int32)
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((8, 16), "int32")
        t = T.alloc_shared((8, 16), "int32")
        T.copy(X, s)
        T.cumsum(s, t, 1, True, None)
        T.copy(t, Y[0, 0:8, 0:16])
        T.cummax(s, t, 0, False, None)
        T.copy(t, Y[1, 0:8, 0:16])
    return Y


def scans_expected(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x.flip(1).cumsum(1).flip(1).int(), x.cummax(0).values])


def loops(X):
    X: T.Tensor((64,), T.int32)
    Y = T.empty((6,), T.int32)
    with T.Kernel(1, threads=32):
        total = T.alloc_var("int32", 5, "local.var")
        for i in T.serial(2, 20, 3):
            total += X[i]
        Y[0] = total
        for i in T.unroll(0, 8, 2):
            total += X[i]
        Y[1] = total
        for i in T.Pipelined(1, 9, 2):
            total += X[i]
        Y[2] = total
        for i in T.vectorized(0, 4):
            total += X[i]
        Y[3] = total
        for i, j in T.grid(3, 4):
            total += X[i * 4 + j]
        Y[4] = total
        for i, j in T.Persistent([3, 5], 2, 1, 4):
            total += X[i * 5 + j] * 0 + 1
        Y[5] = total
    return Y


def loops_expected(x: torch.Tensor) -> torch.Tensor:
    parts = [x[2:20:3], x[0:8:2], x[1:9], x[0:4], x[0:12]]
    sums = torch.stack([part.sum() for part in parts]).cumsum(0) + 5
    # Every second of 15 tiles from tile 1 on.
    return torch.cat([sums, sums[-1:] + 7]).int()


def atomics(C):
    C: T.Tensor((16,), T.int32)
    D = T.empty((5,), T.int32)
    with T.Kernel(1, threads=32):
        D[0] = T.atomic_add(C[0], 2, "relaxed", True, False, None)
        D[1] = T.atomic_max(C[1], 50, "acq_rel", True, None)
        D[2] = T.atomic_min(C[2], -50, "release", True, None)
        D[4] = T.atomic_or(C[3], 64, "seq_cst", True)
        T.atomic_store(C[4], 8, "release")
        D[3] = T.atomic_load(C[4], "acquire")
    return D


def atomics_expected(c: torch.Tensor) -> torch.Tensor:
    return torch.cat([c[:3], torch.tensor([8], dtype=torch.int32), c[3:4]])


def scalars(X):
    X: T.Tensor((16,), T.float32)
    Y = T.empty((10, 16), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(16):
            Y[0, i] = T.clamp(X[i], -2.0, 2.0)
            Y[1, i] = T.if_then_else(X[i] > 0, X[i], 0.0)
            Y[2, i] = T.Select(X[i] > 0, X[i], 0.0)
            Y[3, i] = T.cast(T.cast(X[i], "int32"), "float32")
            Y[4, i] = T.Cast("float32", T.Cast("int32", X[i]))
            Y[5, i] = T.reinterpret(T.reinterpret(X[i], "uint32") & 0x7FFFFFFF, "float32")
            Y[6, i] = T.round(X[i], "ties-to-even")
            Y[7, i] = T.ieee_fmaf(X[i], 2.0, 1.0, "rn")
            Y[8, i] = T.max(T.min(X[i], 1.0), -1.0)
            Y[9, i] = T.pow(T.abs(X[i]), 2.0)
    return Y


def scalars_expected(x: torch.Tensor) -> torch.Tensor:
    whole, positive = x.trunc(), x.relu()
    return torch.stack(
        [x.clamp(-2, 2), positive, positive, whole, whole, x.abs(), x.round(), x * 2 + 1,
         x.clamp(-1, 1), x * x]
    )  # fmt: skip


def unfold(X):
    X: T.Tensor((1, 6, 6, 8), T.int32)
    Y = T.empty((16, 72), T.int32)
    with T.Kernel(9, threads=128) as k:
        s = T.alloc_shared((16, 8), "int32")
        t = T.alloc_shared((8, 16), "int32")
        u = T.alloc_shared((16, 8), "int32")
        T.im2col(X, s, 0, k, 3, 1, 1, 0, None, None)
        T.transpose(s, t, None)
        T.transpose(t, u)
        T.copy(u, Y[0, k * 8])
    return Y


def unfold_expected(x: torch.Tensor) -> torch.Tensor:
    windows = x[0].unfold(0, 3, 1).unfold(1, 3, 1)  # y, x, channel, ky, kx
    return windows.permute(0, 1, 3, 4, 2).reshape(16, 72)


def python_forms(X):
    X: T.Tensor((32,), T.int32)
    Y = T.empty((32,), T.int32)
    with T.Kernel(2, threads=32) as bx:
        low = high = 3
        start, total = bx * 16, low + high
        assert total == 6, "known when the program is traced"
        s = T.alloc_shared((16,), "int32")
        T.copy(X[start : start + 16], s)
        for i in T.Parallel(16):
            x = s[i]
            if (0 < x < 5 and not (x == low or x > total)) or x == 9:
                s[i] = -x if x > 2 else x * 100
        for i in range(16):
            Y[start + i] = s[i]
    with T.Kernel(1, threads=32):
        for i in T.Parallel(32):
            Y[i] += 1
    return Y


def python_forms_expected(x: torch.Tensor) -> torch.Tensor:
    chosen = ((x > 0) & (x < 5) & (x != 3)) | (x == 9)
    return torch.where(chosen, torch.where(x > 2, -x, x * 100), x) + 1


def halves() -> torch.Tensor:
    return ints(16, low=-99, high=100).float() / 4


POSITIONAL: tuple[Construct, ...] = (
    Construct(
        gemm,
        lambda: (ints(32, 16).half(), ints(32, 16).half(), ints(2, 16, 16).float()),
        gemm_expected,
    ),
    Construct(reductions, lambda: (ints(16, 32, low=-99, high=100),), reductions_expected),
    Construct(scans, lambda: (ints(8, 16),), scans_expected),
    Construct(loops, lambda: (ints(64),), loops_expected),
    Construct(atomics, lambda: (ints(16),), atomics_expected),
    # Squares of quarters below 25 are exact in float32 where pow is within half a unit.
    Construct(scalars, lambda: (halves(),), scalars_expected, relative=4 * 2.0**-23),
    Construct(python_forms, lambda: (ints(32),), python_forms_expected),
    Construct(unfold, lambda: (ints(1, 6, 6, 8),), unfold_expected),
)

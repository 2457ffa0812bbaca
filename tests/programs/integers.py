"""Programs whose integer arithmetic wraps, in values and in what they index, with their exact results."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints

FACTOR, OFFSET = 1103515245, 12345


def wrapped_values(A):
    """The sign of a quotient, remainder or shift is that of the value as it wrapped."""
    A: T.Tensor((256,), T.int32)
    C = T.empty((7, 256), T.int32)
    with T.Kernel(4, threads=64) as bx:
        for i in T.Parallel(64):
            x = bx * 64 + i
            C[0, x] = (x * FACTOR + OFFSET) % 100
            C[1, x] = (x * FACTOR + OFFSET) // 100
            C[2, x] = T.truncmod(x * FACTOR + OFFSET, 100)
            C[3, x] = T.max(x * FACTOR, 0)
            C[4, x] = A[(x * FACTOR + OFFSET) % 100]
            C[5, x] = A[(x * FACTOR + OFFSET) >> 24]
            C[6, x] = A[T.max(A[x], 0) * (1 << 27) // 3]
    return C


def wrapped_values_expected(a: torch.Tensor) -> torch.Tensor:
    x = torch.arange(256, dtype=torch.int32)
    h = x * FACTOR + OFFSET
    third = torch.div(a.clamp(min=0) * (1 << 27), 3, rounding_mode="floor")
    rows = [
        h.remainder(100),
        torch.div(h, 100, rounding_mode="floor"),
        h.fmod(100),
        (x * FACTOR).clamp(min=0),
        *(_read(a, at) for at in (h.remainder(100), h >> 24, third)),
    ]
    return torch.stack(rows)


def _read(a: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    inside = (at >= 0) & (at < len(a))
    return torch.where(inside, a[torch.where(inside, at, 0).long()], 0)


def divided_by_any(A, B, P, Q, U, V):
    """By 0 all bits are set, and the remainder is the dividend; the smallest by -1 wraps."""
    A: T.Tensor((64,), T.int32)
    B: T.Tensor((64,), T.int32)
    P: T.Tensor((64,), T.int8)
    Q: T.Tensor((64,), T.int8)
    U: T.Tensor((64,), T.uint32)
    V: T.Tensor((64,), T.uint32)
    C = T.empty((12, 64), T.int64)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            C[0, i] = A[i] // B[i]
            C[1, i] = A[i] % B[i]
            C[2, i] = T.truncdiv(A[i], B[i])
            C[3, i] = T.truncmod(A[i], B[i])
            C[4, i] = P[i] // Q[i]
            C[5, i] = P[i] % Q[i]
            C[6, i] = T.truncdiv(P[i], Q[i])
            C[7, i] = T.truncmod(P[i], Q[i])
            C[8, i] = U[i] // V[i]
            C[9, i] = U[i] % V[i]
            C[10, i] = T.if_then_else(B[i] != 0, A[i] // B[i], 77)
            C[11, i] = T.if_then_else(V[i] != 0, U[i] % V[i], 77)
    return C


def divided_by_any_expected(*inputs: torch.Tensor) -> torch.Tensor:
    a, b, p, q, u, v = (x.long() for x in inputs)

    def pair(a: torch.Tensor, b: torch.Tensor, mode: str) -> list[torch.Tensor]:
        by = torch.where(b == 0, 1, b)
        quotient = torch.div(a, by, rounding_mode=mode)
        return [torch.where(b == 0, -1, quotient), torch.where(b == 0, a, a - quotient * by)]

    def wrapped(rows: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        return [row.to(dtype).long() for row in rows]

    rows = wrapped(pair(a, b, "floor") + pair(a, b, "trunc"), torch.int32)
    rows += wrapped(pair(p, q, "floor") + pair(p, q, "trunc"), torch.int8)
    rows += [row & 0xFFFFFFFF for row in pair(u, v, "floor")]
    guarded = [torch.where(x == 0, 77, row) for x, row in ((b, rows[0]), (v, rows[9]))]
    return torch.stack(rows + guarded)


def _dividends_and_divisors() -> tuple[torch.Tensor, ...]:
    def divisors(dtype: torch.dtype, low: int) -> torch.Tensor:
        known = [0, low, 1, 2, 0, 7]
        return torch.tensor(known + torch.randint(low, 9, (58,)).tolist()).to(dtype)

    def dividends(dtype: torch.dtype) -> torch.Tensor:
        lo, hi = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        known = [5, lo, lo, hi, lo, -1 if lo else 3]
        return torch.tensor(known + torch.randint(lo, hi, (58,)).tolist()).to(dtype)

    return (
        dividends(torch.int32), divisors(torch.int32, -1),
        dividends(torch.int8), divisors(torch.int8, -1),
        dividends(torch.uint32), divisors(torch.uint32, 0),
    )  # fmt: skip


def large_indices(A):
    """Sums and products of an index do not wrap: what is beyond 32 bits is outside every tensor."""
    A: T.Tensor((64,), T.int32)
    C = T.empty((3, 64), T.int32)
    with T.Kernel(2, threads=32) as bx:
        for i in T.Parallel(32):
            C[0, bx * 32 + i] = 7
        for i in T.Parallel(32):
            C[0, (bx * 32 + i) * 65536 * 65536 + i] = A[i]
        for i in T.Parallel(32):
            C[1, bx * 32 + i] = A[(i + bx - 1) * 65536 * 65536 + 3]
            C[2, bx * 32 + i] = A[A[i] * 65536 * 65536 + 5 + i]
    return C


def large_indices_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(3, 64, dtype=torch.int32)
    out[0] = 7
    out[0, 0] = a[0]
    out[1, 1] = out[1, 32] = a[3]
    at = torch.where(a[:32] == 0, torch.arange(5, 37), -1)
    out[2] = _read(a, at).repeat(2)
    return out


def unrolled_arithmetic(A):
    """The variable of an unrolled loop is an int32 like any other."""
    A: T.Tensor((16,), T.int32)
    C = T.empty((6, 16), T.int32)
    with T.Kernel(1, threads=32):
        for i in T.unroll(-8, 8):
            C[0, i + 8] = T.truncdiv(i, 3)
            C[1, i + 8] = T.truncmod(i, 3)
            C[2, i + 8] = i // 3
            C[3, i + 8] = (i * FACTOR) >> 4
            C[4, i + 8] = (3 << (i + 23)) // 7
            C[5, i + 8] = A[T.truncmod(i, 5) + 4]
    return C


def unrolled_arithmetic_expected(a: torch.Tensor) -> torch.Tensor:
    i = torch.arange(-8, 8, dtype=torch.int32)
    shifted = torch.full_like(i, 3) << (i + 23)
    rows = [
        torch.div(i, 3, rounding_mode="trunc"),
        i.fmod(3),
        torch.div(i, 3, rounding_mode="floor"),
        (i * FACTOR) >> 4,
        torch.div(shifted, 7, rounding_mode="floor"),
        a[(i.fmod(5) + 4).long()],
    ]
    return torch.stack(rows)


def shifts_by_any_count(A, N):
    """A count below 0, or of the width or more, leaves no bit: 0, or the sign."""
    A: T.Tensor((64,), T.int32)
    N: T.Tensor((64,), T.int32)
    C = T.empty((6, 64), T.int32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            small = T.cast(A[i], T.int8)
            unsigned = T.cast(A[i], T.uint32)
            C[0, i] = A[i] << N[i]
            C[1, i] = A[i] >> N[i]
            C[2, i] = T.cast(unsigned >> T.cast(N[i], T.uint32), T.int32)
            C[3, i] = small << N[i]
            C[4, i] = small >> N[i]
            C[5, i] = 1 << (i - 8)
    return C


def shifts_by_any_count_expected(a: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    small = [(x + 128) % 256 - 128 for x in a.tolist()]
    unsigned = [x % 2**32 for x in a.tolist()]
    counts = n.tolist()
    rows = [
        [_left(x, k, 32) for x, k in zip(a.tolist(), counts, strict=True)],
        [_right(x, k, 32) for x, k in zip(a.tolist(), counts, strict=True)],
        [_left(_right(x, k, 32), 0, 32) for x, k in zip(unsigned, counts, strict=True)],
        [_left(x, k, 8) for x, k in zip(small, counts, strict=True)],
        [_right(x, k, 8) for x, k in zip(small, counts, strict=True)],
        [_left(1, i - 8, 32) for i in range(64)],
    ]
    return torch.tensor(rows, dtype=torch.int32)


def _left(x: int, count: int, bits: int) -> int:
    y = (x << count) % 2**bits if 0 <= count < bits else 0
    return y - 2**bits if y >> (bits - 1) else y


def _right(x: int, count: int, bits: int) -> int:
    return x >> (count if 0 <= count < bits else bits)


def wide_loops(A):
    """Loops and sizes of 64 bits: their arithmetic is of 64 bits."""
    N = T.dynamic("N", "int64")
    A: T.Tensor((N,), T.int64)
    C = T.empty((4,), T.int64)
    with T.Kernel(1, threads=32):
        total = T.alloc_var(T.int64, 0)
        for k in T.serial(T.int64(3)):
            total += k * 4294967296
        C[0] = total
        for k in T.unroll(T.int64(3)):
            total += k * 4294967296
        C[1] = total
        for k in T.serial(A[0], A[1]):
            total += k // 3
        C[2] = total
        C[3] = (N << 33) + N * N * N
    return C


def wide_loops_expected(a: torch.Tensor) -> torch.Tensor:
    n = len(a)
    last = (6 << 32) + sum(k // 3 for k in range(int(a[0]), int(a[1])))
    return torch.tensor([3 << 32, 6 << 32, last, (n << 33) + n**3])


INTEGERS = (
    Construct(divided_by_any, _dividends_and_divisors, divided_by_any_expected),
    Construct(
        wide_loops,
        lambda: (torch.tensor([(1 << 32) - 6, (1 << 32) + 4] + [0] * 2000),),
        wide_loops_expected,
    ),
    Construct(
        shifts_by_any_count,
        lambda: (
            torch.randint(-(2**31), 2**31, (64,), dtype=torch.int64).int(),
            torch.arange(-20, 44, dtype=torch.int32),
        ),
        shifts_by_any_count_expected,
    ),
    Construct(wrapped_values, lambda: (ints(256, low=0),), wrapped_values_expected),
    Construct(large_indices, lambda: (ints(64, low=0, high=3),), large_indices_expected),
    Construct(unrolled_arithmetic, lambda: (ints(16),), unrolled_arithmetic_expected),
)

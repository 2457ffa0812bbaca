"""Programs that convert between dtypes in the less usual ways, with their exact results."""

from __future__ import annotations

import math

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


def casts_without_saturation(A):
    """Beyond the largest 8-bit float lies NaN, or infinity; below it nothing changes."""
    A: T.Tensor((256,), T.float32)
    C = T.empty((4, 256), T.uint8)
    with T.Kernel(2, threads=64) as bx:
        for i in T.Parallel(128):
            a = A[bx * 128 + i]
            C[0, bx * 128 + i] = T.reinterpret(T.cast(a, "float8_e4m3fn", sat=False), T.uint8)
            C[1, bx * 128 + i] = T.reinterpret(T.cast(a, "float8_e5m2", sat=False), T.uint8)
            C[2, bx * 128 + i] = T.reinterpret(T.cast(a, "float8_e4m3fn", "rn"), T.uint8)
            h = T.cast(a, T.float16, sat=False)
            C[3, bx * 128 + i] = T.reinterpret(T.cast(h, "float8_e5m2", "", False), T.uint8)
    return C


def _bytes(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).view(torch.uint8)


def casts_without_saturation_expected(a: torch.Tensor) -> torch.Tensor:
    clamped = _bytes(a.clamp(-448, 448), torch.float8_e4m3fn)
    # 464 lies halfway between 448 and what would follow it, and rounds to the even 448.
    nan = torch.where(a < 0, 0xFF, 0x7F).to(torch.uint8)
    return torch.stack(
        [
            torch.where(a.abs() > 464, nan, clamped),
            _bytes(a, torch.float8_e5m2),
            clamped,
            _bytes(a.half(), torch.float8_e5m2),
        ]
    )


def bytes_of_conversions(A, B):
    """Neighbours are converted to 8-bit floats, and then computed with as integers."""
    A: T.Tensor((512,), T.float32)
    B: T.Tensor((512,), T.uint8)
    C = T.empty((8, 512), T.uint8)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(512):
            e5 = T.reinterpret(T.cast(A[i], T.float8_e5m2), T.uint8)
            e4 = T.reinterpret(T.cast(A[i], T.float8_e4m3fn), T.uint8)
            h5 = T.reinterpret(T.cast(T.cast(A[i], T.float16), T.float8_e5m2), T.uint8)
            C[0, i] = e5 ^ B[i]
            C[1, i] = e4 & B[i]
            C[2, i] = e5 + e4
            C[3, i] = T.max(e4, B[i])
            C[4, i] = h5 | B[i]
            C[5, i] = T.if_then_else(B[i] > 100, e5, e4)
            C[6, i] = e4 >> 1
            C[7, i] = T.reinterpret(-T.cast(A[i], T.float8_e5m2), T.uint8)
    return C


def bytes_of_conversions_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    e5, e4 = (_bytes(a, d).int() for d in (torch.float8_e5m2, torch.float8_e4m3fn))
    h5, b = _bytes(a.half(), torch.float8_e5m2).int(), b.int()
    rows = [e5 ^ b, e4 & b, e5 + e4, torch.maximum(e4, b), h5 | b, torch.where(b > 100, e5, e4)]
    return torch.stack([*rows, e4 >> 1, e5 ^ 128]).to(torch.uint8)


def words_of_conversions(A, B):
    """The same for words: of two 8-bit floats, and of 16-bit floats."""
    A: T.Tensor((512,), T.float32)
    B: T.Tensor((512,), T.uint16)
    C = T.empty((4, 512), T.uint16)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(512):
            e5 = T.cast(T.reinterpret(T.cast(A[i], T.float8_e5m2), T.uint8), T.uint16)
            e4 = T.cast(T.reinterpret(T.cast(A[i], T.float8_e4m3fn), T.uint8), T.uint16)
            C[0, i] = e5 * 256 + e4
            C[1, i] = T.reinterpret(T.cast(A[i], T.float16), T.uint16) ^ B[i]
            C[2, i] = T.reinterpret(T.cast(A[i], T.bfloat16), T.uint16) + e5
            C[3, i] = e4 << 8
    return C


def words_of_conversions_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    e5, e4 = (_bytes(a, d).int() for d in (torch.float8_e5m2, torch.float8_e4m3fn))
    half, brain = (a.to(d).view(torch.int16).int() for d in (torch.float16, torch.bfloat16))
    rows = torch.stack([e5 * 256 + e4, half ^ b.int(), brain + e5, e4 << 8])
    return (rows & 0xFFFF).to(torch.uint16)


def steps_between_narrow_floats(P, Q, B):
    """From one 8-bit float to the other, to and from bfloat16, and on to integers."""
    P: T.Tensor((256,), T.float8_e4m3fn)
    Q: T.Tensor((256,), T.float8_e5m2)
    B: T.Tensor((256,), T.bfloat16)
    C = T.empty((10, 256), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((256,), T.float8_e4m3fn)
        other = T.alloc_fragment((256,), T.float8_e5m2)
        T.copy(P, tile)
        T.copy(tile, other)
        for i in T.Parallel(256):
            C[0, i] = T.cast(P[i], T.float8_e5m2)
            C[1, i] = T.cast(Q[i], T.float8_e4m3fn)
            C[2, i] = T.cast(P[i], T.bfloat16)
            C[3, i] = T.cast(Q[i], T.bfloat16)
            C[4, i] = T.cast(T.cast(P[i], T.bfloat16), T.int16)
            C[5, i] = T.cast(T.cast(Q[i], T.bfloat16), T.int32)
            C[6, i] = T.cast(T.cast(P[i], T.bfloat16), T.uint8)
            C[7, i] = T.cast(B[i], T.float8_e4m3fn)
            C[8, i] = T.cast(T.cast(B[i], T.float8_e5m2), T.int8)
            C[9, i] = other[i]
    return C


def steps_between_narrow_floats_expected(*inputs: torch.Tensor) -> torch.Tensor:
    p, q, b = (x.float() for x in inputs)
    e4, e5 = torch.float8_e4m3fn, torch.float8_e5m2
    rows = [
        p.to(e5),
        q.clamp(-448, 448).to(e4),
        p,
        q,
        p.trunc(),
        q.trunc(),
        p.trunc().clamp(0, 255),
    ]
    rows += [b.to(e4), b.to(e5).float().trunc().clamp(-128, 127), p.to(e5)]
    return torch.stack([row.float() for row in rows])


def constants_of_8_bits(A):
    """An infinite constant stays infinite, where a conversion saturates; others are rounded once."""
    A: T.Tensor((64,), T.float32)
    C = T.empty((4, 64), T.float32)
    with T.Kernel(1, threads=64):
        t = T.alloc_fragment((64,), "float8_e5m2")
        s = T.alloc_fragment((64,), "float8_e4m3fn")
        T.fill(t, -T.infinity("float8_e5m2"))
        T.copy(t, C[0, :])
        T.copy(A, t)
        for i in T.Parallel(64):
            x = T.max(t[i], T.infinity("float8_e5m2"))
            C[1, i] = T.if_then_else(
                i % 2 == 0, T.cast(-x, T.float32), T.cast(T.abs(-x), T.float32)
            )
        T.copy(A, s)
        for i in T.Parallel(64):
            C[2, i] = T.if_then_else(s[i] > T.cast(0.3, "float8_e4m3fn"), 1.0, 0.0)
            s[i] = s[i] * T.cast(0.3, "float8_e4m3fn") + 3
        T.copy(s, C[3, :])
    return C


def constants_of_8_bits_expected(a: torch.Tensor) -> torch.Tensor:
    def narrow(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float8_e4m3fn).float()

    rows = [torch.full((64,), -math.inf), torch.tensor([-math.inf, math.inf]).repeat(32)]
    x, factor = narrow(a), narrow(torch.tensor(0.3))
    return torch.stack([*rows, (x > factor).float(), narrow(narrow(x * factor) + 3)])


def _numbers() -> torch.Tensor:
    edges = [0.0, 448.0, 463.9, 464.0, 464.1, 480.0, 57344.0, 61439.0, 61440.0, 65504.0, 1e30]
    edges.append(float("inf"))
    x = torch.cat([torch.tensor(edges), torch.randn(116).exp2() * 300])
    return torch.cat([x, -x])


def unsigned_with_literals(A, B):
    """A literal beside a uint32 is one too: nothing is negative above half the range."""
    A: T.Tensor((128,), T.uint32)
    B: T.Tensor((128,), T.int32)
    C = T.empty((8, 128), T.int64)
    with T.Kernel(1, threads=64):
        for i in T.Parallel(128):
            C[0, i] = A[i] + 1
            C[1, i] = A[i] // 3
            C[2, i] = A[i] % 7
            C[3, i] = A[i] >> 16
            C[4, i] = T.max(A[i], 5)
            C[5, i] = T.if_then_else(A[i] > 5, 1, 0)
            C[6, i] = B[i] + A[i]
            C[7, i] = T.cast(T.cast(A[i] * 1, T.float64), T.int64)
    return C


def unsigned_with_literals_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = a.to(torch.int64)
    wrap = (1 << 32) - 1
    rows = [(x + 1) & wrap, x // 3, x % 7, x >> 16, x.clamp(min=5), (x > 5).long(), (x + b) & wrap]
    return torch.stack([*rows, x])


def unsigned_indices(A):
    """An index below 0 wraps to one beyond every tensor; what does not wrap is an index like any."""
    A: T.Tensor((50,), T.int32)
    C = T.empty((3, 50), T.int32)
    with T.Kernel(2, threads=32) as bx:
        for i in T.Parallel(32):
            C[0, T.cast(bx * 32 + i, T.uint32) - 5] = bx * 32 + i
        for i in T.Parallel(32):
            C[1, bx * 32 + i] = A[T.cast(bx * 32 + i, T.uint32) - 5]
        for i in T.Parallel(32):
            C[2, bx * 32 + i] = A[T.cast(T.cast(bx * 32 + i, T.uint8) - T.uint8(250), T.int64)]
    return C


def unsigned_indices_expected(a: torch.Tensor) -> torch.Tensor:
    shifted = torch.cat([torch.zeros(5, dtype=torch.int32), a[:45]])
    moved = torch.cat([a[6:], torch.zeros(6, dtype=torch.int32)])
    return torch.stack([torch.arange(5, 55, dtype=torch.int32), shifted, moved])


def floats_to_integers(A, D, F):
    """Towards zero, within the range of the type, 0 for a NaN; a number other than 0 is true."""
    A: T.Tensor((32,), T.float32)
    D: T.Tensor((32,), T.float64)
    F: T.Tensor((32,), T.float8_e5m2)
    C = T.empty((18, 32), T.int64)
    with T.Kernel(1, threads=32):
        small = T.alloc_fragment((32,), T.int8)
        T.copy(A, small)
        for i in T.Parallel(32):
            C[0, i] = small[i]
            C[1, i] = T.cast(A[i], T.uint8)
            C[2, i] = T.cast(A[i], T.int16)
            C[3, i] = T.cast(A[i], T.uint16)
            C[4, i] = T.cast(A[i], T.int32)
            C[5, i] = T.cast(A[i], T.uint32)
            C[6, i] = T.cast(A[i], T.int64)
            C[7, i] = T.cast(D[i], T.int8)
            C[8, i] = T.cast(D[i], T.uint16)
            C[9, i] = T.cast(D[i], T.int32)
            C[10, i] = T.cast(D[i], T.int64)
            C[11, i] = T.cast(F[i], T.int8)
            C[12, i] = T.cast(F[i], T.uint32)
            C[13, i] = T.cast(F[i], T.int64)
            C[14, i] = T.cast(T.cast(A[i], T.bfloat16), T.int8)
            C[15, i] = T.cast(T.cast(A[i], T.bfloat16), T.bool)
            C[16, i] = T.cast(F[i], T.bool)
            C[17, i] = T.cast(T.infinity(T.float32), T.int16)
    return C


def floats_to_integers_expected(*inputs: torch.Tensor) -> torch.Tensor:
    a, d, f = (x.double().tolist() for x in (inputs[0], inputs[1], inputs[2].float()))
    narrow = inputs[0].bfloat16().double().tolist()
    plans = [(a, b, s) for b in (8, 16, 32) for s in (True, False)] + [(a, 64, True)]
    plans += [(d, 8, True), (d, 16, False), (d, 32, True), (d, 64, True)]
    plans += [(f, 8, True), (f, 32, False), (f, 64, True), (narrow, 8, True)]
    rows = [[_integer(x, bits, signed) for x in values] for values, bits, signed in plans]
    rows += [[int(x != 0) for x in narrow], [int(x != 0) for x in f], [32767] * 32]
    return torch.tensor(rows)


def _integer(x: float, bits: int, signed: bool) -> int:
    least = -(1 << (bits - 1)) if signed else 0
    if math.isnan(x):
        return 0
    return math.trunc(max(least, min(x, least + (1 << bits) - 1)))


def _beyond() -> torch.Tensor:
    known = [0.0, -0.0, 0.5, -0.9, 127.5, -128.5, 255.9, 256.0, -129.0, 300.0, -300.0, 70000.0]
    known += [65535.5, -32769.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 1e30, -1e30]
    known += [math.nan, math.inf, -math.inf, 3e9, -3e9]
    return torch.cat([torch.tensor(known, dtype=torch.float64), torch.randn(6).double() * 1000])


CONVERSIONS = (
    Construct(
        floats_to_integers,
        lambda: (_beyond().float(), _beyond(), _beyond().float().to(torch.float8_e5m2)),
        floats_to_integers_expected,
    ),
    Construct(
        steps_between_narrow_floats,
        lambda: (
            (torch.randn(256) * 40).to(torch.float8_e4m3fn),
            (torch.randn(256) * 400).to(torch.float8_e5m2),
            (torch.randn(256) * 40).bfloat16(),
        ),
        steps_between_narrow_floats_expected,
    ),
    Construct(
        bytes_of_conversions,
        lambda: (torch.randn(512) * 8, torch.randint(0, 256, (512,), dtype=torch.uint8)),
        bytes_of_conversions_expected,
    ),
    Construct(
        words_of_conversions,
        lambda: (torch.randn(512) * 8, torch.randint(0, 1 << 16, (512,)).to(torch.uint16)),
        words_of_conversions_expected,
    ),
    Construct(unsigned_indices, lambda: (ints(50),), unsigned_indices_expected),
    Construct(constants_of_8_bits, lambda: (torch.randn(64) * 8,), constants_of_8_bits_expected),
    Construct(
        unsigned_with_literals,
        lambda: (
            torch.randint(0, 1 << 32, (128,), dtype=torch.int64).to(torch.uint32),
            torch.randint(-9, 9, (128,), dtype=torch.int32),
        ),
        unsigned_with_literals_expected,
    ),
    Construct(casts_without_saturation, lambda: (_numbers(),), casts_without_saturation_expected),
)

"""Programs on which a plausible reading of the language gives a wrong number in silence.

Each is one rule of the language, with integers or values that make every other reading differ.
"""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.constructs import Construct, ints


def copy_extents_of_the_lower_scope(A):
    A: T.Tensor((16, 16), T.int32)
    B = T.empty((4, 8), T.int32)
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((16, 16), T.int32)
        part = T.alloc_fragment((4, 8), T.int32)
        T.copy(A, tile)
        T.copy(tile[3, 5], part)
        T.copy(part, B)
    return B


def reads_outside_give_zero(A):
    A: T.Tensor((10, 12), T.int32)
    B = T.empty((16, 16), T.int32)
    with T.Kernel(1, threads=64) as bx:
        tile = T.alloc_shared((16, 16), T.int32)
        T.fill(tile, 77)
        T.copy(A[bx - 3, 4], tile)
        T.copy(tile, B)
    return B


def reads_outside_give_zero_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(16, 16, dtype=torch.int32)
    out[3:13, 0:8] = a[:, 4:]
    return out


def writes_outside_are_dropped(A):
    A: T.Tensor((8, 8), T.int32)
    B = T.empty((10, 10), T.int32)
    with T.Kernel(1, threads=64) as bx:
        tile = T.alloc_shared((8, 8), T.int32)
        for i, j in T.Parallel(10, 10):
            B[i, j] = 7
        T.copy(A, tile)
        T.copy(tile, B[bx - 2, 5])
        for i in T.Parallel(8):
            B[9, i + 6] = A[0, i]
    return B


def writes_outside_are_dropped_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.full((10, 10), 7, dtype=torch.int32)
    out[0:6, 5:10] = a[2:, :5]
    out[9, 6:10] = a[0, :4]
    return out


def copies_cast(A):
    A: T.Tensor((32,), T.float32)
    B = T.empty((32,), T.int32)
    with T.Kernel(1, threads=32):
        half = T.alloc_shared((32,), T.float16)
        T.copy(A, half)
        T.copy(half, B)
    return B


def copies_cast_expected(a: torch.Tensor) -> torch.Tensor:
    return a.half().to(torch.int32)


def reductions_accumulate_in_the_destination(A):
    A: T.Tensor((4, 64), T.int32)
    B = T.empty((4,), T.int8)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((4, 64), T.int32)
        out = T.alloc_fragment((4,), T.int8)
        T.copy(A, tile)
        T.reduce_sum(tile, out, dim=1)
        T.copy(out, B)
    return B


def narrow_sources_reduce_in_the_wide_destination(A):
    A: T.Tensor((2, 128), T.float16)
    B = T.empty((2,), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((2, 128), T.float16)
        out = T.alloc_fragment((2,), T.float32)
        T.copy(A, tile)
        T.reduce_sum(tile, out, dim=1)
        T.copy(out, B)
    return B


def reductions_onto_old_values(A):
    A: T.Tensor((4, 16), T.int32)
    B = T.empty((4, 4), T.int32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((4, 16), T.int32)
        total = T.alloc_fragment((4,), T.int32)
        least = T.alloc_fragment((4,), T.int32)
        again = T.alloc_fragment((4,), T.int32)
        T.copy(A, tile)
        T.fill(total, 100)
        T.fill(least, -50)
        T.fill(again, 100)
        T.reduce_sum(tile, total, dim=1, clear=False)
        T.reduce_min(tile, least, dim=1, clear=False)
        T.reduce_sum(tile, again, 1, True)
        most = T.alloc_fragment((4,), T.int32)
        T.fill(most, -30)
        T.reduce_absmax(tile, most, dim=1, clear=False)
        T.copy(most, B[3, 0:4])
        T.copy(total, B[0, 0:4])
        T.copy(least, B[1, 0:4])
        T.copy(again, B[2, 0:4])
    return B


def reductions_onto_old_values_expected(a: torch.Tensor) -> torch.Tensor:
    total = a.sum(1)
    # An old value counts with its magnitude where magnitudes are reduced.
    fixed = [torch.full_like(total, -50), torch.full_like(total, 30)]
    return torch.stack([total + 100, fixed[0], total, fixed[1]]).to(torch.int32)


def fp8_fragments_round_each_time(A):
    A: T.Tensor((16,), T.float32)
    B = T.empty((16,), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((16,), T.float8_e4m3fn)
        T.copy(A, tile)
        for _ in T.serial(12):
            for i in T.Parallel(16):
                tile[i] = tile[i] + T.cast(1.0, T.float8_e4m3fn)
        T.copy(tile, B)
    return B


def fp8_fragments_round_each_time_expected(a: torch.Tensor) -> torch.Tensor:
    tile = a.to(torch.float8_e4m3fn)
    for _ in range(12):
        tile = (tile.float() + 1).to(torch.float8_e4m3fn)
    return tile.float()


def variables_start_once(A):
    A: T.Tensor((6,), T.int32)
    B = T.empty((2, 6), T.int32)
    with T.Kernel(1, threads=32):
        for i in T.serial(6):
            kept = T.alloc_var(T.int32)
            fresh = T.alloc_var(T.int32, init=10)
            kept += A[i]
            fresh += A[i]
            B[0, i] = kept
            B[1, i] = fresh
    return B


def variables_start_once_expected(a: torch.Tensor) -> torch.Tensor:
    return torch.stack([a.cumsum(0), a + 10]).to(torch.int32)


def reads_are_snapshots(A):
    A: T.Tensor((4,), T.int32)
    B = T.empty((2,), T.int32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((4,), T.int32)
        T.copy(A, tile)
        before = tile[1]
        tile[1] = 1000
        B[0] = before
        B[1] = tile[1]
    return B


def binds_in_parallel_are_snapshots(A):
    A: T.Tensor((2, 16), T.int32)
    B = T.empty((2, 16), T.int32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((2, 16), T.int32)
        T.copy(A, tile)
        for i in T.Parallel(16):
            first = tile[0, i]
            second = tile[1, i]
            tile[0, i] = second
            tile[1, i] = first
        T.copy(tile, B)
    return B


def transposes_by_position(A, B):
    A: T.Tensor((32, 16), T.float16)
    B: T.Tensor((16, 32), T.float16)
    C = T.empty((16, 16), T.float32)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((32, 16), T.float16)
        b = T.alloc_shared((16, 32), T.float16)
        c = T.alloc_fragment((16, 16), T.float32)
        T.copy(A, a)
        T.copy(B, b)
        T.clear(c)
        T.gemm(a, b, c, True, True)
        T.copy(c, C)
    return C


def clear_accum_at_run_time(A, B):
    A: T.Tensor((3, 16, 16), T.float16)
    B: T.Tensor((3, 16, 16), T.float16)
    C = T.empty((16, 16), T.float32)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((16, 16), T.float16)
        b = T.alloc_shared((16, 16), T.float16)
        c = T.alloc_fragment((16, 16), T.float32)
        T.fill(c, 1000)
        for k in T.serial(3):
            T.copy(A[k, 0:16, 0:16], a)
            T.copy(B[k, 0:16, 0:16], b)
            T.gemm(a, b, c, clear_accum=k == 0)
        T.copy(c, C)
    return C


def small(*shape: int) -> torch.Tensor:
    """Small integers in float16: every product and sum is exact."""
    return ints(*shape, low=-4, high=5).half()


TRAPS: tuple[Construct, ...] = (
    Construct(copy_extents_of_the_lower_scope, lambda: (ints(16, 16),), lambda a: a[3:7, 5:13]),
    Construct(reads_outside_give_zero, lambda: (ints(10, 12),), reads_outside_give_zero_expected),
    Construct(
        writes_outside_are_dropped, lambda: (ints(8, 8),), writes_outside_are_dropped_expected
    ),
    # Two roundings: 2049.7 becomes 2050 in float16, and -3.99951 becomes -4.
    Construct(
        copies_cast,
        lambda: (torch.cat([torch.randn(30) * 100, torch.tensor([2049.7, -3.99951])]),),
        copies_cast_expected,
    ),
    Construct(
        reductions_accumulate_in_the_destination,
        lambda: (ints(4, 64, low=0, high=100),),
        lambda a: a.sum(1).to(torch.int8),
    ),
    # 128 times 1000 is no float16.
    Construct(
        narrow_sources_reduce_in_the_wide_destination,
        lambda: (torch.full((2, 128), 1000.0).half(),),
        lambda a: a.float().sum(1),
    ),
    Construct(
        reductions_onto_old_values, lambda: (ints(4, 16),), reductions_onto_old_values_expected
    ),
    # From 16 on the values are two apart: 16 + 1 is a tie and stays 16.
    Construct(
        fp8_fragments_round_each_time,
        lambda: (torch.arange(16.0) + 1,),
        fp8_fragments_round_each_time_expected,
    ),
    Construct(variables_start_once, lambda: (ints(6),), variables_start_once_expected),
    Construct(
        reads_are_snapshots,
        lambda: (ints(4),),
        lambda a: torch.tensor([a[1], 1000], dtype=torch.int32),
    ),
    Construct(binds_in_parallel_are_snapshots, lambda: (ints(2, 16),), lambda a: a.flip(0)),
    Construct(
        transposes_by_position,
        lambda: (small(32, 16), small(16, 32)),
        lambda a, b: a.float().T @ b.float().T,
    ),
    Construct(
        clear_accum_at_run_time,
        lambda: (small(3, 16, 16), small(3, 16, 16)),
        lambda a, b: (a.float() @ b.float()).sum(0),
    ),
)


def float32_product(A, B):
    A: T.Tensor((16, 16), T.float32)
    B: T.Tensor((16, 16), T.float32)
    C = T.empty((16, 16), T.float32)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((16, 16), T.float32)
        b = T.alloc_shared((16, 16), T.float32)
        c = T.alloc_fragment((16, 16), T.float32)
        T.copy(A, a)
        T.copy(B, b)
        T.clear(c)
        T.gemm(a, b, c)
        T.copy(c, C)
    return C


def beyond_tf32() -> tuple[torch.Tensor, torch.Tensor]:
    """Operands whose last bit TF32, with its 10 bits of fraction, does not have."""
    return torch.full((16, 16), 1 + 2.0**-12), torch.eye(16)

"""Programs whose statements are of single threads, each with inputs and its exact result.

Triton has no form for them: CUDA C++ and the CPU run them.
"""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints
from tests.programs.exchanges import (
    EXCHANGES,
    extremes_of_some_threads,
    extremes_of_some_threads_expected,
)
from tests.programs.matrices import MATRICES


# -- control flow of each thread -------------------------------------------------------------------
def steps_of_collatz(X):
    """Each thread goes on until its own number is 1."""
    N = T.const("N")
    X: T.Tensor((N,), T.int32)
    Y = T.empty((N,), T.int32)
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        tx = T.get_thread_binding()
        value = T.alloc_var(T.int32)
        steps = T.alloc_var(T.int32, 0)
        value = X[bx * 32 + tx]
        while value > 1:
            value = value // 2 if value % 2 == 0 else value * 3 + 1
            steps += 1
        Y[bx * 32 + tx] = steps
    return Y


def steps_of_collatz_expected(x: torch.Tensor) -> torch.Tensor:
    def steps(value: int) -> int:
        count = 0
        while value > 1:
            value = value // 2 if value % 2 == 0 else value * 3 + 1
            count += 1
        return count

    return torch.tensor([steps(int(v)) for v in x], dtype=torch.int32)


def sorted_by_odd_and_even(X):
    """Neighbours swap in rounds. No barrier is written: the block waits where it must."""
    X: T.Tensor((4, 64), T.int32)
    Y = T.empty((4, 64), T.int32)
    with T.Kernel(4, threads=32) as bx:
        tx = T.get_thread_binding()
        s = T.alloc_shared((64,), T.int32)
        pair = T.alloc_local((2,), T.int32)
        for j in T.serial(2):
            s[tx * 2 + j] = X[bx, tx * 2 + j]
        for k in T.serial(64):
            at = tx * 2 + k % 2
            if at + 1 < 64:
                pair[0] = s[at]
                pair[1] = s[at + 1]
                if pair[0] > pair[1]:
                    s[at] = pair[1]
                    s[at + 1] = pair[0]
        for j in T.serial(2):
            Y[bx, tx * 2 + j] = s[tx * 2 + j]
    return Y


def half_the_block_waits(X):
    """A barrier of 64 of the block's threads, in a condition that the others do not meet."""
    X: T.Tensor((64,), T.int32)
    Y = T.empty((96,), T.int32)
    with T.Kernel(1, threads=96):
        tx = T.get_thread_binding()
        held = T.alloc_var(T.int32, 0)
        s = T.alloc_shared((64,), T.int32)
        if tx < 64:
            s[tx] = X[tx]
            for i in T.serial(6):
                offset = 1 << i
                T.sync_threads(3, 64)
                held = s[tx]
                if tx >= offset:
                    held += s[tx - offset]
                T.sync_threads(3, 64)
                s[tx] = held
        Y[tx] = held
    return Y


def half_the_block_waits_expected(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.cumsum(0), torch.zeros(32)]).int()


# -- tiles among threads ---------------------------------------------------------------------------
def tiles_between_threads(X, A):
    """Copies, fills, loops and reductions of the block, between statements of its threads."""
    N = T.dynamic("N")
    X: T.Tensor((N, 24), T.float32)
    A: T.Tensor((24,), T.int32)
    Y = T.empty((N, 24), T.float32)
    with T.Kernel(T.ceildiv(N, 8), threads=(16, 4)) as bx:
        tx, ty = T.get_thread_bindings()
        tile = T.alloc_shared((8, 24), T.float32)
        turned = T.alloc_shared((24, 8), T.float32)
        top = T.alloc_fragment((8,), T.float32)
        place = T.alloc_local((1,), T.int32)
        T.copy(X[bx * 8, 0], tile)
        T.reduce_max(tile, top, dim=1)
        T.transpose(tile, turned)
        place[0] = 0
        while A[place[0]] > tx:
            place[0] += 1
        for i, j in T.Parallel(8, 24):
            tile[i, j] = turned[j, i] - top[i]
        for i in T.serial(2):
            tile[ty * 2 + i, tx] += T.cast(place[0], T.float32)
        T.copy(tile, Y[bx * 8, 0])
    return Y


def tiles_between_threads_expected(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    out = x - x.amax(1, keepdim=True)
    places = torch.tensor([int((a > t).int().argmin()) for t in range(16)])
    out[:, :16] += places
    return out


def shared_counters(X):
    """Atomic updates of shared and global elements; each thread keeps what it found."""
    X: T.Tensor((4, 128), T.int32)
    Y = T.empty((4, 130), T.int32)
    with T.Kernel(4, threads=128) as bx:
        tx = T.get_thread_binding()
        counts = T.alloc_shared((2,), T.int32)
        own = T.alloc_local((3,), T.int32)
        T.clear(counts)
        T.clear(own)
        for i in T.serial(3):
            own[i] = X[bx, (tx + i) % 128]
        if own[0] + own[1] + own[2] > 0:
            place = T.atomic_add(counts[0], 1, return_prev=True)
            if place < 64:
                T.atomic_max(counts[1], own[0], memory_order="acq_rel")
        T.sync_threads()
        Y[bx, tx] = counts[0]
        if tx < 2:
            Y[bx, 128 + tx] = T.if_then_else(counts[tx] > 0, 1, 0)
    return Y


def shared_counters_expected(x: torch.Tensor) -> torch.Tensor:
    sums = x + x.roll(-1, 1) + x.roll(-2, 1)
    counts = (sums > 0).sum(1, dtype=torch.int32)
    out = counts[:, None].expand(4, 130).clone()
    out[:, 128:] = 1
    return out


def narrow_updates(X):
    """Atomic updates of elements of 8 and 16 bits by threads of a block."""
    X: T.Tensor((64,), T.int32)
    Y = T.empty((8,), T.float32)
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        bytes_ = T.alloc_shared((4,), T.uint8)
        halves = T.alloc_shared((4,), T.float16)
        rounds = T.alloc_var(T.int32)
        T.fill(bytes_, 0)
        T.clear(halves)
        rounds = X[tx]
        while rounds > 0:
            T.atomic_add(bytes_[tx % 4], T.cast(1, T.uint8))
            T.atomic_max(halves[tx % 4], T.cast(rounds, T.float16))
            rounds -= 1
        T.sync_threads()
        if tx < 4:
            Y[tx] = T.cast(bytes_[tx], T.float32)
            Y[4 + tx] = T.cast(halves[tx], T.float32)
    return Y


def narrow_updates_expected(x: torch.Tensor) -> torch.Tensor:
    columns = x.view(16, 4)
    return torch.cat([columns.sum(0) % 256, columns.amax(0)]).float()


def wrapped_numbers(X):
    """Sums, products, negatives, shifts, powers and sums of a warp beyond the dtype wrap."""
    X: T.Tensor((64,), T.int32)
    Y = T.empty((7, 64), T.int32)
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        x = T.shfl_xor(X[tx], 1)
        Y[0, tx] = T.if_then_else(x + 1 > x, 1, 0)
        Y[1, tx] = T.if_then_else(x - 1 < x, 1, 0)
        Y[2, tx] = T.if_then_else((x * 3) // 3 == x, 1, 0)
        Y[3, tx] = T.if_then_else(-x == x, 1, 0)
        Y[4, tx] = T.if_then_else((x << 1) >> 1 == x, 1, 0)
        Y[5, tx] = T.if_then_else(T.abs(x) < 0, 1, 0)
        Y[6, tx] = T.warp_reduce_sum(x)
    return Y


def extremes() -> torch.Tensor:
    found = ints(64)
    found[::5], found[1::5], found[2::5] = 2**31 - 1, -(2**31), 2**30
    return found


def wrapped_numbers_expected(given: torch.Tensor) -> torch.Tensor:
    x = given.view(32, 2).flip(1).reshape(64)  # torch's integers wrap
    sums = x.view(2, 32).sum(1, dtype=torch.int32).repeat_interleave(32)
    tests = (x + 1 > x, x - 1 < x, (x * 3).div(3, rounding_mode="floor") == x, -x == x,
             (x << 1) >> 1 == x, x.abs() < 0)  # fmt: skip
    return torch.stack([*(test.int() for test in tests), sums])


def numbers_of_threads(X):
    """Lanes, warps and groups choose elements, as indices of threads do: tiles, not threads."""
    X: T.Tensor((256,), T.int32)
    Y = T.empty((256,), T.int32)
    with T.Kernel(1, threads=(64, 4)):
        tx, ty = T.get_thread_bindings()
        at = T.get_warp_idx() * 32 + T.get_lane_idx()
        Y[ty * 64 + tx] = X[at] + T.get_warp_group_idx() * 100
    return Y


def roles_of_threads(X):
    """Groups of 128 threads go their own ways, and shuffle in them."""
    X: T.Tensor((256,), T.int32)
    Y = T.empty((384,), T.int32)
    with T.Kernel(1, threads=384):
        tx = T.get_thread_binding()
        s = T.alloc_shared((256,), T.int32)
        with T.ws(0):
            Y[tx] = T.shfl_xor(X[tx], 1)
        with T.ws(1, 2):
            s[tx - 128] = X[tx - 128]
            T.sync_threads(1, 256)
            Y[tx] = T.warp_reduce_sum(s[383 - tx])
    return Y


def roles_of_threads_expected(x: torch.Tensor) -> torch.Tensor:
    pairs = x[:128].view(64, 2).flip(1).reshape(128)
    sums = x.flip(0).view(8, 32).sum(1, dtype=torch.int32).repeat_interleave(32)
    return torch.cat([pairs, sums])


# All executors run these.
NUMBERS = [
    Construct(extremes_of_some_threads, lambda: (ints(2, 64),), extremes_of_some_threads_expected),
    Construct(
        numbers_of_threads,
        lambda: (ints(256),),
        lambda x: x + torch.arange(256).int() // 128 * 100,
    ),
]
THREADS = [
    Construct(steps_of_collatz, lambda: (ints(96, low=1, high=200),), steps_of_collatz_expected),
    Construct(sorted_by_odd_and_even, lambda: (ints(4, 64),), lambda x: x.sort(1).values),
    Construct(half_the_block_waits, lambda: (ints(64),), half_the_block_waits_expected),
    Construct(
        tiles_between_threads,
        lambda: (ints(21, 24).float(), torch.arange(24, 0, -1).int() - 1),
        tiles_between_threads_expected,
    ),
    Construct(shared_counters, lambda: (ints(4, 128, low=1),), shared_counters_expected),
    Construct(roles_of_threads, lambda: (ints(256),), roles_of_threads_expected),
    Construct(narrow_updates, lambda: (ints(64, low=0, high=40),), narrow_updates_expected),
    Construct(wrapped_numbers, lambda: (extremes(),), wrapped_numbers_expected),
    *EXCHANGES,
    *MATRICES,
]

"""Programs whose threads tell each other values or draw random numbers, with exact results.

Triton has no form for them: CUDA C++ and the CPU run them.
"""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


# -- what threads tell each other ------------------------------------------------------------------
def shuffles(X):
    """Each way of naming another lane, over whole warps and parts of them."""
    X: T.Tensor((64,), T.int32)
    Y = T.empty((7, 64), T.int32)
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        value = X[tx]
        Y[0, tx] = T.shfl_sync(value, 5)
        Y[1, tx] = T.shfl_up(value, 3)
        Y[2, tx] = T.shfl_down(value, 2, width=8)
        Y[3, tx] = T.shfl_xor(value, 9)
        Y[4, tx] = T.shfl_sync(value, tx + 1, width=16)
        Y[5, tx] = T.shfl_up(value, 1, width=4)
        Y[6, tx] = T.tvm_warp_shuffle(0xFFFFFFFF, value, tx ^ 7, 32, 32)
    return Y


def shuffles_expected(x: torch.Tensor) -> torch.Tensor:
    t = torch.arange(64)
    lane, warp = t % 32, t // 32 * 32
    places = [
        warp + 5,
        torch.where(lane >= 3, t - 3, t),
        torch.where(t % 8 < 6, t + 2, t),
        warp + (lane ^ 9),
        t // 16 * 16 + (t + 1) % 16,
        torch.where(t % 4 >= 1, t - 1, t),
        t ^ 7,
    ]
    return torch.stack([x[place] for place in places])


def shuffles_of_each_width(A, B, C, D):
    """Values of 8, 16, 32 and 64 bits."""
    A: T.Tensor((32,), T.int8)
    B: T.Tensor((32,), T.float16)
    C: T.Tensor((32,), T.float32)
    D: T.Tensor((32,), T.float64)
    Y = T.empty((4, 32), T.float64)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        Y[0, tx] = T.cast(T.shfl_xor(A[tx], 1), T.float64)
        Y[1, tx] = T.cast(T.shfl_xor(B[tx], 2), T.float64)
        Y[2, tx] = T.cast(T.shfl_xor(C[tx], 4), T.float64)
        Y[3, tx] = T.shfl_xor(D[tx], 8)
    return Y


def shuffles_of_each_width_expected(*given: torch.Tensor) -> torch.Tensor:
    t = torch.arange(32)
    return torch.stack([x[t ^ (1 << n)].double() for n, x in enumerate(given)])


def votes(X):
    """Votes of warps, of parts of them under a condition, and of the block."""
    X: T.Tensor((80,), T.int32)
    Y = T.empty((11, 80), T.int64)
    with T.Kernel(1, threads=80):
        tx = T.get_thread_binding()
        lane = T.get_lane_idx()
        value = X[tx]
        Y[0, tx] = T.cast(T.any_sync(value > 8), T.int64)
        Y[1, tx] = T.cast(T.all_sync(value > -9), T.int64)
        Y[2, tx] = T.cast(T.ballot_sync(value > 0), T.int64)
        Y[3, tx] = T.cast(T.match_any_sync(value // 4), T.int64)
        Y[4, tx] = 0
        if lane < 16:
            Y[4, tx] = T.cast(T.ballot_sync(value < 0, 0xFFFF), T.int64)
        Y[5, tx] = T.cast(T.syncthreads_count(value > 0), T.int64)
        Y[6, tx] = T.cast(T.syncthreads_and(value > -10), T.int64)
        Y[7, tx] = T.cast(T.syncthreads_or(value > 10), T.int64)
        Y[8, tx] = T.cast(T.get_warp_idx() * 32 + lane, T.int64)
        Y[9, tx] = T.cast(T.ballot(value % 2), T.int64)
        Y[10, tx] = T.cast(T.match_all_sync(value >> 5) + T.match_all_sync(value), T.int64)
    return Y


def votes_expected(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(11, 80, dtype=torch.int64)
    out[5], out[6], out[7] = (x > 0).sum(), (x > -10).all(), (x > 10).any()
    out[8] = torch.arange(80)
    for first in range(0, 80, 32):
        warp = x[first : first + 32]
        bits = 1 << torch.arange(len(warp), dtype=torch.int64)
        own = out[:, first : first + len(warp)]
        own[0], own[1], own[2] = (warp > 8).any(), (warp > -9).all(), (bits * (warp > 0)).sum()
        same = (warp // 4)[:, None] == (warp // 4)[None, :]
        own[3] = (same * bits).sum(1)
        own[4, :16] = (bits * (warp < 0))[:16].sum()
        own[9] = (bits * (warp % 2 != 0)).sum()
        own[10] = 0xFFFFFFFF if ((warp >> 5) == (warp[0] >> 5)).all() else 0
    return out


def reductions_of_warps(X, Z):
    """Every lane gets the result of its warp; float sums are of numbers that are exact."""
    X: T.Tensor((96,), T.int32)
    Z: T.Tensor((96,), T.float16)
    Y = T.empty((6, 96), T.float32)
    with T.Kernel(1, threads=(32, 3)):
        tx, ty = T.get_thread_bindings()
        at = ty * 32 + tx
        Y[0, at] = T.cast(T.warp_reduce_sum(X[at]), T.float32)
        Y[1, at] = T.cast(T.warp_reduce_max(X[at]), T.float32)
        Y[2, at] = T.cast(T.warp_reduce_min(X[at]), T.float32)
        Y[3, at] = T.cast(T.warp_reduce_bitand(X[at]), T.float32)
        Y[4, at] = T.cast(T.warp_reduce_bitor(X[at]), T.float32)
        Y[5, at] = T.cast(T.warp_reduce_sum(Z[at]), T.float32)
    return Y


def reductions_of_warps_expected(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    out = torch.empty(6, 96)
    for first in range(0, 96, 32):
        warp, halves = x[first : first + 32], z[first : first + 32]
        both, either = int(warp[0]), int(warp[0])
        for value in warp.tolist():
            both, either = both & value, either | value
        results = warp.sum(), warp.max(), warp.min(), both, either, halves.float().sum()
        for row, result in enumerate(results):
            out[row, first : first + 32] = result
    return out


def block_sums_of_warps(X):
    """Warps sum by shuffles, the first one adds their sums; T.sync_warp orders its lanes."""
    N = T.const("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((T.ceildiv(N, 256),), T.float32)
    with T.Kernel(T.ceildiv(N, 256), threads=256) as bx:
        tx = T.get_thread_binding()
        sums = T.alloc_shared((32,), T.float32)
        total = T.alloc_var(T.float32)
        total = X[bx * 256 + tx]
        for i in T.unroll(5):
            total += T.shfl_down(total, 16 >> i)
        if tx % 32 == 0:
            sums[tx // 32] = total
        T.sync_threads()
        if tx < 32:
            if tx >= 8:
                sums[tx] = 0.0
            T.sync_warp()
            for i in T.serial(5):
                other = sums[tx ^ (16 >> i)]
                T.sync_warp()
                sums[tx] += other
                T.sync_warp()
            if tx == 0:
                Y[bx] = sums[0]
    return Y


# -- reductions over threads -------------------------------------------------------------------------
def sums_along_threads(A, B):
    """Each row's products are summed by the threads along one dimension of the block, in rounds."""
    A: T.Tensor((3, 96), T.int32)
    B: T.Tensor((8, 96), T.int32)
    C = T.empty((3, 8), T.int32)
    with T.Kernel(3, threads=(8, 16)) as row:
        tx = T.get_thread_binding(0)
        ty = T.get_thread_binding(1)
        own = T.alloc_local((1,), T.int32)
        total = T.alloc_local((1,), T.int32)
        kept = T.alloc_local((1,), T.int32)
        T.clear(kept)
        for k in T.serial(3):
            own[0] = 0
            for i in T.serial(2):
                own[0] += A[row, k * 32 + ty * 2 + i] * B[tx, k * 32 + ty * 2 + i]
            with T.attr(
                T.comm_reducer(lambda x, y: x + y, [T.cast(0, T.int32)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(
                    T.tvm_thread_allreduce(T.uint32(1), own[0], True, total[0], ty, dtype="handle")
                )
            kept[0] += total[0]
        if ty == 0:
            C[row, tx] = kept[0]
    return C


def extremes_of_some_threads(A):
    """The greatest number of a block that is a multiple of 3, over both of its dimensions."""
    A: T.Buffer((2, 64), T.int32)
    C = T.empty((2, 64), T.int32)
    with T.Kernel(2, threads=(16, 4)) as row:
        tx, ty = T.get_thread_bindings()
        result = T.alloc_local((1,), T.int32)
        value = A[row, ty * 16 + tx]
        with T.attr(T.comm_reducer(lambda x, y: T.max(x, y), [-100]), "reduce_scope", 0):
            T.evaluate(
                T.tvm_thread_allreduce(T.uint32(1), value, value % 3 == 0, result[0], tx, ty)
            )
        C[row, ty * 16 + tx] = result[0]
    return C


def extremes_of_some_threads_expected(a: torch.Tensor) -> torch.Tensor:
    return torch.where(a % 3 == 0, a, -100).amax(1, keepdim=True).expand(2, 64).contiguous()


# -- random numbers --------------------------------------------------------------------------------
def random_numbers(S):
    """Numbers of sequences of their own, and of one sequence from a place of each thread's."""
    S: T.Tensor((2,), T.int64)
    Y = T.empty((3, 2, 64, 6), T.int64)
    with T.Kernel(2, threads=64) as bx:
        tx = T.get_thread_binding()
        T.rng_init(S[0])
        for i in T.serial(6):
            Y[0, bx, tx, i] = T.cast(T.rng_rand(), T.int64)
        T.rng_init(S[1], 7, (bx * 64 + tx) * 3 + 1)
        for i in T.serial(6):
            Y[1, bx, tx, i] = T.cast(T.rng_rand(), T.int64)
        T.rng_init(S[1], S[0], S[0])
        for i in T.serial(6):
            # A float32 has 24 bits of the 32; times 2^33 it is an integer again.
            Y[2, bx, tx, i] = T.cast(T.rng_rand_float() * 2.0**33, T.int64)
    return Y


def philox(seed: int, sequence: int, offset: int, count: int) -> list[int]:
    """Numbers of Philox4x32-10: four of each place of the counter, from number ``offset`` on."""
    word = 0xFFFFFFFF
    found: list[int] = []
    for place in range(offset // 4, (offset + count) // 4 + 1):
        a, b, c, d = place & word, place >> 32, sequence & word, sequence >> 32
        first, second = seed & word, seed >> 32
        for _ in range(10):
            left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b = (right >> 32) ^ b ^ first, right & word
            c, d = (left >> 32) ^ d ^ second, left & word
            first, second = (first + 0x9E3779B9) & word, (second + 0xBB67AE85) & word
        found += [a, b, c, d]
    return found[offset % 4 :][:count]


def random_numbers_expected(s: torch.Tensor) -> torch.Tensor:
    one, two = (int(n) for n in s)
    own = [philox(one, thread, 0, 6) for thread in range(128)]
    parts = [philox(two, 7, thread * 3 + 1, 6) for thread in range(128)]
    numbers = torch.tensor(philox(two, one, one, 6), dtype=torch.float64).float()
    floats = ((numbers * 2.0**-32 + 2.0**-33) * 2.0**33).long().expand(128, 6)
    return torch.stack([torch.tensor(own), torch.tensor(parts), floats]).reshape(3, 2, 64, 6)


def one_thread_draws_in_order(X):
    """A loop over points is in order where a block has one thread."""
    X: T.Tensor((1,), T.int32)
    Y = T.empty((4, 8), T.int64)
    with T.Kernel(4, threads=1) as bx:
        T.rng_init(X[0], 0, bx * 8)
        for i in T.Parallel(8):
            Y[bx, i] = T.cast(T.rng_rand(), T.int64)
    return Y


EXCHANGES = [
    Construct(shuffles, lambda: (ints(64),), shuffles_expected),
    Construct(
        shuffles_of_each_width,
        lambda: (
            ints(32).to(torch.int8),
            torch.randn(32).half(),
            torch.randn(32),
            torch.randn(32, dtype=torch.float64),
        ),
        shuffles_of_each_width_expected,
    ),
    Construct(votes, lambda: (ints(80),), votes_expected),
    Construct(
        reductions_of_warps,
        lambda: (ints(96, low=0, high=1 << 16), ints(96).half() / 8),
        reductions_of_warps_expected,
    ),
    Construct(
        block_sums_of_warps,
        lambda: (ints(1000).float(),),
        lambda x: torch.stack([part.sum() for part in x.split(256)]),
    ),
    Construct(random_numbers, lambda: (torch.randint(0, 1 << 62, (2,)),), random_numbers_expected),
    Construct(
        one_thread_draws_in_order,
        lambda: (ints(1, low=0),),
        lambda x: torch.tensor(philox(int(x[0]), 0, 0, 32)).reshape(4, 8),
    ),
    Construct(sums_along_threads, lambda: (ints(3, 96), ints(8, 96)), lambda a, b: a @ b.T),
]

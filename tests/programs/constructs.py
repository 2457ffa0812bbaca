"""Programs for constructs that need memory or masks on a GPU, each with inputs and its exact result.

The CPU path, the interpreter and the GPU run them all.
"""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.arg_reductions import ARG_REDUCTIONS
from tests.programs.atomics import ATOMICS
from tests.programs.construct import Construct, ints
from tests.programs.conversions import CONVERSIONS
from tests.programs.edges import EDGES
from tests.programs.elements import ELEMENTS
from tests.programs.integers import INTEGERS
from tests.programs.parts import PARTS
from tests.programs.placed import PLACED
from tests.programs.threads import NUMBERS


# -- atomics and scatters on tiles -----------------------------------------------------------------
def shared_histogram(X):
    X: T.Tensor((1000,), T.int32)
    C = T.empty((4, 16), T.int32)
    with T.Kernel(4, threads=128) as bx:
        h = T.alloc_shared((16,), T.int32)
        T.clear(h)
        for k in T.serial(4):
            for i in T.Parallel(64):
                if bx * 256 + k * 64 + i < 1000:
                    T.atomic_add(h[X[bx * 256 + k * 64 + i]], 1)
        T.copy(h, C[bx, :])
    return C


def shared_histogram_expected(x: torch.Tensor) -> torch.Tensor:
    rows = [torch.bincount(x[i : i + 256], minlength=16) for i in range(0, 1000, 256)]
    return torch.stack(rows).int()


def scatter_columns(X, P):
    X: T.Tensor((32, 40), T.float32)
    P: T.Tensor((40,), T.int32)
    C = T.empty((32, 40), T.float32)
    with T.Kernel(1, threads=128) as _:
        s = T.alloc_shared((32, 40), T.float32)
        o = T.alloc_shared((32, 40), T.float32)
        T.copy(X, s)
        for i, j in T.Parallel(32, 40):
            o[i, P[j]] = s[i, j] * 2
        T.copy(o, C)
    return C


def scatter_columns_expected(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[:, p.long()] = x * 2
    return out


def scatter_again_and_again(X):
    """Each iteration moves the tile by one place through a scatter, and reads it back."""
    X: T.Tensor((64,), T.int32)
    C = T.empty((64,), T.int32)
    with T.Kernel(1, threads=64) as _:
        s = T.alloc_shared((64,), T.int32)
        f = T.alloc_fragment((64,), T.int32)
        T.copy(X, s)
        for k in T.Pipelined(5, num_stages=2):
            for i in T.Parallel(64):
                f[i] = s[i] + k
            for i in T.Parallel(64):
                s[(i * 5 + 3) % 64] = f[i]
        T.copy(s, C)
    return C


def scatter_again_and_again_expected(x: torch.Tensor) -> torch.Tensor:
    for k in range(5):
        out = torch.empty_like(x)
        out[(torch.arange(64) * 5 + 3) % 64] = x + k
        x = out
    return x


def narrow_counts(X):
    """Atomic updates of 8-bit elements wrap as the type does."""
    X: T.Tensor((512,), T.int32)
    C = T.empty((8,), T.uint8)
    with T.Kernel(1, threads=128) as _:
        h = T.alloc_shared((8,), T.uint8)
        T.clear(h)
        for i in T.Parallel(512):
            T.atomic_add(h[X[i]], T.cast(3, "uint8"))
        T.copy(h, C)
    return C


def narrow_counts_expected(x: torch.Tensor) -> torch.Tensor:
    return (torch.bincount(x, minlength=8) * 3).to(torch.uint8)


def slots(X):
    """Each positive number takes the next free place; the places are a permutation of 0 ... n - 1."""
    X: T.Tensor((128,), T.int32)
    C = T.empty((128,), T.int32)
    with T.Kernel(1, threads=128) as _:
        n = T.alloc_shared((1,), T.int32)
        o = T.alloc_shared((128,), T.int32)
        T.clear(n)
        T.fill(o, 0)
        for i in T.Parallel(128):
            if X[i] > 0:
                place = T.atomic_add(n[0], 1, return_prev=True)
                o[place] = X[i]
        s = T.alloc_fragment((1,), T.int32)
        f = T.alloc_fragment((128,), T.int32)
        T.copy(o, f)
        T.reduce_sum(f, s)
        for i in T.Parallel(128):
            C[i] = T.if_then_else(i == 0, n[0], T.if_then_else(i == 1, s[0], 0))
    return C


def slots_expected(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[0], out[1] = (x > 0).sum(), x.clamp(min=0).sum()
    return out


def tile_atomics(A, B):
    """The tile form on tiles, a part of one, and a constant for each element of a slice."""
    A: T.Tensor((16, 24), T.int32)
    B: T.Tensor((16, 24), T.int32)
    C = T.empty((16, 24), T.int32)
    with T.Kernel(1, threads=64) as _:
        a = T.alloc_shared((16, 24), T.int32)
        b = T.alloc_fragment((16, 24), T.int32)
        T.copy(A, a)
        T.copy(B, b)
        T.atomic_max(a, b)
        T.atomic_add(a[4:8, 0:24], 100)
        T.copy(a, C)
    return C


def tile_atomics_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.maximum(a, b)
    out[4:8] += 100
    return out


# -- reducers --------------------------------------------------------------------------------------
def reducers(A):
    """A sum along rows, a maximum along columns, a sum of all, and the old form in place."""
    A: T.Tensor((16, 40), T.int32)
    R = T.empty((16,), T.int32)
    with T.Kernel(1, threads=64) as _:
        x = T.alloc_fragment((16, 40), T.int32)
        row = T.alloc_reducer((16,), T.int32, op="sum")
        top = T.alloc_reducer((40,), T.int32, op="max")
        all_ = T.alloc_reducer((1,), T.int32, op="bitxor")
        old = T.alloc_reducer((16,), T.int32, op="sum", replication="all")
        rows = T.alloc_fragment((16,), T.int32)
        tops = T.alloc_fragment((40,), T.int32)
        every = T.alloc_fragment((1,), T.int32)
        T.copy(A, x)
        T.reducer_init(row, 5)
        T.reducer_init(top)
        T.reducer_init(all_)
        T.clear(old)
        for i, j in T.Parallel(16, 40):
            if j > 2:
                T.reducer_update(row[i], x[i, j])
            T.reducer_update(top[j], x[i, j])
            T.reducer_update(all_[0], x[i, j])
            old[i] += x[i, j] * 2
        T.finalize_reducer(row, rows)
        T.finalize_reducer(top, tops)
        T.finalize_reducer(all_, every)
        T.finalize_reducer(old)
        for i in T.Parallel(16):
            R[i] = rows[i] * 1000 + tops[i] * 10 + every[0] + old[i]
    return R


def reducers_expected(a: torch.Tensor) -> torch.Tensor:
    every = 0
    for value in a.flatten().tolist():
        every ^= value
    rows, tops = a[:, 3:].sum(1) + 5, a.amax(0)[:16]
    return (rows * 1000 + tops * 10 + every + a.sum(1) * 2).int()


def binned_reducer(A):
    """Updates at computed places: atomics."""
    A: T.Tensor((16, 40), T.int32)
    R = T.empty((20,), T.int32)
    with T.Kernel(1, threads=64) as _:
        bins = T.alloc_reducer((20,), T.int32, op="max")
        out = T.alloc_fragment((20,), T.int32)
        T.reducer_init(bins)
        for i, j in T.Parallel(16, 40):
            T.reducer_update(bins[A[i, j] + 9], i * 40 + j)
        T.finalize_reducer(bins, out)
        T.copy(out, R)
    return R


def binned_reducer_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.full((20,), torch.iinfo(torch.int32).min, dtype=torch.int32)
    for n, value in enumerate(a.flatten().tolist()):
        out[value + 9] = n
    return out


def float_reducer(A):
    A: T.Tensor((64, 100), T.float32)
    R = T.empty((64,), T.float32)
    with T.Kernel(1, threads=128) as _:
        x = T.alloc_shared((64, 100), T.float32)
        r = T.alloc_reducer((64,), T.float32, op="sum")
        out = T.alloc_fragment((64,), T.float32)
        T.copy(A, x)
        T.reducer_init(r)
        for i, j in T.Parallel(64, 100):
            T.reducer_update(r[i], x[i, j] * x[i, j])
        T.finalize_reducer(r, out)
        T.copy(out, R)
    return R


# -- arrays of each point, loops of each point -----------------------------------------------------
def local_arrays(A):
    """Every point sorts three numbers in an array of its own."""
    A: T.Tensor((20, 3), T.int32)
    C = T.empty((20, 3), T.int32)
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(20):
            mine = T.alloc_local((3,), T.int32)
            for k in T.serial(3):
                mine[k] = A[i, k]
            for k in T.serial(2):
                for m in T.serial(2 - k):
                    if mine[m] > mine[m + 1]:
                        low = mine[m + 1]
                        mine[m + 1] = mine[m]
                        mine[m] = low
            for k in T.serial(3):
                C[i, k] = mine[k]
    return C


def local_array_at_own_places(A):
    """Every point counts its row's numbers in an array of its own."""
    A: T.Tensor((24, 9), T.int32)
    C = T.empty((24, 4), T.int32)
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(24):
            count = T.alloc_local((4,), T.int32)
            for k in T.serial(4):
                count[k] = 0
            for k in T.serial(9):
                place = A[i, k]
                count[place] += 1
            for k in T.serial(4):
                C[i, k] = count[k]
    return C


def local_array_at_own_places_expected(a: torch.Tensor) -> torch.Tensor:
    return torch.stack([(a == n).sum(1) for n in range(4)], 1).int()


def collatz(A):
    """A `while` of each point."""
    A: T.Tensor((40,), T.int32)
    C = T.empty((40,), T.int32)
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(40):
            n = T.alloc_var(T.int32, A[i])
            steps = T.alloc_var(T.int32, 0)
            while n > 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                steps += 1
            C[i] = steps
    return C


def collatz_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(a)
    for at, n in enumerate(a.tolist()):
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            out[at] += 1
    return out


def escapes_of_points(A):
    """`break` and `continue` in loops of each point, two dimensions, under a condition."""
    A: T.Tensor((5, 12), T.int32)
    C = T.empty((5, 12), T.int32)
    with T.Kernel(1, threads=32) as _:
        for i, j in T.Parallel(5, 12):
            total = T.alloc_var(T.int32, 0)
            k = T.alloc_var(T.int32, 0)
            if A[i, j] > 0:
                while k < A[i, j] + j:
                    k += 1
                    if k % 3 == 0:
                        continue
                    if k == 8:
                        break
                    total += k
                for m in T.serial(j):
                    if m == A[i, j]:
                        break
                    total += 100
            C[i, j] = total
    return C


def escapes_of_points_expected(a: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(a)
    for i in range(5):
        for j in range(12):
            n = int(a[i, j])
            if n <= 0:
                continue
            k = total = 0
            while k < n + j:
                k += 1
                if k % 3 == 0:
                    continue
                if k == 8:
                    break
                total += k
            out[i, j] = total + 100 * min(j, n)
    return out


# -- tiles read and named otherwise ----------------------------------------------------------------
def gather_from_tiles(A, P):
    """Columns and elements of a tile at computed places, and scalars at run-time ones."""
    A: T.Tensor((16, 40), T.int32)
    P: T.Tensor((16,), T.int32)
    C = T.empty((16,), T.int32)
    with T.Kernel(1, threads=32) as _:
        s = T.alloc_shared((16, 40), T.int32)
        p = T.alloc_shared((16,), T.int32)
        o = T.alloc_fragment((16,), T.int32)
        T.copy(A, s)
        T.copy(P, p)
        for i in T.Parallel(16):
            o[i] = s[p[i] % 16, p[i]]
        for i in T.serial(16):
            x = s[i, p[i]]
            o[i] = o[i] * 100 + x
        T.copy(o, C)
    return C


def gather_from_tiles_expected(a: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    i, p = torch.arange(16), p.long()
    return (a[p % 16, p] * 100 + a[i, p]).int()


def views_of_odd_tiles(A):
    """A tile of 6 x 20 as 24 x 5, and its bits as bytes."""
    A: T.Tensor((6, 20), T.int32)
    C = T.empty((24, 5), T.int32)
    with T.Kernel(1, threads=32) as _:
        s = T.alloc_shared((6, 20), T.int32)
        T.copy(A, s)
        other = T.reshape(s, (24, 5))
        halves = T.view(s, (6, 40), "int16")
        for i, j in T.Parallel(24, 5):
            C[i, j] = other[i, j] * 1000 + T.cast(halves[0, 2], "int32")
    return C


def views_of_odd_tiles_expected(a: torch.Tensor) -> torch.Tensor:
    return (a.reshape(24, 5) * 1000 + int(a[0, 1])).int()


def narrow_extremes(A):
    """Extremes of bfloat16 carried by a loop, combined by reductions and by scans."""
    A: T.Tensor((8, 64), T.bfloat16)
    B = T.empty((5, 64), T.bfloat16)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((8, 64), T.bfloat16)
        row = T.alloc_fragment((64,), T.bfloat16)
        least = T.alloc_fragment((64,), T.bfloat16)
        running = T.alloc_shared((8, 64), T.bfloat16)
        T.copy(A, tile)
        T.fill(row, 0)
        for k in range(8):
            for i in T.Parallel(64):
                row[i] = T.max(row[i], A[k, i])
                if A[k, i] > 1:
                    row[i] = T.min(row[i], T.clamp(A[k, i], -2, max_val=2))
        T.copy(row, B[0, :])
        T.fill(least, 0)
        T.reduce_min(tile, least, dim=0, clear=False, nan_propagate=True)
        T.copy(least, B[1, :])
        T.reduce_absmax(tile, least, dim=0)
        T.copy(least, B[2, :])
        T.copy(A, running)
        T.cummax(running, dim=0)
        T.copy(running[7, :], B[3, :])
        T.copy(A, running)
        T.cummin(running, dim=0)
        T.copy(running[7, :], B[4, :])
    return B


def narrow_extremes_expected(a: torch.Tensor) -> torch.Tensor:
    row = torch.zeros(64, dtype=a.dtype)
    for x in a:
        row = torch.maximum(row, x)
        row = torch.where(x > 1, torch.minimum(row, x.clamp(-2, 2)), row)
    least = a.amin(0)
    return torch.stack([row, least.clamp(max=0), a.abs().amax(0), a.amax(0), least])


CONSTRUCTS = [
    Construct(narrow_extremes, lambda: (torch.randn(8, 64).bfloat16(),), narrow_extremes_expected),
    Construct(shared_histogram, lambda: (ints(1000, low=0, high=16),), shared_histogram_expected),
    Construct(
        scatter_columns,
        lambda: (torch.randn(32, 40), torch.randperm(40).int()),
        scatter_columns_expected,
    ),
    Construct(scatter_again_and_again, lambda: (ints(64),), scatter_again_and_again_expected),
    Construct(narrow_counts, lambda: (ints(512, low=0, high=8),), narrow_counts_expected),
    Construct(slots, lambda: (ints(128),), slots_expected),
    Construct(tile_atomics, lambda: (ints(16, 24), ints(16, 24)), tile_atomics_expected),
    Construct(reducers, lambda: (ints(16, 40),), reducers_expected),
    Construct(binned_reducer, lambda: (ints(16, 40),), binned_reducer_expected),
    # 100 additions of float32, each within half a unit of a partial sum that is at most the result.
    Construct(
        float_reducer,
        lambda: (torch.randn(64, 100),),
        lambda a: (a.double() ** 2).sum(1).float(),
        relative=100 * 2.0**-24,
    ),
    Construct(local_arrays, lambda: (ints(20, 3),), lambda a: a.sort(1).values),
    Construct(
        local_array_at_own_places,
        lambda: (ints(24, 9, low=0, high=4),),
        local_array_at_own_places_expected,
    ),
    Construct(collatz, lambda: (ints(40, low=1, high=60),), collatz_expected),
    Construct(escapes_of_points, lambda: (ints(5, 12),), escapes_of_points_expected),
    Construct(
        gather_from_tiles,
        lambda: (ints(16, 40), ints(16, low=0, high=40)),
        gather_from_tiles_expected,
    ),
    Construct(views_of_odd_tiles, lambda: (ints(6, 20),), views_of_odd_tiles_expected),
    *NUMBERS,
    *PARTS,
    *PLACED,
    *ARG_REDUCTIONS,
    *ATOMICS,
    *CONVERSIONS,
    *ELEMENTS,
    *INTEGERS,
    *EDGES,
]

"""Control flow, snapshots, lazy choices and index arithmetic."""

import pytest
import torch

import tileops.language as T
from tests.kit.harness import build_eager


def loops(X, limit: int):
    X: T.Tensor((32,), "int32")
    Y = T.empty((5,), "int32")
    with T.Kernel(1, threads=128) as bx:
        total = T.alloc_var("int32", 0)
        steps = T.alloc_var("int32", 0)
        n = T.alloc_var("int32", limit)
        for i in T.serial(32):
            if X[i] < 0:
                continue
            if X[i] == 99:
                break
            total += X[i]
        Y[0] = total
        while n > 1:
            if n % 2 == 0:  # noqa: SIM108 - a tile-level branch is what is tested
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        Y[1] = steps
        back = T.alloc_var("int32", 0)
        for i in range(10, 0, -3):
            back = back * 100 + i
        Y[2] = back
        nested = T.alloc_var("int32", 0)
        for i, j in T.grid(3, 4):
            nested += i * j
        Y[3] = nested
        Y[4] = T.if_then_else(total > 3, 1, 2)
    return Y


def test_loops():
    x = torch.randint(-5, 9, (32,), dtype=torch.int32)
    x[20] = 99
    want = [0, 0, 0, 18, 0]
    for v in x.tolist():
        if v == 99:
            break
        want[0] += max(v, 0)
    n = 27
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        want[1] += 1
    want[2] = ((10 * 100 + 7) * 100 + 4) * 100 + 1
    want[4] = 1 if want[0] > 3 else 2
    assert build_eager(loops, limit=27)(x).tolist() == want


def snapshots(X):
    X: T.Tensor((8,), "float32")
    Y = T.empty((8,), "float32")
    Z = T.empty((2,), "float32")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_shared((8,), "float32")
        T.copy(X, x)
        before = x[0]
        x[0] = 5.0
        Z[0] = before
        Z[1] = x[0]
        for i in T.Parallel(4):
            low = x[i]
            high = x[7 - i]
            x[i] = high
            x[7 - i] = low
        T.copy(x, Y)
    return Y, Z


def test_binds_are_snapshots():
    x = torch.randn(8)
    y, z = build_eager(snapshots)(x)
    want = x.clone()
    want[0] = 5.0
    assert torch.equal(y, want.flip(0))
    assert z.tolist() == [x[0].item(), 5.0]


def carried(X):
    X: T.Tensor((4, 8), "float8_e4m3fn")
    Y = T.empty((8,), "float8_e4m3fn")
    with T.Kernel(1, threads=128) as bx:
        acc = T.alloc_fragment((8,), "float8_e4m3fn")
        T.clear(acc)
        for s in T.serial(4):
            for i in T.Parallel(8):
                acc[i] += X[s, i]
        T.copy(acc, Y)
    return Y


def test_narrow_tiles_round_at_each_update():
    x = torch.randn(4, 8).to(torch.float8_e4m3fn)
    want = torch.zeros(8).to(torch.float8_e4m3fn)
    for s in range(4):
        want = (want.float() + x[s].float()).to(torch.float8_e4m3fn)
    assert torch.equal(build_eager(carried)(x).float(), want.float())


def conditional_nest(X, N0: int):
    N = T.const("N")
    X: T.Tensor((N,), "float32")
    Y = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, 32), threads=128) as bx:
        for i in T.Parallel(32):
            at = bx * 32 + i
            if at % 3 == 0:
                Y[at] = X[at] * 2
            elif at < N0:
                Y[at] = -X[at]
            else:
                total = T.alloc_var("float32", 0.0)
                for k in T.serial(i % 4):
                    total += X[at] + k
                Y[at] = total
    return Y


def test_conditions_and_loops_in_nests():
    x = torch.randn(70)
    got = build_eager(conditional_nest, consts={"N": 70}, N0=40)(x)
    for at in range(70):
        if at % 3 == 0:
            want = x[at] * 2
        elif at < 40:
            want = -x[at]
        else:
            want = torch.tensor(0.0)
            for k in range(at % 32 % 4):
                want = want + (x[at] + k)
        assert got[at] == want


def lazy(X):
    N = T.const("N")
    X: T.Tensor((N,), "float32")
    Y = T.empty((64,), "float32")
    with T.Kernel(1, threads=128) as bx:
        t = T.alloc_shared((16,), "float32")
        T.fill(t, 2.0)
        for i in T.Parallel(64):
            # Neither the tile nor the division is touched where the condition is false.
            Y[i] = T.if_then_else(
                i < 16,
                t[i] + X[i],
                T.if_then_else(i > 20, T.cast(100 // (i - 20), "float32"), -1.0),
            )
    return Y


def test_select_is_lazy():
    x = torch.randn(10)
    got = build_eager(lazy, consts={"N": 10})(x)
    for i in range(64):
        if i < 16:
            want = 2.0 + (x[i].item() if i < 10 else 0.0)
            assert got[i].item() == pytest.approx(want, abs=1e-6)
        else:
            assert got[i].item() == (100 // (i - 20) if i > 20 else -1.0)


def gathered(X, Index, block: int = 16):
    M, N, K = T.const("M, N, K")
    X: T.Tensor((M, N), "float32")
    Index: T.Tensor((K,), "int32")
    Y = T.empty((K, N), "float32")
    with T.Kernel(T.ceildiv(K, block), threads=128) as bx:
        rows = T.alloc_shared((block,), "int32")
        T.copy(Index[bx * block], rows)
        for i, j in T.Parallel(block, N):
            Y[bx * block + i, j] = X[rows[i], j]
    return Y


def test_gather_with_bad_indices_reads_zero():
    x = torch.randn(20, 13)
    at = torch.randint(-3, 24, (45,), dtype=torch.int32)
    got = build_eager(gathered, consts={"M": 20, "N": 13, "K": 45})(x, at)
    want = torch.stack([x[i] if 0 <= i < 20 else torch.zeros(13) for i in at.tolist()])
    assert torch.equal(got, want)


def flattened(X):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), "int32")
    Y = T.empty((N, M), "int32")
    with T.Kernel(T.ceildiv(M * N, 64), threads=128) as bx:
        for t in T.Parallel(64):
            at = bx * 64 + t
            Y[at % N, at // N] = X[at // N, at % N] + at
    return Y


def test_division_in_indices_with_dynamic_sizes():
    kernel = build_eager(flattened)
    for m, n in [(1, 1), (7, 9), (64, 3), (5, 200)]:
        x = torch.randint(0, 100, (m, n), dtype=torch.int32)
        assert torch.equal(
            kernel(x, threads=2), (x + torch.arange(m * n, dtype=torch.int32).view(m, n)).T
        )

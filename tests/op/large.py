"""Tensors past 2^31 elements: programs that touch a few of them, so that a machine needs no memory for the rest."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T

LIMIT = 2**31
TAIL = 40


@tileops.jit(name="large_pick")
def pick(A, index, block: int = 32):
    """Elements at run-time places."""
    N, K = T.dynamic("N, K")
    A: T.Tensor((N,), T.int8)
    index: T.Tensor((K,), T.int64)
    B = T.empty((K,), T.int8)
    with T.Kernel(T.ceildiv(K, block), threads=32) as bx:
        for i in T.Parallel(block):
            if bx * block + i < K:
                B[bx * block + i] = A[index[bx * block + i]]
    return B


@tileops.jit(name="large_mark")
def mark(A, value: T.int8, block: int = 32):
    """Adds to the last 40 elements; N decides where they are."""
    N = T.dynamic("N")
    A: T.Tensor((N,), T.int8)
    with T.Kernel(T.ceildiv(40, block), threads=32) as bx:
        for i in T.Parallel(block):
            if bx * block + i < 40:
                A[N - 40 + bx * block + i] = A[N - 40 + bx * block + i] + value


@tileops.jit(name="large_tails")
def tails(A, block: int = 32):
    """The last columns of each row, by a copy; the sizes are constants of the kernel."""
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.int8)
    B = T.empty((M, block), T.int8)
    with T.Kernel(M, threads=32) as m:
        tile = T.alloc_shared((1, block), T.int8)
        T.copy(A[m, N - block], tile)
        T.copy(tile, B[m, 0])
    return B


@tileops.jit(name="large_strided")
def strided(A, block: int = 32):
    """A few elements far apart."""
    M, N, S = T.dynamic("M, N, S")
    A: T.StridedTensor((M, N), (S, 1), T.int8)
    B = T.empty((M, N), T.int8)
    with T.Kernel(M, T.ceildiv(N, block), threads=32) as (m, bx):
        for i in T.Parallel(block):
            B[m, bx * block + i] = A[m, bx * block + i]
    return B


@tileops.jit(name="large_facts")
def facts(A):
    """What a program computes from a size: it is no 32-bit number, whatever it was declared as."""
    N = T.dynamic("N")
    A: T.Tensor((N,), T.int8)
    B = T.empty((4,), T.int64)
    with T.Kernel(1, threads=32):
        B[0] = N
        B[1] = N // 3
        B[2] = T.if_then_else(N > 5, 1, 0)
        B[3] = T.Cast(T.int64, T.Cast(T.float64, N))
    return B


@tileops.jit(name="large_count")
def count(n: T.int64, block: int = 8192):
    """An output of n elements."""
    B = T.empty((n,), T.int8)
    with T.Kernel(T.ceildiv(n, block), threads=256) as bx:
        for i in T.Parallel(block):
            place = T.Cast(T.int64, bx) * block + i
            B[bx * block + i] = T.Cast(T.int8, place % 100)
    return B


@tileops.jit(name="large_mark_any")
def mark_any(A, block: int = 32):
    """Adds to the last 40 elements of a tensor of any shape; their number decides where they are."""
    dt = T.DTypeVar("dt", T.uint8, T.int8)
    A: T.Tensor((...,), dt)
    N = A.shape[0]
    with T.Kernel(T.ceildiv(40, block), threads=32) as bx:
        for i in T.Parallel(block):
            if bx * block + i < 40:
                A[N - 40 + bx * block + i] = A[N - 40 + bx * block + i] + dt(3)


@tileops.jit(name="large_pick_rows")
def pick_rows(A, index):
    """Rows at run-time places among all leading dimensions."""
    N, S, K = T.dynamic("N, S, K")
    A: T.StridedTensor((..., N), (S, 1), T.int8)
    index: T.Tensor((K,), T.int64)
    B = T.empty((K, N), T.int8)
    with T.Kernel(K, threads=32) as k:
        for j in T.serial(N):
            B[k, j] = A[index[k], j]
    return B


def untouched(*shape: int, device: str) -> torch.Tensor:
    """Memory that the system gives when it is written; on a GPU zeros."""
    made = torch.empty if device == "cpu" else torch.zeros
    return made(shape, dtype=torch.int8, device=device)


def one_dimension(device: str) -> None:
    n = LIMIT + TAIL
    a = untouched(n, device=device)
    values = torch.arange(1, TAIL + 1, dtype=torch.int8, device=device)
    a[:TAIL], a[-TAIL:] = values, -values
    # A wrapped offset would read from the beginning, or far before it.
    places = torch.tensor([0, 1, TAIL - 1, LIMIT, LIMIT + 1, n - 1, n - TAIL], device=device)
    assert torch.equal(pick(a, places), a[places])
    mark(a, 3)
    assert torch.equal(a[-TAIL:], 3 - values)
    assert torch.equal(a[:TAIL], values)
    assert facts(a).tolist() == [n, n // 3, 1, n]
    small = torch.arange(100, dtype=torch.int8, device=device)
    assert facts(small).tolist() == [100, 33, 1, 100]
    assert torch.equal(pick(small, places[:3]), small[places[:3]])


def two_dimensions(device: str) -> None:
    m, n = 3, 2**30
    a = untouched(m, n, device=device)
    expected = torch.randint(-9, 9, (m, 32), dtype=torch.int8, device=device)
    a[:, -32:] = expected
    assert torch.equal(tails(a), expected)
    # Three rows in other places of the same memory; the last begins past 2^31.
    far = torch.as_strided(a, (3, 50), (2**30 - 10, 1), 5)
    far.copy_(torch.randint(-9, 9, (3, 50), dtype=torch.int8, device=device))
    assert torch.equal(strided(far), far)


def leading_dimensions(device: str) -> None:
    a = untouched(2, 2, 2**29 + TAIL, device=device)
    values = torch.arange(1, TAIL + 1, dtype=torch.int8, device=device)
    a[0, 0, :TAIL] = a[1, 1, -TAIL:] = values
    mark_any(a)
    assert torch.equal(a[1, 1, -TAIL:], values + 3)
    assert torch.equal(a[0, 0, :TAIL], values)
    # More rows than 32 bits count, of which few are ever touched.
    rows = torch.as_strided(a, (2, 2**30 + 8, 3), (2**30 + 8, 1, 1))
    places = torch.tensor([0, 7, 2**30 + 7, 2**31 + 3, 2**31 + 13], device=device)
    flat = torch.as_strided(a, (2**31 + 16, 3), (1, 1))
    flat[places] = torch.randint(-9, 9, (5, 3), dtype=torch.int8, device=device)
    assert torch.equal(pick_rows(rows, places), flat[places])
    nothing = torch.empty(2**20, 2**20, 0, dtype=torch.int8, device=device)
    assert pick_rows(nothing, places).shape == (5, 0)


def an_output(device: str) -> None:
    n = LIMIT + 12345
    out = count(n, device=device)
    for start in (0, LIMIT - 50, n - 100):
        places = torch.arange(start, start + 100, device=device)
        assert torch.equal(out[places], (places % 100).to(torch.int8))


CASES = (one_dimension, two_dimensions, leading_dimensions)

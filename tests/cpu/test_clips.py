"""Tails of elementwise nests on the CPU: the loops are clipped to the elements that exist."""

from __future__ import annotations

import random

import pytest
import torch

import tileops
import tileops.language as T


@tileops.jit
def tail_add(A, B, block: int = 64):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
    return C


@tileops.jit
def tail_reversed(A, block: int = 64):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            C[N - 1 - bx * block - i] = A[bx * block + i]
    return C


@tileops.jit
def tail_stencil(A, block: int = 64):
    """Neighbours outside are 0: loads have bounds that the store has not."""
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            n = bx * block + i
            C[n] = A[n - 1] + 2 * A[n] + A[n + 1]
    return C


@tileops.jit
def tail_matrix(A, row, block_M: int = 8, block_N: int = 32):
    M, N = T.dynamic("M, N")
    A: T.Tensor((M, N), T.float32)
    row: T.Tensor((N,), T.float32)
    C = T.empty((N, M), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=32) as (bx, by):
        for i, j in T.Parallel(block_M, block_N):
            C[bx * block_N + j, by * block_M + i] = (
                A[by * block_M + i, bx * block_N + j] * row[bx * block_N + j]
            )
    return C


@tileops.jit(mutates=("long", "short"))
def tail_two(long, short, block: int = 64):
    """Two stores with bounds of their own: an iteration may store one and drop the other."""
    N, K = T.dynamic("N, K")
    long: T.Tensor((N,), T.int32)
    short: T.Tensor((K,), T.int32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            long[bx * block + i] = bx * block + i
            short[bx * block + i] = 1


@tileops.jit(mutates=("C",))
def tail_fixed_row(A, C, at: T.int32, block: int = 64):
    """One index that no loop moves and that may lie outside."""
    M, N = T.dynamic("M, N")
    A: T.Tensor((N,), T.float32)
    C: T.Tensor((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            C[at, bx * block + i] = A[bx * block + i]


@tileops.jit(mutates=("C",))
def tail_flat(A, C, start: T.int32, rows: int = 3, columns: int = 40):
    """Both loops move one index, and it starts before the tensor."""
    N = T.dynamic("N")
    A: T.Tensor((rows, columns), T.float32)
    C: T.Tensor((N,), T.float32)
    with T.Kernel(1, threads=32):
        for i, j in T.Parallel(rows, columns):
            C[start + i * columns + j] = A[i, j]


SIZES = (1, 7, 63, 64, 65, 200, pytest.param(random.randrange(2, 1000), id="random"))


@pytest.mark.parametrize("n", SIZES)
def test_vectors(n: int) -> None:
    a, b = torch.randn(n), torch.randn(n)
    assert torch.equal(tail_add(a, b), a + b)
    assert torch.equal(tail_reversed(a), a.flip(0))


@pytest.mark.parametrize("n", SIZES)
def test_loads_with_other_bounds_keep_their_tests(n: int) -> None:
    a = torch.randint(-99, 99, (n,)).float()  # sums are exact
    padded = torch.nn.functional.pad(a, (1, 1))
    assert torch.equal(tail_stencil(a), padded[:-2] + 2 * a + padded[2:])


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (8, 32), (9, 31), (20, 100)])
def test_both_loops_of_a_matrix(shape: tuple[int, int]) -> None:
    a, row = torch.randn(shape), torch.randn(shape[1])
    assert torch.equal(tail_matrix(a, row), (a * row).T.contiguous())


@pytest.mark.parametrize(("n", "k"), [(100, 70), (70, 100), (64, 1), (65, 65)])
def test_each_store_lands_where_it_can(n: int, k: int) -> None:
    long, short = torch.full((n,), -1, dtype=torch.int32), torch.zeros(k, dtype=torch.int32)
    tail_two(long, short)
    assert torch.equal(long, torch.arange(n, dtype=torch.int32))
    reached = -(-n // 64) * 64
    assert short.tolist() == [1] * min(k, reached) + [0] * max(0, k - reached)


@pytest.mark.parametrize("at", [-1, 0, 2, 3, 2**31 - 1])
def test_an_index_that_no_loop_moves(at: int) -> None:
    a, c = torch.randn(70), torch.zeros(3, 70)
    expected = c.clone()
    if 0 <= at < 3:
        expected[at] = a
    tail_fixed_row(a, c, at)
    assert torch.equal(c, expected)


@pytest.mark.parametrize("start", [-200, -41, -1, 0, 5, 99, 100])
def test_an_index_that_two_loops_move(start: int) -> None:
    a, c = torch.randn(3, 40), torch.zeros(100)
    expected = c.clone()
    for n, x in enumerate(a.flatten().tolist()):
        if 0 <= start + n < 100:
            expected[start + n] = x
    tail_flat(a, c, start)
    assert torch.equal(c, expected)


def loops(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith(("for", "if"))]


def test_the_loop_of_a_tail_has_no_tests_inside() -> None:
    text = tail_add.get_kernel_source()
    heads = [h for h in loops(text) if "block = first" not in h]
    # The test before the loops, the whole tile, the clipped one.
    assert [h.split(" ")[0] for h in heads] == ["if", "for", "for"]
    assert "high1" in heads[2]


def test_a_store_to_a_tile_is_not_clipped() -> None:
    """What is kept on chip has all its elements, also those that stand for nothing outside."""

    @tileops.jit
    def tail_kept(A, block: int = 64):
        N = T.dynamic("N")
        A: T.Tensor((N,), T.float32)
        C = T.empty((T.ceildiv(N, block),), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            tile = T.alloc_fragment((block,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            for i in T.Parallel(block):
                tile[i] = A[bx * block + i] + 1
            T.reduce_sum(tile, total, dim=0)
            C[bx] = total[0]
        return C

    n = 100
    expected = torch.tensor([64.0 + 64, 36.0 + 64])  # outside, 0 + 1
    assert torch.equal(tail_kept(torch.ones(n)), expected)

"""Stepped loops make the rounds of Python's ``range``, on the CPU path and under the interpreter.

``TILEOPS_RANDOM_PROGRAMS`` (200 by default) over 200 is how many seeds each kind of bounds gets.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.language as T
from tests.property import steps
from tests.property.test_divisions import EXECUTORS, SEEDS


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize("form", steps.FORMS)
@pytest.mark.parametrize("dtype", steps.DTYPES)
def test_loops(dtype: str, form: str, run: steps.Run) -> None:
    found = [text for seed in SEEDS for text in steps.wrong_loops(run, dtype, form, seed)]
    assert not found, "\n".join(found)


def constant_bounds(kind: str, start: int, stop: int, step: int) -> Any:
    """A program with one loop of constant bounds; the first rounds, then their number."""

    def counted():
        B = T.empty((steps.SEEN + 1,), T.int64)
        with T.Kernel(1, threads=32):
            for k in T.serial(steps.SEEN + 1):
                B[k] = steps.UNREAD
            count = T.alloc_var(T.int32, 0)
            for i in (T.unroll if kind == "unroll" else T.serial)(start, stop, step):
                if count < steps.SEEN:
                    B[count] = i
                count += 1
            B[steps.SEEN] = count
        return B

    return counted


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize("kind", ["serial", "unroll"])
@pytest.mark.parametrize(
    "bounds",
    [
        (-(2**31), 2**31 - 1, 2**30),
        (2**31 - 1, -(2**31), -(2**30)),
        (2**31 - 1, -(2**31), 2),
        (0, 2**31 - 1, 2**31 - 1),
        (-(2**63), 2**63 - 1, 2**62),
        (2**63 - 1, -(2**63), -(2**61)),
        (2**31 - 4, 2**31 + 4, 3),
        (5, 5, -1),
        (200, 7, -(2**31)),
        (7, 200, -(2**31)),
        (7, 200, 2**40),
        (2**63, 2**64 - 1, 2**61),
        (2**63 - 2, 2**63 + 2, 1),
        (2**64 - 1, 0, -(2**62)),
    ],
)
def test_constant_bounds(bounds: tuple[int, int, int], kind: str, run: steps.Run) -> None:
    assert run(constant_bounds(kind, *bounds)).tolist() == steps.rounds(*bounds)


def walked(S):
    S: T.Tensor((3,), T.int32)
    B = T.empty((2, 9), T.int32)
    with T.Kernel(1, threads=32) as block:
        T.fill(B, -1)
        count = T.alloc_var(T.int32, 0)
        for m, n in T.Persistent([S[0], S[1]], S[2], block):
            B[0, count] = m
            B[1, count] = n
            count += 1
    return B


def scheduled(S):
    S: T.Tensor((3,), T.int32)
    B = T.empty((2, 9), T.int32)
    with T.Kernel(1, threads=32) as block:
        T.fill(B, -1)
        tiles = T.PersistentTileScheduler(S[0], S[1], num_workers=S[2], column_major=False)
        tiles.init(block)
        while tiles.valid():
            B[0, tiles.current_iter] = tiles.m_idx
            B[1, tiles.current_iter] = tiles.n_idx
            tiles.next_tile()
    return B


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize(
    "given", [(65536, 65536, 2**29), (2**31 - 1, 1, 2**30), (1, 2**31 - 1, 2**31 - 1), (3, 2, 1)]
)
@pytest.mark.parametrize("program", [walked, scheduled])
def test_persistent_loops_over_many_tiles(program: Any, given: Any, run: steps.Run) -> None:
    rows, columns, wave = given
    seen = list(range(0, rows * columns, wave))
    # Inside a group of 8 columns, or without groups, the columns run fastest.
    width = min(columns, 8 if program is walked else columns)
    places = []
    for tile in seen:
        group, inside = divmod(tile, rows * width)
        places.append((inside // width, group * width + inside % width))
    got = run(program, torch.tensor(given, dtype=torch.int32)).T.tolist()
    assert got == [list(p) for p in places] + [[-1, -1]] * (9 - len(places))


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize("step", [-(2**31), 2**31 - 1, 2**31, -(2**40)])
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_steps_longer_than_any_distance(dtype: str, step: int, run: steps.Run) -> None:
    """One round where there is a distance to go, none where there is not."""

    def counted(S):
        kind = dtype
        S: T.Tensor((3, 2), kind)
        B = T.empty((3,), T.int32)
        with T.Kernel(3, threads=32) as bx:
            B[bx] = 0
            for i in T.serial(S[bx, 0], S[bx, 1], step):
                B[bx] += 1 + i
        return B

    bounds = [(3, 9), (9, 3), (4, 4)]
    wanted = [sum(1 + i for i in range(*pair, step)) for pair in bounds]
    out = run(counted, torch.tensor(bounds, dtype=getattr(torch, dtype)))
    assert out.tolist() == wanted


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize("base", [1 << 40, -(1 << 40), (1 << 31) - 9, -(1 << 31), (1 << 63) - 9])
def test_lanes_far_from_zero(base: int, run: steps.Run) -> None:
    """Lanes that take no part, and padding, do not widen the range that all lanes run."""

    def counted(S):
        S: T.Tensor((21, 2), T.int64)
        B = T.empty((21,), T.int64)
        with T.Kernel(1, threads=32):
            for k in T.Parallel(21):
                B[k] = 0
                if k % 3 != 0:
                    for i in T.serial(S[k, 0], S[k, 1]):
                        B[k] += i - S[0, 0]
                    for i in T.serial(S[k, 1] - 1, S[k, 0] - 1, -1):
                        B[k] += i - S[0, 0]
        return B

    bounds = [(base, base)] + [(base + 1 + k % 4, base + 1 + k % 7) for k in range(1, 21)]
    wanted = [2 * sum(i - base for i in range(*p)) if k % 3 else 0 for k, p in enumerate(bounds)]
    assert run(counted, torch.tensor(bounds)).tolist() == wanted


@pytest.mark.parametrize("run", EXECUTORS)
def test_a_bound_of_uint64_beside_signed_ones(run: steps.Run) -> None:
    """The variable is an int64: the loop ends where its values do, and no bound becomes negative."""

    def counted(S, A):
        S: T.Tensor((2,), T.uint64)
        A: T.Tensor((2,), T.int64)
        B = T.empty((4,), T.int64)
        with T.Kernel(1, threads=32):
            T.clear(B)
            for _ in T.serial(-5, S[1], 2**61):
                B[0] += 1
            for _ in T.serial(A[0], S[1], 2**61):
                B[1] += 1
            for i in T.serial(S[0], -1, -3):
                B[2] += i
            for i in T.serial(S[0], A[1], -3):
                B[3] += i
        return B

    out = run(
        counted,
        torch.tensor([9, 2**64 - 1], dtype=torch.uint64),
        torch.tensor([-(2**63), -7]),
    )
    end = 2**63 - 1
    wanted = [
        len(range(-5, end, 2**61)),
        len(range(-(2**63), end, 2**61)),
        sum(range(9, -1, -3)),
        sum(range(9, -7, -3)),
    ]
    assert out.tolist() == wanted

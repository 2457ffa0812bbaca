"""Calls that repeat earlier ones: what differs is checked and looked up, nothing stale is used."""

from __future__ import annotations

import gc
import random
import threading
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, ArgumentTypeError

REPEATS = 3  # the first finds no kernel, the second is remembered, the third is a repetition


@tileops.jit
def repeated_linear(X, scale: T.float32, shift: T.int32, block_N: int = 64):
    M, N = T.dynamic("M, N")
    X: T.StridedTensor((M, N), (T.dynamic("a"), T.dynamic("b")), T.float32)
    Y = T.empty((N, M + shift), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), M) as (bx, by):
        for i in T.Parallel(block_N):
            Y[bx * block_N + i, by + shift] = scale * X[by, bx * block_N + i]
    return Y


def check_linear(x: torch.Tensor, scale: float, shift: int) -> None:
    y = repeated_linear(x, scale, shift)
    assert y.shape == (x.shape[1], x.shape[0] + shift)
    assert y.is_contiguous()
    assert torch.equal(y[:, shift:], (torch.tensor(scale) * x).T)


def test_shapes_strides_and_scalars_in_any_order() -> None:
    base = torch.randn(40, 40)
    views = [base, base.T, base[:7, :9], base[::2, 1::3], base[:1, :33], base[3:4].T, base[0:0]]
    cases = [(v, s, k) for v in views for s in (0.5, -3.0) for k in (0, 1, 5)]
    for _ in range(REPEATS):
        random.shuffle(cases)
        for view, scale, shift in cases:
            check_linear(view, scale, shift)


def test_other_tensors_of_the_same_kind() -> None:
    for _ in range(10):
        check_linear(torch.randn(5, 6), random.random(), 2)


def test_alignment_chooses_again() -> None:
    memory = torch.randn(300)
    for _ in range(REPEATS):
        for offset in (0, 1, 2, 4):
            x = memory[offset : offset + 256]
            assert torch.equal(samples.axpy(x, x, 1.0), 2 * x)


def test_errors_come_at_each_call() -> None:
    x, y = vector(100), vector(100)
    for _ in range(REPEATS):
        samples.axpy(x, y, 1.0)
        for _ in range(REPEATS):
            with pytest.raises(ArgumentTypeError, match="float64"):
                samples.axpy(x, y.double(), 1.0)
            with pytest.raises(ArgumentError, match="101"):
                samples.axpy(x, vector(101), 1.0)
            with pytest.raises(ArgumentError, match="got 1 in shape"):
                samples.axpy(x, vector(1), 1.0)


def test_overlaps_are_found_in_a_repetition() -> None:
    memory = torch.zeros(300)
    for _ in range(REPEATS):
        samples.add_into(torch.ones(100), memory[:100])
        with pytest.raises(ArgumentError, match="memory"):
            samples.add_into(memory[50:150], memory[:100])
    assert torch.equal(memory[:100], torch.full((100,), float(REPEATS)))


def test_version_counters_move_in_a_repetition() -> None:
    x, y = torch.ones(100), torch.zeros(100)
    for n in range(REPEATS):
        before = y._version
        samples.add_into(x, y)
        assert y._version == before + 1
        assert y[0] == n + 1


def test_unloaded_kernels_are_not_used() -> None:
    x = vector(100)
    for _ in range(REPEATS):
        assert torch.equal(samples.axpy(x, x, 1.0), 2 * x)
    loads = tileops.stats()["loads"]
    samples.axpy.unload()
    for _ in range(REPEATS):
        assert torch.equal(samples.axpy(x, x, 1.0), 2 * x)
    assert tileops.stats()["loads"] > loads


def test_threads_remember_for_themselves() -> None:
    def work(seed: int) -> None:
        made = random.Random(seed)
        for _ in range(50):
            check_linear(torch.randn(made.randrange(1, 9), made.randrange(1, 9)), 2.0, 1)
        done.append(seed)

    done: list[int] = []
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3]


def test_unloading_beside_calls() -> None:
    x = vector(100)
    stop = threading.Event()
    wrong: list[object] = []

    def call() -> None:
        try:
            while not stop.is_set():
                if not torch.equal(samples.axpy(x, x, 1.0), 2 * x):
                    wrong.append("result")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        samples.axpy.unload()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def resident_kib() -> int:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])


def test_many_calls_leave_nothing() -> None:
    """A word a call would be 2 MB here. Every size is a call of its own."""
    memory = torch.randn(5000)
    parts = [memory[:n] for n in range(1, 2500)]

    def calls(count: int) -> None:
        for n in range(count):
            samples.axpy(parts[n % len(parts)], parts[n % len(parts)], 0.5)

    calls(20_000)
    gc.collect()
    before = resident_kib()
    calls(250_000)
    gc.collect()
    assert resident_kib() - before < 500

"""The threads of a block on the CPU: fibers that wait for each other, in the right order."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import ArgumentError


def test_threads_that_wait_for_others_that_never_come_are_an_error() -> None:
    @tileops.jit
    def program(X):
        X: T.Tensor((64,), T.int32)
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if X[tx] > 0:
                T.sync_threads(1, 64)
                X[tx] = 5

    everyone = torch.ones(64, dtype=torch.int32)
    program(everyone)
    assert everyone.eq(5).all()
    some = torch.ones(64, dtype=torch.int32)
    some[7] = 0
    with pytest.raises(ArgumentError, match="63 of 64 threads of a block wait for others"):
        program(some)
    program(everyone)  # nothing is left of the failure
    assert everyone.eq(5).all()


def test_threads_that_have_ended_are_not_waited_for() -> None:
    @tileops.jit
    def program(X):
        X: T.Tensor((64,), T.int32)
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            rounds = T.alloc_var(T.int32, 0)
            while rounds < X[tx]:
                T.sync_threads()
                rounds += 1
            X[tx] = -rounds

    rounds = torch.randint(0, 5, (64,), dtype=torch.int32)
    x = rounds.clone()
    program(x)
    assert torch.equal(x, -rounds)


def test_a_failed_assertion_of_one_thread_names_its_line() -> None:
    @tileops.jit
    def program(X):
        X: T.Tensor((64,), T.int32)
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            rounds = T.alloc_var(T.int32, 0)
            while rounds < X[bx * 32 + tx]:
                rounds += 1
                T.device_assert(rounds < 9, "too many rounds")
            X[bx * 32 + tx] = rounds

    x = torch.arange(64, dtype=torch.int32) % 8
    program(x)
    x[40] = 20
    with pytest.raises(ArgumentError, match="assertion"):
        program(x)


def test_many_blocks_with_the_most_threads_and_large_arrays_of_their_own() -> None:
    @tileops.jit
    def program(X):
        N = T.const("N")
        X: T.Tensor((N, 1024), T.int32)
        Y = T.empty((N, 1024), T.int32)
        with T.Kernel(N, threads=1024) as row:
            tx = T.get_thread_binding()
            own = T.alloc_local((512,), T.int32)
            at = T.alloc_var(T.int32, 0)
            T.fill(own, 1)
            while at < X[row, tx]:
                own[at] = at
                at += 1
            T.sync_threads()
            total = T.alloc_var(T.int32, 0)
            for i in T.serial(512):
                total += own[i]
            Y[row, tx] = total
        return Y

    x = torch.randint(0, 512, (37, 1024), dtype=torch.int32)
    expected = x * (x - 1) // 2 + (512 - x)
    assert torch.equal(program(x), expected)

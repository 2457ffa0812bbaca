"""Copies and fills of run-time extents: the interpreter and the CPU path give what slices give."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.interpreted import TARGET
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.testing.interpreter import interpret


def filled(X, first: T.int32):
    n = T.dynamic("n")
    X: T.Tensor((n,), T.int64)
    first: T.int32
    with T.Kernel(1, threads=128):
        T.fill(X[first:n], 7)


def moved(X, Y, first: T.int32, count: T.int32):
    n = T.dynamic("n")
    X: T.Tensor((n, 8), T.float32)
    Y: T.Tensor((n, 8), T.float16)
    first: T.int32
    count: T.int32
    with T.Kernel(1, threads=128):
        T.copy(X[first : first + count, :], Y[0:count, :])


def through_a_tile(X, Y, first: T.int32, count: T.int32):
    n = T.dynamic("n")
    X: T.Tensor((n, 8), T.float32)
    Y: T.Tensor((n, 8), T.float32)
    first: T.int32
    count: T.int32
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((32, 8), T.float32)
        T.fill(s, -1.0)
        T.copy(X[first : first + count, :], s[2 : 2 + count, :])
        T.fill(s[first : first + 1, :], 5.0)
        T.copy(s[1 : 1 + count, :], Y[0:count, :])


def both(func, *args):
    """Results of the tensors after a run on the CPU path and under the interpreter."""
    program = tileops.jit(func).get_tir(*args)
    on_cpu = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    tileops.compile(program, target="cpu")(*on_cpu)
    code = generate(program, TARGET, Specialization())
    compile_kernel(code, TARGET, {})
    interpreted = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    interpret(code, program, *interpreted)
    for a, b in zip(on_cpu, interpreted, strict=True):
        assert not isinstance(a, torch.Tensor) or torch.equal(a, b)
    return on_cpu


@pytest.mark.parametrize(("n", "first"), [(1, 0), (45, 3), (5000, 4097), (7, 7)])
def test_a_fill_to_the_end_of_a_tensor(n: int, first: int) -> None:
    x, _ = both(filled, torch.zeros(n, dtype=torch.int64), first)
    assert torch.equal(x, torch.tensor([0] * first + [7] * (n - first)))


@pytest.mark.parametrize(("n", "first", "count"), [(20, 3, 9), (700, 0, 700), (9, 4, 0)])
def test_a_copy_between_tensors(n: int, first: int, count: int) -> None:
    x, y = torch.randn(n, 8), torch.zeros(n, 8, dtype=torch.float16)
    _, got, *_ = both(moved, x, y, first, count)
    assert torch.equal(got[:count], x[first : first + count].half())
    assert not got[count:].any()


@pytest.mark.parametrize(("n", "first", "count"), [(40, 3, 9), (64, 5, 29), (9, 4, 1)])
def test_a_copy_through_a_part_of_a_tile(n: int, first: int, count: int) -> None:
    x = torch.randn(n, 8)
    _, got, *_ = both(through_a_tile, x, torch.zeros(n, 8), first, count)
    tile = torch.full((32, 8), -1.0)
    tile[2 : 2 + count] = x[first : first + count]
    tile[first] = 5.0
    assert torch.equal(got[:count], tile[1 : 1 + count])
    assert not got[count:].any()

"""A view and its source are one storage: what one name writes, the other reads, within one nest too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.target import parse_target
from tileops.testing.interpreter import interpret


@tileops.jit
def read_through_view(A):
    """The load of the view names no inner variable; it may not be moved before the store."""
    A: T.Tensor((8,), T.float32)
    C = T.empty((8, 1), T.float32)
    with T.Kernel(1, threads=32) as _:
        x = T.alloc_fragment((8, 1), T.float32)
        y = T.alloc_fragment((8, 1), T.float32)
        v = T.reshape(x, (8,))
        T.clear(x)
        for i, j in T.Parallel(8, 1):
            x[i, j] = A[i] * 2
            y[i, j] = v[i]
        T.copy(y, C)
    return C


@tileops.jit
def write_through_chain(A):
    """Written through a view of a view, read by the first name."""
    A: T.Tensor((8,), T.float32)
    C = T.empty((8, 1), T.float32)
    with T.Kernel(1, threads=32) as _:
        x = T.alloc_fragment((8,), T.float32)
        y = T.alloc_fragment((8, 1), T.float32)
        w = T.reshape(T.reshape(x, (2, 4)), (8, 1))
        T.clear(x)
        for i, j in T.Parallel(8, 1):
            w[i, j] = A[i] * 2
            y[i, j] = x[i]
        T.copy(y, C)
    return C


@tileops.jit
def update_whole_through_view(A):
    """A nest that writes the view whole still reads the source's old value."""
    A: T.Tensor((8,), T.float32)
    C = T.empty((8, 1), T.float32)
    with T.Kernel(1, threads=32) as _:
        x = T.alloc_fragment((8, 1), T.float32)
        v = T.reshape(x, (8,))
        for i, j in T.Parallel(8, 1):
            x[i, j] = A[i]
        for i in T.Parallel(8):
            v[i] = x[i, 0] * 2
        T.copy(x, C)
    return C


@tileops.jit
def update_in_a_loop_through_view(A):
    """Each iteration needs the value of the one before, though the nest writes the view whole."""
    A: T.Tensor((8,), T.float32)
    C = T.empty((8, 1), T.float32)
    with T.Kernel(1, threads=32) as _:
        x = T.alloc_fragment((8, 1), T.float32)
        v = T.reshape(x, (8,))
        for i, j in T.Parallel(8, 1):
            x[i, j] = A[i] / 4
        for _k in T.serial(3):
            for i in T.Parallel(8):
                v[i] = x[i, 0] * 2
        T.copy(x, C)
    return C


@tileops.jit
def first_use_in_a_loop_through_view(A):
    """As above, and nothing but the loop uses the tile before."""
    A: T.Tensor((8,), T.float32)
    C = T.empty((8, 1), T.float32)
    with T.Kernel(1, threads=32) as _:
        x = T.alloc_fragment((8, 1), T.float32)
        v = T.reshape(x, (8,))
        for k in T.serial(3):
            if k == 0:
                T.copy(A, v)
            else:
                for i in T.Parallel(8):
                    v[i] = x[i, 0] + A[i] / 2
        T.copy(x, C)
    return C


@tileops.jit
def read_global_through_view(A, C):
    """The same of a tensor: ``flat`` and C are one storage."""
    A: T.Tensor((8,), T.float32)
    C: T.Tensor((8, 1), T.float32)
    D = T.empty((8, 1), T.float32)
    with T.Kernel(1, threads=32) as _:
        flat = T.reshape(C, (8,))
        for i, j in T.Parallel(8, 1):
            C[i, j] = A[i] * 2
            D[i, j] = flat[i]
    return D


PROGRAMS = (
    (read_through_view, 1),
    (write_through_chain, 1),
    (update_whole_through_view, 1),
    (update_in_a_loop_through_view, 1),
    (first_use_in_a_loop_through_view, 1),
    (read_global_through_view, 2),
)


def inputs(count: int) -> tuple[torch.Tensor, ...]:
    return (torch.arange(8.0) - 3, torch.zeros(8, 1))[:count]


@pytest.mark.parametrize(("program", "count"), PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_cpu(program: Any, count: int) -> None:
    given = inputs(count)
    assert torch.equal(program(*given).flatten(), given[0] * 2)


@pytest.mark.parametrize(("program", "count"), PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_interpreter(program: Any, count: int) -> None:
    given = inputs(count)
    traced = program.get_tir(*given)
    code = codegen.generate(traced, parse_target("cuda:sm_90"), Specialization())
    (out,) = interpret(code, traced, *given)
    assert torch.equal(out.flatten(), given[0] * 2)

"""Integer divisions of every dtype are those of Python's integers, on the CPU path and the interpreter.

``TILEOPS_RANDOM_PROGRAMS`` (200 by default) over 200 is how many seeds each dtype gets.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.property import divisions
from tests.property.test_programs import COUNT, FIRST
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

SEEDS = range(FIRST, FIRST + max(1, COUNT // 200))


_NUMBERS = itertools.count()


def named(function: Any) -> Any:
    """The function as a program with a name of its own."""
    return tileops.jit(function, name=f"{function.__name__}_{next(_NUMBERS)}")


def on_cpu(function: Any, *inputs: torch.Tensor) -> Any:
    return named(function)(*inputs)


def on_interpreter(function: Any, *inputs: torch.Tensor) -> Any:
    program = named(function).get_tir(*inputs)
    code = generate(program, parse_target("cuda:sm_90"), Specialization())
    out = interpret(code, program, *inputs)
    return out[0] if len(out) == 1 else out


EXECUTORS = [pytest.param(on_cpu, id="cpu"), pytest.param(on_interpreter, id="interpreter")]


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize("dtype", divisions.DTYPES)
def test_both_operands_at_run_time(dtype: str, run: divisions.Run) -> None:
    found = [text for seed in SEEDS for text in divisions.wrong_by_values(run, dtype, seed)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("run", EXECUTORS)
@pytest.mark.parametrize("dtype", divisions.DTYPES)
def test_a_constant_operand(dtype: str, run: divisions.Run) -> None:
    found = [text for seed in SEEDS for text in divisions.wrong_by_constant(run, dtype, seed)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("run", EXECUTORS)
def test_known_ranges(run: divisions.Run) -> None:
    found = [text for seed in SEEDS for text in divisions.wrong_by_known_ranges(run, seed)]
    assert not found, "\n".join(found)


def of_a_size(X, n: T.int32):
    N = T.dynamic("N")
    X: T.Tensor((N, 0), T.int8)
    n: T.int32
    B = T.empty((4,), T.int32)
    with T.Kernel(1, threads=32):
        B[0] = T.ceildiv(N, 128)
        B[1] = T.ceildiv(N, T.max(n, 1))
        B[2] = T.align_up(N - 127, 128)
        B[3] = 0
        for _ in range(0, N, 1 << 28):
            B[3] += 1
    return B


@pytest.mark.parametrize("n", [1, 7, 2**31 - 1])
def test_a_size_at_the_end_of_its_type(n: int) -> None:
    """A tensor without elements may have any other extent; a call on the CPU divides it exactly."""
    size = 2**31 - 1
    right = [-(-size // 128), -(-size // n), size - 127, 8]
    assert on_cpu(of_a_size, torch.empty(size, 0, dtype=torch.int8), n).tolist() == right

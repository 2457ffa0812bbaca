"""Extents of zero on the CPU path and, as text for GPUs, under the interpreter."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs.construct import Construct
from tests.programs.empty import EMPTY
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.errors import ProgramValueError
from tileops.target import parse_target
from tileops.testing.interpreter import interpret


@pytest.mark.parametrize("case", EMPTY, ids=lambda c: c.id)
def test_cpu(case: Construct) -> None:
    inputs = case.inputs()
    case.check(inputs, tileops.jit(case.func)(*inputs))


@pytest.mark.parametrize("case", EMPTY, ids=lambda c: c.id)
def test_interpreter(case: Construct) -> None:
    inputs = case.inputs()
    program = tileops.jit(case.func).get_tir(*inputs)
    code = generate(program, parse_target("cuda:sm_90"), Specialization())
    case.check(inputs, interpret(code, program, *inputs)[0])


def empty_tile(A):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    with T.Kernel(1, threads=32):
        T.alloc_fragment((N,), T.float32)


def backward_slice(A):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((8, 4), T.float32)
        T.clear(tile[N + 1 : N, :])


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (empty_tile, "every extent must be at least 1"),
        (backward_slice, "of `tile` ends before it starts"),
    ],
)
def test_tiles_and_slices_without_a_size_are_refused(func: object, message: str) -> None:
    with pytest.raises(ProgramValueError, match=message) as refused:
        tileops.jit(func)(torch.empty(0))
    assert refused.value.location is not None

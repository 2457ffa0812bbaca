"""Random programs: the CPU path and the interpreter agree bit for bit with the plain numpy evaluation.

``TILEOPS_RANDOM_PROGRAMS`` sets how many (200 by default, split over the two executors); each is named by the
seed that makes it, and seeds differ from run to run only if ``TILEOPS_RANDOM_SEED`` says so.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from tests.kit import harness
from tests.property.evaluate import Machine
from tests.property.generate import Generator
from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.ir.verifier import verify
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

COUNT = int(os.environ.get("TILEOPS_RANDOM_PROGRAMS", "200"))
FIRST = int(os.environ.get("TILEOPS_RANDOM_SEED", "0"))
BATCH = 10


def made(seed: int) -> tuple[Program, list[torch.Tensor], np.ndarray]:
    """A program, its tensors, and what the last of them must hold afterwards."""
    program = Generator(seed).program()
    verify(program)
    rng = np.random.default_rng(seed)
    arrays = []
    for n, param in enumerate(program.tensors()):
        shape = param.buffer.static_shape()
        last = n == len(program.tensors()) - 1
        values = np.zeros(shape) if last else rng.integers(-8, 9, shape)
        arrays.append(values.astype(str(param.buffer.dtype)))
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    by_id = {p.buffer.id: a for p, a in zip(program.tensors(), arrays, strict=True)}
    with np.errstate(over="ignore"):
        Machine(by_id).run(program)
    return program, tensors, arrays[-1]


def expect(program: Program, seed: int, got: torch.Tensor, expected: np.ndarray) -> None:
    if not np.array_equal(got.numpy(), expected):
        at = np.argwhere(got.numpy() != expected)[:4].tolist()
        pytest.fail(
            f"seed {seed}: wrong at {at}\ngot {got.numpy()}\nexpected {expected}\n{print_program(program)}"
        )


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT // 2, BATCH))
def test_cpu(first: int) -> None:
    for seed in range(first, first + BATCH):
        program, tensors, expected = made(seed)
        harness.build(program)(*tensors)
        expect(program, seed, tensors[-1], expected)


@pytest.mark.parametrize("first", range(FIRST + COUNT // 2, FIRST + COUNT, BATCH))
@pytest.mark.parametrize("fast", [False, True])
def test_interpreter(first: int, fast: bool) -> None:
    for seed in range(first + 5 * fast, first + 5 + 5 * fast):
        program, tensors, expected = made(seed)
        code = codegen.generate(program, parse_target("cuda:sm_90"), Specialization(fast=fast))
        interpret(code, program, *tensors)
        expect(program, seed, tensors[-1], expected)


# Seeds that found a fault: a reduction of magnitudes onto a negative value.
@pytest.mark.parametrize("seed", [1392])
def test_known_seeds(seed: int) -> None:
    program, tensors, expected = made(seed)
    harness.build(program)(*tensors)
    expect(program, seed, tensors[-1], expected)
    program, tensors, _ = made(seed)
    code = codegen.generate(program, parse_target("cuda:sm_90"), Specialization())
    interpret(code, program, *tensors)
    expect(program, seed, tensors[-1], expected)


# The interpreter forgives a tile that changes its dtype between branches or iterations; the compiler does not.
@pytest.mark.parametrize("first", range(1000, 1000 + max(COUNT // 10, 10), BATCH))
def test_compiler(first: int) -> None:
    target = parse_target("cuda:sm_90")
    for seed in range(first, first + BATCH):
        code = codegen.generate(Generator(seed).program(), target, Specialization(fast=True))
        compile_kernel(code, target, {})

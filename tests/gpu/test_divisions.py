"""Divisions on the GPU: of integers, with stepped loops, as Python's (see tests/property); of floats, as torch's."""

from __future__ import annotations

import functools
import itertools
import os
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.property import divisions, steps

pytestmark = pytest.mark.gpu

COUNT = int(os.environ.get("TILEOPS_RANDOM_PROGRAMS", "60"))
FIRST = int(os.environ.get("TILEOPS_RANDOM_SEED", "1000"))
SEEDS = range(FIRST, FIRST + max(1, COUNT // 100))
_NUMBERS = itertools.count()


def on_gpu(function: Any, *inputs: torch.Tensor) -> Any:
    program = tileops.jit(function, name=f"gpu_{function.__name__}_{next(_NUMBERS)}")
    out = program(*(x.cuda() for x in inputs))
    return tuple(x.cpu() for x in out) if isinstance(out, tuple) else out.cpu()


@pytest.mark.parametrize("dtype", divisions.DTYPES)
def test_both_operands_at_run_time(dtype: str) -> None:
    found = [text for seed in SEEDS for text in divisions.wrong_by_values(on_gpu, dtype, seed)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("dtype", divisions.DTYPES)
def test_a_constant_operand(dtype: str) -> None:
    found = [text for seed in SEEDS for text in divisions.wrong_by_constant(on_gpu, dtype, seed)]
    assert not found, "\n".join(found)


def test_known_ranges() -> None:
    found = [text for seed in SEEDS for text in divisions.wrong_by_known_ranges(on_gpu, seed)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("form", steps.FORMS)
@pytest.mark.parametrize("dtype", steps.DTYPES)
def test_loops(dtype: str, form: str) -> None:
    found = [text for seed in SEEDS for text in steps.wrong_loops(on_gpu, dtype, form, seed)]
    assert not found, "\n".join(found)


def shared(A, B):
    rows = T.const("rows")
    A: T.Tensor((rows, 1024), T.float32)
    B: T.Tensor((rows,), T.float32)
    C = T.empty((rows, 1024), T.float32)
    with T.Kernel(T.ceildiv(rows, 8), threads=128) as bx:
        for i, j in T.Parallel(8, 1024):
            C[bx * 8 + i, j] = A[bx * 8 + i, j] / B[bx * 8 + i]
    return C


@pytest.mark.parametrize("widest", [8, 70, 256])
def test_divisors_that_elements_share(widest: int) -> None:
    """Every bit is torch's, for exponents from around 0 to all of them, NaN and zeros included."""
    generator = torch.Generator("cuda").manual_seed(widest)

    def numbers(*shape: int) -> torch.Tensor:
        draw = functools.partial(torch.randint, size=shape, generator=generator, device="cuda")
        exponent = draw(max(0, 127 - widest // 2), min(256, 127 + widest // 2))
        bits = (exponent << 23) | draw(0, 1 << 23) | (draw(0, 2) << 31)
        bits = torch.where(draw(0, 64) == 0, bits & -(1 << 31), bits)  # zeros of both signs
        return (bits - ((bits >> 31) << 32)).int().view(torch.float32)

    a, b = numbers(1 << 15, 1024), numbers(1 << 15)
    program = tileops.jit(shared, name=f"gpu_shared_{next(_NUMBERS)}")
    got, expected = program(a, b), a / b[:, None]
    same = (got.view(torch.int32) == expected.view(torch.int32)) | (got.isnan() & expected.isnan())
    assert bool(same.all())

"""Integer divisions and stepped loops on the GPU give what Python's integers give (see tests/property)."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import torch

import tileops
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

"""Rows of the language on the CPU, compiled for sm_90, and interpreted: functions, integers, and
every argument by position."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
from tests.kit.interpreted import run
from tests.programs import functions
from tests.programs.constructs import Construct
from tests.programs.positional import POSITIONAL


def _on(executor: str, program: Any, *inputs: torch.Tensor) -> torch.Tensor:
    if executor == "cpu":
        return tileops.jit(program)(*inputs)
    (out,) = run(program, *inputs)
    return out


@pytest.mark.parametrize("executor", ["cpu", "triton"])
def test_functions(executor: str) -> None:
    x = functions.arguments()
    functions.check(x, _on(executor, functions.functions, x))


@pytest.mark.parametrize("executor", ["cpu", "triton"])
def test_integer_functions(executor: str) -> None:
    a, b = functions.integers()
    functions.check_integers(a, b, _on(executor, functions.integer_functions, a, b))


@pytest.mark.parametrize("executor", ["cpu", "triton"])
@pytest.mark.parametrize("case", POSITIONAL, ids=lambda c: c.id)
def test_positional(case: Construct, executor: str) -> None:
    inputs = case.inputs()
    before = tuple(x.clone() for x in inputs)
    case.check(before, _on(executor, case.func, *inputs))

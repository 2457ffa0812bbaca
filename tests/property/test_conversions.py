"""Every conversion between two dtypes is rounded once, on every executor.

Expected values come from exact fractions. The inputs are the numbers of the target, the middles
between two of them, what lies just beside these, and the ends of its range.
``TILEOPS_RANDOM_PROGRAMS`` (200 by default) over 100 is how many random pairs a target has.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.kit import exactly
from tests.kit.formats import DTYPES
from tests.property import conversions
from tests.property.test_programs import COUNT, FIRST
from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

PAIRS = max(1, COUNT // 100)
TARGETS = ("cuda:sm_80", "cuda:sm_89", "cuda:sm_90")


def on_interpreter(function: object, *inputs: torch.Tensor, target: str) -> list[torch.Tensor]:
    program = function.get_tir(*inputs)  # type: ignore[attr-defined]
    code = codegen.generate(program, parse_target(target), Specialization())
    return list(interpret(code, program, *inputs))


def test_reference() -> None:
    """The definition agrees with torch where torch rounds once: from float32."""
    x = torch.randn(2000) * torch.exp2(torch.randint(-30, 30, (2000,)))
    for target in ("float16", "bfloat16", "float8_e8m0fnu"):
        got = exactly.elements(x.to(getattr(torch, target)), target)
        for value, found in zip(x.double().tolist(), got, strict=True):
            assert exactly.converted(exactly.Fraction(value), "float32", target) == found


def targets_of(source: str, copies: bool) -> tuple[str, ...]:
    """Those whose text differs: conversions of what float16 and bfloat16 do not hold."""
    if copies:
        return TARGETS[-1:]
    return TARGETS if exactly.DType(source).bits >= 16 else TARGETS[:1]


@pytest.mark.parametrize("copies", [False, True], ids=["casts", "copies"])
@pytest.mark.parametrize("source", DTYPES)
def test_values(source: str, copies: bool, tmp_path: Path) -> None:
    numbers = conversions.inputs_of(source, PAIRS, FIRST)
    given = conversions.padded(numbers, source)
    length = given.numel() * (2 if source in conversions.PACKED else 1)
    program = conversions.program_of(source, length, tmp_path, copies=copies)
    found = conversions.faults(source, given, list(program(given)))
    assert not found, "\n".join(["CPU", *found])
    for target in targets_of(source, copies):
        found = conversions.faults(source, given, on_interpreter(program, given, target=target))
        assert not found, "\n".join([target, *found])


@pytest.mark.parametrize("source", [d for d in DTYPES if d not in conversions.PACKED])
def test_constants(source: str, tmp_path: Path) -> None:
    program, numbers = conversions.constants_of(source, FIRST, tmp_path)
    found = conversions.faults_of_constants(source, numbers, list(program()))
    assert not found, "\n".join(["CPU", *found])
    for target in TARGETS[:2]:
        got = on_interpreter(program, target=target)
        found = conversions.faults_of_constants(source, numbers, got)
        assert not found, "\n".join([target, *found])

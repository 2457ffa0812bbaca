"""Every example program's ``kernel.py`` under the repaired interpreter, against float64."""

from __future__ import annotations

import pytest
import torch
from traced import specialise

from cases import CASES, Case  # isort: skip - found through traced

from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

# The interpreter walks the grid in Python: the longest attention and the million-element sum take minutes.
SHORT = [
    case
    for case in CASES
    if not case.id.startswith(("attention-1024", "add-1000003"))
    and not (case.id.startswith("attention-200") and "-128-" in case.id)
]


@pytest.mark.parametrize("case", SHORT, ids=lambda c: c.id)
def test_program(case: Case) -> None:
    torch.manual_seed(0)
    inputs = case.inputs()
    program = specialise(case.eager, inputs, **case.options)
    code = generate(program, parse_target("cuda:sm_90"), Specialization())
    (out,) = interpret(code, program, *inputs)
    case.check(inputs, out)

"""The generated kernel.py of every example program under the repaired interpreter, against float64."""

from __future__ import annotations

import pytest
import torch

from tests.programs.cases import CASES, Case
from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.ir.program import Program
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

# The interpreter runs blocks one after the other in Python: the long sequences and the million elements take
# minutes there, and differ from the shorter ones only in the number of iterations.
FEASIBLE = tuple(c for c in CASES if "1024x" not in c.id and c.id != "add-1000003")


@pytest.mark.parametrize("case", FEASIBLE, ids=lambda c: c.id)
def test_eager_without_facts(case: Case) -> None:
    torch.manual_seed(0)
    inputs = case.inputs()
    check(case, case.eager.get_tir(*inputs, **case.options), inputs, fast=False)


# Odd run-time sizes never take the fast kernel: what it may assume does not hold.
@pytest.mark.parametrize("case", [c for c in FEASIBLE if "dynamic" not in c.id], ids=lambda c: c.id)
def test_lazy_under_all_facts(case: Case) -> None:
    torch.manual_seed(0)
    check(case, case.lazy().prim_func, case.inputs(), fast=True)


def check(case: Case, program: Program, inputs: tuple[object, ...], *, fast: bool) -> None:
    code = codegen.generate(program, parse_target("cuda:sm_90"), Specialization(fast=fast))
    (out,) = interpret(code, program, *inputs)
    case.check(inputs, out)

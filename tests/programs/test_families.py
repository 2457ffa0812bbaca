"""Whole programs on the CPU path, under the interpreter and compiled for sm_90."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

import tileops
from tests.programs.families import FAMILIES, runnable
from tests.programs.family_case import FamilyCase, bits, copies
from tests.programs.lazy import lazy_twin
from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

SM_90 = parse_target("cuda:sm_90")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_every_name_is_used_once() -> None:
    names = [c.id for c in FAMILIES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", runnable("cpu"), ids=lambda c: c.id)
def test_cpu(case: FamilyCase) -> None:
    before = case.inputs()
    inputs = copies(before)
    case.check(before, inputs, case.impl(*inputs, **case.options))


@pytest.mark.parametrize("case", runnable("cpu"), ids=lambda c: c.id)
def test_lazy_twin(case: FamilyCase) -> None:
    """A lazy program of the same function is the same program: the same bits, and no compile."""
    given = case.inputs()
    eager, lazy = copies(given), copies(given)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several threads add atomically in any order
    try:
        expected = case.impl(*eager, **case.options)
        compiles = tileops.stats()["compiles"]
        got = lazy_twin(case.impl, given, case.options)(*(x for x in lazy if x is not None))
    finally:
        torch.set_num_threads(threads)
    assert tileops.stats()["compiles"] == compiles
    for name, one, other in zip(
        ("outputs", "arguments"), (expected, eager), (got, lazy), strict=True
    ):
        assert bits(one) == bits(other), f"{case.id}: {name} differ"


@pytest.mark.parametrize("case", runnable("interpreter"), ids=lambda c: c.id)
def test_interpreter(case: FamilyCase) -> None:
    before = case.inputs()
    inputs = copies(before)
    program = case.impl.get_tir(*inputs, **case.options)
    code = codegen.generate(program, SM_90, Specialization(fast=False))
    case.check(before, inputs, interpret(code, program, *inputs))


@pytest.mark.parametrize("fast", [False, True], ids=["general", "fast"])
@pytest.mark.parametrize("case", runnable("sm_90"), ids=lambda c: c.id)
def test_compiles_for_sm_90(
    case: FamilyCase, fast: bool, record_property: Callable[[str, object], None]
) -> None:
    program = case.impl.get_tir(*case.inputs(), **case.options)
    start = time.perf_counter()
    code = codegen.generate(program, SM_90, Specialization(fast=fast))
    artifact = compile_kernel(code, SM_90, dict(program.options))
    record_property("compile_seconds", round(time.perf_counter() - start, 3))
    assert artifact.launches
    assert all(artifact.files[launch.image] for launch in artifact.launches)

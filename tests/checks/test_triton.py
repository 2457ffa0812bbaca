"""Checked kernels on the Triton path: they compile, and the interpreter reports as a GPU would."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
from tests.programs import faulty as programs
from tests.programs.faulty import IDS, INDICES, OUTSIDE, VALUES, WRONG, line_of
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.errors import ArgumentError
from tileops.ir.program import Program
from tileops.ir.verifier import verify
from tileops.jit.compiling import checked
from tileops.passes.report_checks import decode
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

TARGET = parse_target("cuda:sm_90")


def prepared(program: Any, *inputs: Any) -> Program:
    with tileops.option.check():
        made = checked(program.get_tir(*inputs), TARGET)
    verify(made)
    return made


@pytest.mark.parametrize(("program", "indices", "text", "said"), OUTSIDE, ids=IDS)
def test_an_index_outside_a_tile(program: Any, indices: torch.Tensor, text: str, said: str) -> None:
    made = prepared(program, VALUES, INDICES)
    code = generate(made, TARGET, Specialization())
    compile_kernel(code, TARGET, {})
    (right,) = interpret(code, made, VALUES, INDICES)
    assert torch.equal(right, program(VALUES, INDICES))
    with pytest.raises(ArgumentError) as caught:
        interpret(code, made, VALUES, indices)
    assert said in str(caught.value)
    assert f"{programs.__file__}:{line_of(program, text)}\n" in str(caught.value)


def test_a_load_that_its_condition_excludes_is_no_fault() -> None:
    made = prepared(programs.check_guarded, VALUES, INDICES)
    code = generate(made, TARGET, Specialization())
    (out,) = interpret(code, made, VALUES, WRONG)
    assert out[3] == -1


@pytest.mark.parametrize("with_checks", [False, True], ids=["trap", "status"])
def test_a_failed_assertion_is_noticed_and_named(with_checks: bool) -> None:
    values = torch.arange(12.0)
    program = programs.check_assert.get_tir(values, 1.0)
    if with_checks:
        program = prepared(programs.check_assert, values, 1.0)
    code = generate(program, TARGET, Specialization())
    assert ("device_assert" in code.source) is not with_checks
    compile_kernel(code, TARGET, {})
    # Twelve elements lie in a tile of 16 lanes: what the four others hold is no failure.
    assert torch.equal(interpret(code, program, values, 12.0)[0], values)
    with pytest.raises(ArgumentError) as caught:
        interpret(code, program, values, 11.0)
    assert "an assertion failed: a value over the limit" in str(caught.value)
    line = line_of(programs.check_assert, "T.device_assert")
    assert f"{programs.__file__}:{line}\n" in str(caught.value)


def test_a_status_word_holds_check_and_value() -> None:
    half, limit = 1 << 39, 1 << 20
    for number, value in ((0, -7), (3, 16), (limit - 1, half - 1)):
        assert decode(((limit - number) << 40) + value + half) == (number, value)
    assert decode(0) is None


def test_programs_without_checks_are_left_alone() -> None:
    plain = programs.check_read.get_tir(VALUES, INDICES)
    assert checked(plain, TARGET) is plain

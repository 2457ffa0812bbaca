"""Checked and debugged kernels on the CPU: what is found, and where the message says it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileops
from tests.programs import faulty as programs
from tests.programs.faulty import IDS, INDICES, NEGATIVE, OUTSIDE, VALUES, WRONG, line_of
from tileops.codegen import cpu
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import gxx
from tileops.errors import ArgumentError
from tileops.ir.printer import print_program
from tileops.ir.walk import walk
from tileops.jit import compiling
from tileops.jit.compiling import Request, checked, key_of
from tileops.passes.context import Context
from tileops.passes.pipeline import CHECKS, run
from tileops.passes.report_checks import reports
from tileops.target import parse_target

SWITCHES: list[Callable[[], Any]] = [tileops.option.check, tileops.option.debug.cpu]


def expect(error: ArgumentError, op: str, said: str, line: int) -> None:
    assert str(error).startswith(f"{op}: ")
    assert said in str(error)
    assert f"{programs.__file__}:{line}\n" in str(error)


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize(("program", "indices", "text", "said"), OUTSIDE, ids=IDS)
def test_an_index_outside_a_tile(
    switch: Any, program: Any, indices: torch.Tensor, text: str, said: str
) -> None:
    right = program(VALUES, INDICES)
    with switch():
        assert torch.equal(program(VALUES, INDICES), right)
        with pytest.raises(ArgumentError) as caught:
            program(VALUES, indices)
    expect(caught.value, program.func.__name__, said, line_of(program, text))


def test_the_environment_turns_checks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, target = programs.check_read.get_tir(VALUES, INDICES), parse_target("cpu")
    monkeypatch.setenv("TILEOPS_CHECK", "1")
    inserted = run(CHECKS, checked(plain, target), Context(target))
    assert "check.index" in print_program(inserted)
    monkeypatch.setenv("TILEOPS_CHECK", "0")
    assert checked(plain, target) is plain


@pytest.mark.parametrize("name", ["cpu", "cuda:sm_90"])
def test_checks_keep_the_numbers_of_statements_and_have_one_each(name: str) -> None:
    plain, target = programs.check_read.get_tir(VALUES, INDICES), parse_target(name)
    assert run(CHECKS, plain, Context(target)) is plain
    with tileops.option.check():
        asking = checked(plain, target)
    inserted = run(CHECKS, asking, Context(target))
    origins = {s.origin for s in walk(plain.launches)}
    assert {s.origin for s in walk(inserted.launches)} == origins
    numbers = [report.number for report in reports(inserted)]
    assert len(set(numbers)) == len(numbers) > 0
    assert set(compiling.generate(asking, target, Specialization()).statements.values()) <= origins


@pytest.mark.parametrize("indices", [WRONG, NEGATIVE], ids=["above", "below"])
def test_a_load_that_its_condition_excludes_is_no_fault(indices: torch.Tensor) -> None:
    expected = torch.where(
        (indices >= 0) & (indices < 16), VALUES[indices.clamp(0, 15).long()], -1.0
    )
    with tileops.option.debug.cpu():
        assert torch.equal(programs.check_guarded(VALUES, indices), expected)


def test_a_failed_assertion_names_its_line_without_any_option() -> None:
    program = programs.check_assert
    values = torch.arange(12.0)
    assert torch.equal(program(values, 12.0), values)
    with pytest.raises(ArgumentError) as caught:
        program(values, 11.0)
    said = "an assertion failed: a value over the limit"
    expect(caught.value, "check_assert", said, line_of(program, "T.device_assert"))


@pytest.mark.parametrize(
    ("program", "values", "text", "said"),
    [
        (programs.check_uninitialised, VALUES, "T.copy(half", "buffer 'whole': a NaN at element 8"),
        (programs.check_root, VALUES - 3, "T.sqrt", "buffer 'B': a NaN at element 0"),
    ],
    ids=["never written", "computed"],
)
def test_nans_of_a_debug_build(program: Any, values: torch.Tensor, text: str, said: str) -> None:
    with tileops.option.debug.cpu():
        with pytest.raises(ArgumentError) as caught:
            program(values)
        expect(caught.value, program.func.__name__, said, line_of(program, text))
    with tileops.option.debug.cpu(nan=False):
        program(values)
    with tileops.option.check():
        program(values)


def test_checks_and_debugging_are_in_the_key_and_in_the_flags() -> None:
    target = parse_target("cpu")
    plain = programs.check_read.get_tir(VALUES, INDICES)

    def key() -> str:
        program = checked(plain, target)
        return key_of(Request(program, target, Specialization(), "op", "test")).hash()

    keys = {key()}
    with tileops.option.check():
        keys.add(key())
    for nan in (False, True):
        with tileops.option.debug.cpu(nan=nan):
            keys.add(key())
            flags = gxx.flags(target, dict(checked(plain, target).options))
            assert "-O0" in flags
            assert "-g" in flags
            source = cpu.generate(checked(plain, target), target, Specialization()).source
            assert "TILEOPS_INDEX" in source
    assert len(keys) == 4
    assert checked(plain, target) is plain


def test_leaving_an_option_forgets_the_checked_kernels() -> None:
    with tileops.option.check():
        programs.check_write(VALUES, INDICES)
        programs.check_write(VALUES, INDICES)
    # Outside the tile but inside the arena: without checks nothing notices.
    programs.check_write(VALUES, INDICES)

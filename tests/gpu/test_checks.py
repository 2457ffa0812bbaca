"""Checked kernels on the GPU: a fault is an error with the program's line, and the device stays usable."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
from tests.programs import faulty as programs
from tests.programs.faulty import IDS, INDICES, OUTSIDE, VALUES, WRONG, line_of
from tileops.errors import ArgumentError

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("program", "indices", "text", "said"), OUTSIDE, ids=IDS)
def test_an_index_outside_a_tile(program: Any, indices: torch.Tensor, text: str, said: str) -> None:
    values, right = VALUES.cuda(), INDICES.cuda()
    plain = program(values, right)
    with tileops.option.check():
        assert torch.equal(program(values, right), plain)
        with pytest.raises(ArgumentError) as caught:
            program(values, indices.cuda())
        assert torch.equal(program(values, right), plain)
    assert said in str(caught.value)
    assert f"{programs.__file__}:{line_of(program, text)}\n" in str(caught.value)
    assert torch.equal(program(values, right), plain)


def test_a_load_that_its_condition_excludes_is_no_fault() -> None:
    with tileops.option.check():
        assert programs.check_guarded(VALUES.cuda(), WRONG.cuda())[3] == -1


def test_a_failed_assertion_ends_no_context() -> None:
    values = torch.arange(12.0, device="cuda")
    with tileops.option.check():
        assert torch.equal(programs.check_assert(values, 12.0), values)
        with pytest.raises(ArgumentError, match="a value over the limit"):
            programs.check_assert(values, 11.0)
    assert torch.ones(1, device="cuda").item() == 1


def test_a_checked_kernel_is_captured() -> None:
    values, right = VALUES.cuda(), INDICES.cuda()
    with tileops.option.check():
        plain = programs.check_read(values, right)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = programs.check_read(values, right)
        graph.replay()
        assert torch.equal(out, plain)

"""Golden ``kernel.py`` of the example programs: what a change of the generator changes is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.programs.typical import PROGRAMS
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.target import parse_target

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "triton"


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_text_is_golden(name: str) -> None:
    code = generate(PROGRAMS[name](), parse_target("cuda:sm_90"), Specialization(fast=True))
    path = GOLDEN / f"{name}.py.txt"
    if os.environ.get("TILEOPS_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code.source)
    assert code.source == path.read_text(), (
        f"the text of {name} differs from {path}; if that is meant, run with TILEOPS_UPDATE_GOLDEN=1"
    )


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_line_of_a_kernel_knows_its_statement(name: str) -> None:
    code = generate(PROGRAMS[name](), parse_target("cuda:sm_90"), Specialization(fast=True))
    lines = code.source.splitlines()
    for number, line in enumerate(lines, 1):
        if "tl.load" in line or "tl.store" in line or "tl.dot" in line:
            assert number in code.statements, line
    for launch in code.launches:
        assert f"def {launch.entry}(" in code.source


def test_generating_twice_gives_the_same_text() -> None:
    texts = {
        generate(PROGRAMS["attention"](), parse_target("cuda:sm_90"), Specialization()).source
        for _ in range(3)
    }
    assert len(texts) == 1

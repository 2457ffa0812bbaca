"""Every line of generated text leads to the statement that it came from, in every process alike."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tileops
from tests.programs.statements import PROGRAMS, escapes, text_of
from tileops.codegen import cpu
from tileops.codegen.kernel_code import KernelCode
from tileops.errors import ToolchainError
from tileops.ir.printer import print_body
from tileops.ir.walk import walk

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "statements"


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_statement_maps_are_golden(name: str) -> None:
    func, target = PROGRAMS[name]
    program = tileops.jit(func, name=f"statements_of_{name}").get_tir()
    code = text_of(program, target)
    shown = [f"{s.origin:3} = {print_body((s,))[0].strip()}" for s in walk(program.launches)]
    for number, line in enumerate(code.source.splitlines(), 1):
        origin = code.statements.get(number)
        shown.append(f"{'' if origin is None else origin:>3} | {line}".rstrip())
    text = "\n".join(shown) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TILEOPS_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), (
        f"the statement map of {name} differs from {path}; if that is meant, run with "
        "TILEOPS_UPDATE_GOLDEN=1"
    )


def _digests(seed: str, folder: Path) -> list[list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.statements"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_two_processes_make_equal_text_and_maps(tmp_path: Path) -> None:
    first, second = _digests("1", tmp_path), _digests("77", Path.cwd())
    assert len(first) > 300
    assert [a for a, b in zip(first, second, strict=True) if a != b] == []


def test_a_compilers_refusal_names_the_line_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = cpu.generate

    def broken(*args: object) -> KernelCode:
        code = generate(*args)
        lines = code.source.splitlines()
        at = next(n for n, origin in code.statements.items() if origin == 8)  # C[0] = total
        lines[at - 1] += " $"
        return dataclasses.replace(code, source="\n".join(lines))

    monkeypatch.setattr(cpu, "generate", broken)
    program = tileops.jit(escapes, name="refused_escapes").get_tir()
    with pytest.raises(ToolchainError) as error:
        tileops.compile(program, target="cpu")
    line = program.launches[0].body[-1].loc.line
    assert f"statements.py:{line}\n      C[0] = total" in str(error.value)

"""The identity of foreign kernels: it moves with their code and with nothing else."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.foreign.triton_source import kernel_of, source_text

TEXT = """
import triton
import triton.language as tl
{pad}
C = tl.constexpr({constant})
SIZE: tl.constexpr = 4

@triton.jit
def inner(x):
    return x + {added}

@triton.jit
def helper(x):
    {comment}
    return inner(x) * {factor}

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr{default}):
    {doc}
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, helper(tl.load(x + i, mask=i < n)) * C, mask=i < n)
"""
SAME = {
    "pad": "",
    "constant": "1.0",
    "factor": "2.0",
    "added": "1.0",
    "comment": "",
    "default": "",
    "doc": "",
}
ROOT = Path(__file__).parents[2]
_numbers = itertools.count()


def module(folder: Path, **changes: str) -> ModuleType:
    """The text as a module of a folder of its own."""
    name = f"foreign_identity_{next(_numbers)}"
    path = folder / name / "source.py"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT.format(**(SAME | changes)))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def parts(folder: Path, **changes: str) -> dict[str, str]:
    return dict(kernel_of(module(folder, **changes).kernel).parts)


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, set()),
        ({"pad": "\n\n\n"}, set()),
        ({"comment": "# why"}, set()),
        ({"comment": '"""What it does."""'}, set()),
        ({"doc": '"""What it does."""'}, set()),
        ({"factor": "3.0"}, {"function helper"}),
        ({"added": "3.0"}, {"function inner"}),
        ({"constant": "2.0"}, {"value C"}),
        ({"default": " = 64"}, {"function kernel"}),
    ],
    ids=str,
)
def test_what_moves_the_identity(
    tmp_path: Path, changes: dict[str, str], changed: set[str]
) -> None:
    before, after = parts(tmp_path), parts(tmp_path, **changes)
    assert (
        set(before)
        == set(after)
        == {"function kernel", "function helper", "function inner", "value C"}
    )
    assert {name for name in before if before[name] != after[name]} == changed


def test_a_value_that_is_read_from_a_module_counts(tmp_path: Path) -> None:
    first, second = module(tmp_path), module(tmp_path, constant="5.0")
    text = TEXT.replace("* C,", "* constants.C,").format(**SAME)
    found = []
    for number, source in enumerate((first, second)):
        path = tmp_path / f"user{number}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(f"foreign_user_{number}", path)
        assert spec is not None
        assert spec.loader is not None
        made: Any = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        spec.loader.exec_module(made)
        made.constants = source
        found.append(dict(kernel_of(made.kernel).parts))
    assert {n for n in found[0] if found[0][n] != found[1][n]} == {"value constants.C"}


def test_names_of_the_function_itself_are_not_read_from_outside(tmp_path: Path) -> None:
    source = module(tmp_path)
    before = kernel_of(source.kernel).parts
    source.x = source.i = torch.ones(1)
    assert kernel_of(source.kernel).parts == before


def test_the_source_is_kept_without_comments(tmp_path: Path) -> None:
    text = source_text(module(tmp_path, comment="# why", doc='"""What."""').kernel)
    assert "why" not in text
    assert "What" not in text
    assert [line for line in text.splitlines() if line.startswith("def ")] == [
        "def kernel(x, y, n, BLOCK: tl.constexpr):", "def helper(x):", "def inner(x):",
    ]  # fmt: skip


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import source
import tileops
import tileops.language as T
from tests.foreign.launched import Launched
from tileops import counters, option

@tileops.jit(name="foreign_identity")
def program(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Extern():
        source.kernel[(T.ceildiv(N, 64),)](X, Y, N, BLOCK=64)
    return Y

whys = []
counters.on_compile(lambda event: whys.append(event.why))
with option.cache_dir({cache!r}):
    op = Launched(program)
    for n in (64, 63, 1):
        op.compiled(op.wanted({{"N": n}}))
print(counters.stats()["compiles"], whys)
"""


def compiles_of(folder: Path, cache: Path, **changes: str) -> tuple[int, str]:
    """Compiles of a process of its own that needs three forms of the kernel, and their reasons."""
    folder.mkdir()
    (folder / "source.py").write_text(TEXT.format(**(SAME | changes)))
    script = folder / "main.py"
    script.write_text(SCRIPT.format(folder=str(folder), cache=str(cache)))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env=environment
    )
    count, _, reasons = done.stdout.strip().partition(" ")
    return int(count), reasons


def test_a_second_process_compiles_what_changed_and_says_what_that_is(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert compiles_of(tmp_path / "first", cache)[0] == 3
    moved = {"pad": "\n\n", "comment": "# moved", "doc": '"""Moved."""'}
    assert compiles_of(tmp_path / "moved", cache, **moved) == (0, "[]")
    count, reasons = compiles_of(tmp_path / "edited", cache, factor="3.0")
    assert count == 3
    assert "changed: ir, function helper'" in reasons

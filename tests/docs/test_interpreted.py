"""Every example of the language's documents on the Triton path: it compiles for sm_90, and the same text
under the repaired interpreter holds what the example asserts."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path

import pytest

import tileops
from tests.docs import interpreted
from tests.docs.examples import Example, examples

# Foreign kernels have no text of ours, and statements of single threads none of Triton's.
EXAMPLES = [
    e
    for e in examples()
    if "@tileops.jit" in e.text and "T.Extern" not in e.text and "/threads.md" not in e.id
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example_runs(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Importing the package tileops.jit sets the attribute that the next line replaces.
    importlib.import_module("tileops.jit")
    monkeypatch.setattr(tileops, "jit", interpreted.jit)
    monkeypatch.setattr(interpreted, "runs", 0)
    # The stand-in registers no op.
    lines = [line for line in example.text.split("\n") if "torch.ops." not in line]
    file = tmp_path / "example.py"
    file.write_text("\n".join(lines))
    runpy.run_path(str(file))
    assert interpreted.runs > 0

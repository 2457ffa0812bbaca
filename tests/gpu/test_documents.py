"""Every example of the language's documents on a GPU: what it makes lies there by default."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.docs.examples import Example, examples

pytestmark = pytest.mark.gpu

EXAMPLES = [e for e in examples() if "@tileops.jit" in e.text]


@pytest.fixture(autouse=True)
def _on_the_gpu() -> Iterator[None]:
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example_runs(example: Example, tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(example.text)
    runpy.run_path(str(file))

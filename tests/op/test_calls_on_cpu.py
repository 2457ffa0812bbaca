"""Calls as users make them, on the CPU (see ``calls_on``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import tileops
from tests.op import backward_first
from tests.op.calls_on import CASES


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with tileops.option.cache_dir(tmp_path / "cache"):
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_cpu(case: Callable[[str], None]) -> None:
    case("cpu")


def test_the_first_launch_of_a_process_in_backward(tmp_path: Path) -> None:
    backward_first.check("cpu", tmp_path / "full")

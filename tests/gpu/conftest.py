"""GPU tests need a CUDA device. Where one was promised (TILEOPS_REQUIRE_GPU=1), a skip is a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    if os.environ.get("TILEOPS_REQUIRE_GPU") == "1":
        pytest.exit("TILEOPS_REQUIRE_GPU=1 and torch sees no CUDA device", returncode=3)
    here = Path(__file__).parent
    for item in items:
        if here in Path(str(item.fspath)).parents:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)

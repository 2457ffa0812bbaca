"""What the tests of the autotuner share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the libraries of hand-written kernels are kept."""
    return tmp_path_factory.mktemp("libraries")

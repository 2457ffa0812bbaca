"""AOTInductor on the GPU: from Python, and from C++ without Python, kernels from a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.bundle import aoti

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["tests.programs.samples", "tests.foreign.aoti_samples"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Tile programs, and kernels of others."""
    major, minor = torch.cuda.get_device_capability()
    folder = tmp_path_factory.mktemp("aoti")
    return aoti.make(folder, "cuda", f"cuda:sm_{major}{minor}", request.param)


def test_a_package_runs_from_python(made: Path) -> None:
    aoti.check_python(made, "cuda")


def test_a_package_runs_without_python(made: Path) -> None:
    aoti.check_cpp(made, "cuda")

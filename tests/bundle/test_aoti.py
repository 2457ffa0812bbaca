"""AOTInductor on the CPU: from Python, and from C++ without Python, kernels from a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundle import aoti

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["tests.programs.samples", "tests.foreign.aoti_samples"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Tile programs, and kernels of others whose code on the CPU are tile programs."""
    return aoti.make(tmp_path_factory.mktemp("aoti"), "cpu", "cpu", request.param)


def test_a_package_runs_from_python(made: Path) -> None:
    aoti.check_python(made, "cpu")


def test_a_package_runs_without_python(made: Path) -> None:
    aoti.check_cpp(made, "cpu")

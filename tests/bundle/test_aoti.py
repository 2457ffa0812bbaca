"""AOTInductor on the CPU: from Python, and from C++ without Python, kernels from a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundle import aoti


@pytest.mark.slow
def test_a_package_runs_with_kernels_from_a_bundle(tmp_path: Path) -> None:
    aoti.check(tmp_path, "cpu", "cpu")

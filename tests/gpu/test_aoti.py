"""AOTInductor on the GPU: from Python, and from C++ without Python, kernels from a bundle."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.bundle import aoti


def test_a_package_runs_with_kernels_from_a_bundle(tmp_path: Path) -> None:
    major, minor = torch.cuda.get_device_capability()
    aoti.check(tmp_path, "cuda", f"cuda:sm_{major}{minor}")

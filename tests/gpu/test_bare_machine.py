"""A bundle where there is no compiler, source, network or place to write, on the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.bundle import bare_machine

pytestmark = pytest.mark.gpu


def test_every_bundled_op_works_and_a_missing_architecture_is_named(tmp_path: Path) -> None:
    major, minor = torch.cuda.get_device_capability()
    other = "cuda:sm_80" if (major, minor) != (8, 0) else "cuda:sm_90"
    bare_machine.check(tmp_path, "cuda", f"cuda:sm_{major}{minor}", other)

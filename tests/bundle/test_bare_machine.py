"""A bundle where there is no compiler, source, network or place to write, on the CPU."""

from __future__ import annotations

from pathlib import Path

from tests.bundle import bare_machine
from tileops.target import host_cpu_level


def test_every_bundled_op_works_and_a_missing_target_is_named(tmp_path: Path) -> None:
    bare_machine.check(tmp_path, "cpu", f"cpu:{host_cpu_level()}", "cuda:sm_80")

"""Operators of tensors that two processes hold parts of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_two_processes(tmp_path: Path) -> None:
    """DTensor's rules of every operator, and a module that FSDP2 divides."""
    command = [sys.executable, "-m", "tests.ops.sharded"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meet")], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)

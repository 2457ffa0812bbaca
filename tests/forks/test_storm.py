"""Forks while a thread is busy: no child hangs, and each one computes.

``TILEOPS_FORKS`` sets how many of each kind there are (``make nightly``: 1,000).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks.storm import KINDS

ROOT = Path(__file__).resolve().parents[2]
FORKS = int(os.environ.get("TILEOPS_FORKS", "12"))
A_PROCESS = 250  # forks of one process, which holds every op that it has registered
# One compile takes a second, and there are two to a fork.
SLOW = {"compiling_with_triton": 20}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_child_hangs(kind: str, tmp_path: Path) -> None:
    left = max(2, FORKS // SLOW.get(kind, 1))
    while left > 0:
        count = min(left, A_PROCESS)
        done = subprocess.run(
            [sys.executable, "-m", "tests.forks.storm", kind, str(count)],
            cwd=ROOT, env=os.environ | {"TILEOPS_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
            timeout=300 + 10 * count,
        )  # fmt: skip
        assert done.stdout == f"{kind} {count} right\n", done.stdout + done.stderr
        left -= count

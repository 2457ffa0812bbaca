"""T.print and T.device_assert on the GPU; a failed assertion ends a process's use of the device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tileops import settings

pytestmark = pytest.mark.gpu

PROGRAM = """
import sys, torch, tileops
from tests.compile.test_effects import checked
x = torch.arange(20).int()
x[3] = -1
x[4] = int(sys.argv[1])
out = tileops.jit(checked)(x.cuda())
torch.cuda.synchronize()
assert torch.equal(out.cpu(), x)
"""


def ran(value: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[2]
    environment = settings.child_environment({"TILEOPS_CACHE_DIR": str(tmp_path)})
    path = f"{root}:{environment.get('PYTHONPATH', '')}"
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, value],
        check=False,
        cwd=root,
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": path},
    )


def test_what_holds_passes_and_prints(tmp_path: Path) -> None:
    done = ran("4", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "tile" in done.stdout
    assert "sum" in done.stdout


def test_what_does_not_hold_fails(tmp_path: Path) -> None:
    done = ran("-1", tmp_path)
    assert done.returncode != 0
    assert "negative" in done.stderr

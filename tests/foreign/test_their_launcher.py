"""The arguments of 1,000 calls, byte by byte, beside those of Triton's own launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.runtime.conftest import GXX, HERE, cuda_include

ROOT = Path(__file__).parents[2]


def test_a_thousand_calls_pass_what_tritons_launcher_passes(tmp_path: Path) -> None:
    driver = tmp_path / "libcuda.so.1"  # the name under which Triton links and loads it
    subprocess.run(
        [GXX, "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden",
         "-isystem", str(cuda_include()), str(HERE / "fake_cuda.cpp"),
         str(Path(__file__).parent / "more_cuda.cpp"), f"-Wl,-soname,{driver.name}",
         "-o", str(driver), "-pthread"],
        check=True,
    )  # fmt: skip
    places = {
        "PYTHONPATH": str(ROOT),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "TILEOPS_CACHE_DIR": str(tmp_path / "tileops"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.foreign.their_launcher", str(driver), "1000"],
        capture_output=True, text=True, env={**os.environ, **places}, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    calls, _, forms = done.stdout.strip().partition(" calls, ")
    assert int(calls) == 1000
    assert int(forms.removesuffix(" forms")) >= 20  # a number that is 1, divisible by 16, neither

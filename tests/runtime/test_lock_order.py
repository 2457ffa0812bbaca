"""The order of locks: the interpreter's lock is never waited for under a lock of the runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import tileops
from tests.runtime.conftest import GXX, HERE, ROOT, cuda_include

PACKAGE = Path(tileops.__file__).parent
TORCH = Path(torch.__file__).parent


def test_kernels_of_one_image_load_on_two_devices_under_the_interpreters_lock(
    fake_driver_path: Path, tmp_path: Path
) -> None:
    # One thread is in the driver and will want the interpreter's lock; the other one has that and
    # wants the image: neither would go on if the image were held meanwhile.
    library = tmp_path / "libload_held.so"
    subprocess.run(
        [GXX, "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", str(HERE / "load_held.cpp"), "-o",
         str(library), f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'cpu'}", "-isystem", str(cuda_include()),
         "-isystem", str(TORCH / "include"), f"-L{PACKAGE}", "-ltileops", f"-Wl,-rpath,{PACKAGE}"],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.held_loads", str(fake_driver_path), str(library)],
        capture_output=True, text=True, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert done.stdout == "good\n", done.stderr

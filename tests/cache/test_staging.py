"""Staging: what killed processes left goes, what living ones use stays, and nothing lies elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cache import samples
from tileops.cache import Store, staging
from tileops.cache.directory import Directory
from tileops.cache.files import Trust

# Compiles in its staging until it is killed; tells its folder.
AT_WORK = """
import sys, time
from pathlib import Path
from tileops.cache import staging
from tileops.cache.directory import Directory
from tileops.cache.files import Trust
directory = Directory(Path(sys.argv[1]), True, Trust(shared=False))
with staging.folder(directory, "compile") as folder:
    (folder / "device_kernel.cpp").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "cache", True, Trust(shared=False))


def test_what_a_killed_process_left_goes_at_once(directory: Directory) -> None:
    process = samples.start(AT_WORK, [directory.root], env=samples.environment(None))
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert folder.parent == directory.staging.resolve()
    assert staging.sweep(directory) == 0  # it lives
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert folder.exists()
    assert staging.sweep(directory) == 1
    assert list(directory.staging.iterdir()) == []


def test_what_another_machine_left_goes_when_it_is_old(directory: Directory) -> None:
    own = staging.fresh(directory, "x").name.split(".")
    directory.staging.mkdir(parents=True, exist_ok=True)
    for name in (f"x.{'0' * 12}.999999999.abc", f"x.{own[1]}.{os.getpid()}.abc", "of.another.kind"):
        (directory.staging / name).write_text("x")
    assert staging.sweep(directory) == 0
    for path in directory.staging.iterdir():
        os.utime(path, (time.time() - 4000,) * 2)
    assert staging.sweep(directory) == 3


def test_the_first_program_that_is_stored_sweeps(root: Path) -> None:
    (root / ".state" / "staging").mkdir(parents=True)
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    dead = int(child.stdout)
    left = root / ".state" / "staging" / f"compile.{staging._processes()}.{dead}.abc"
    left.mkdir()
    Store().fetch(samples.key(0), samples.built)
    assert list((root / ".state" / "staging").iterdir()) == []


# A process whose cache is memory only, which ends by an exit in the middle of a compile; and a child
# that was forked from it and ends like any process.
TEMPORARY = """
import os, sys
from tileops.cache import staging
path = staging.temporary_path("test")
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(path, path.is_dir(), flush=True)
"""


def test_a_folder_outside_the_cache_goes_with_the_process_that_made_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TEMPORARY],
        env=samples.environment(None, TMPDIR=str(tmp_path)),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    path, was_there = done.stdout.split()
    assert was_there == "True"
    assert Path(path).parent == tmp_path.resolve()
    assert list(tmp_path.iterdir()) == []

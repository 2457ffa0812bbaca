"""Builds the release wheel.

    python -m distribution.build_wheel [--out dist] [PYTHON ...]

For each PYTHON, an interpreter or a folder of headers; without one, for every supported Python that
this machine has. It needs setuptools, pybind11 and a C++ compiler, and no network.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from distribution import interpreters
from distribution.native import ROOT

# The date of files where the sources have none: what zip can express first.
_NO_DATE = 315532800


def source_date() -> int:
    """The date that files of the wheel get: the variable's, else that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return int(given)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return int(done.stdout)
    return _NO_DATE


def main() -> None:
    """Build the wheel that the arguments describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--out", default="dist", type=Path)
    options = parser.parse_args()
    places = options.pythons or interpreters.found()
    try:
        versions = {interpreters.described(place).version for place in places}
    except ValueError as error:
        sys.exit(f"tileops: {error}")
    if not versions:
        sys.exit("tileops: no Python with headers was found")
    absent = [version for version in interpreters.SUPPORTED if version not in versions]
    os.environ["TILEOPS_WHEEL_PYTHONS"] = os.pathsep.join(places)
    os.environ["SOURCE_DATE_EPOCH"] = str(source_date())
    os.chdir(ROOT)
    # What an earlier build left would get into the wheel.
    for folder in (*ROOT.glob("build/lib*"), *ROOT.glob("build/bdist*"), *ROOT.glob("build/temp*")):
        shutil.rmtree(folder)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    from setuptools import build_meta

    start = time.monotonic()
    log = out / "build.log"
    with log.open("w") as text, contextlib.redirect_stdout(text):
        try:
            name = build_meta.build_wheel(str(out))
        except BaseException:
            text.flush()
            sys.stderr.write(log.read_text())
            raise
    log.unlink()
    size = (out / name).stat().st_size / 1e6
    print(f"{out / name}: {size:.1f} MB in {time.monotonic() - start:.0f} s")
    if absent:
        print(f"not for CPython {', '.join(absent)}, which this machine lacks")


if __name__ == "__main__":
    main()

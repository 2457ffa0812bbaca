"""Exit status 0 if this Python has what building the wheel needs, so that nothing is installed.

``--test``: also what the wheel needs, and a pip that installs it elsewhere. ``--packages``: print
the folders of its packages, one a line.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

# As build-system.requires in pyproject.toml; torch has the headers of pybind11 too.
BUILD = {"setuptools": ((77,), None)}
RUN = {"torch": ((2, 10), None), "triton": ((3, 6), (3, 10))}


def numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match.group().split("."))) if match else ()


def version(name: str) -> str | None:
    """The version of the distribution ``name``, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def problem(name: str) -> str | None:
    """What is wrong with the installed ``name``, or None."""
    least, below = (BUILD | RUN)[name]
    found = next(
        (numbers(text) for each in (name, f"pytorch-{name}") if (text := version(each))), ()
    )
    if not found or importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    if found < least or (below is not None and found >= below):
        return f"{name} has another version"
    return None


def main() -> int:
    """Run the checks that the arguments name."""
    if "--packages" in sys.argv:
        folders = {
            str(Path(spec.origin).parent.parent)
            for name in ("torch", "filelock", "triton")
            if (spec := importlib.util.find_spec(name)) is not None and spec.origin is not None
        }
        print("\n".join(sorted(folders)))
        return 0
    needed = BUILD | (RUN if "--test" in sys.argv else {})
    problems = [text for name in needed if (text := problem(name)) is not None]
    if all(importlib.util.find_spec(name) is None for name in ("pybind11", "torch")):
        problems.append("pybind11 is not installed")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        problems.append("its headers are missing")
    if "--test" in sys.argv and importlib.util.find_spec("pip") is None:
        problems.append("pip is missing")
    if problems:
        print(f"{sys.executable} cannot build the wheel: {'; '.join(problems)}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

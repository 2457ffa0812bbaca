"""The Pythons that a wheel is built for: interpreters that are installed, or only their headers."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")
_ASK = """
import sys, sysconfig
paths = sysconfig.get_paths()
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], sysconfig.get_config_var("Py_GIL_DISABLED") or 0)
print(sysconfig.get_config_var("EXT_SUFFIX"))
print(paths["include"])
print(paths["platinclude"])
"""  # noqa: E501


@dataclass(frozen=True)
class Interpreter:
    """A version of CPython, where its headers are, and how its extension modules are named."""

    version: str  # "3.12"
    include: tuple[str, ...]
    suffix: str  # ".cpython-312-x86_64-linux-gnu.so"

    @property
    def tag(self) -> str:
        """Its tag in the names of wheels: ``cp312``."""
        return f"cp{self.version.replace('.', '')}"


def described(place: str) -> Interpreter:
    """The Python whose executable, or whose folder of headers, is ``place``; ValueError if none."""
    if Path(place).is_dir():
        return _of_headers(Path(place))
    try:
        done = subprocess.run(
            [place, "-I", "-c", _ASK], capture_output=True, text=True, check=False, cwd="/"
        )
    except OSError as error:
        raise ValueError(f"{place} does not run: {error}") from error
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) != 4:
        raise ValueError(f"{place} is not a Python: {done.stderr.strip()}")
    name, version, free_threaded = lines[0].split()
    if name != "cpython" or version not in SUPPORTED or free_threaded != "0":
        raise ValueError(f"{place} is {name} {version}, not CPython {SUPPORTED[0]} or newer")
    include = tuple(dict.fromkeys(lines[2:]))
    if not any((Path(folder) / "Python.h").is_file() for folder in include):
        raise ValueError(f"{place} has no headers ({include[0]}/Python.h)")
    return Interpreter(version, include, lines[1])


def _of_headers(folder: Path) -> Interpreter:
    try:
        text = (folder / "patchlevel.h").read_text()
    except OSError as error:
        raise ValueError(f"{folder} has no headers of Python: {error}") from error
    numbers = dict(re.findall(r"#define PY_(MAJOR|MINOR)_VERSION\s+(\d+)", text))
    version = f"{numbers.get('MAJOR')}.{numbers.get('MINOR')}"
    if version not in SUPPORTED or not (folder / "pyconfig.h").is_file():
        raise ValueError(f"{folder} has no headers of CPython {SUPPORTED[0]} or newer")
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    suffix = f".cpython-{version.replace('.', '')}-{machine}-linux-gnu.so"
    return Interpreter(version, (str(folder),), suffix)


def found() -> list[str]:
    """The executables of supported Pythons on this machine, one for each version, oldest first."""
    result = []
    for version in SUPPORTED:
        for place in _candidates(version):
            try:
                interpreter = described(place)
            except ValueError:
                continue
            if interpreter.version == version:
                result.append(place)
                break
    return result


def _candidates(version: str) -> Iterable[str]:
    tag = f"cp{version.replace('.', '')}"
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for folder in sorted((root / "versions").glob(f"{version}.*")):
        yield str(folder / "bin" / "python")
    yield f"/opt/python/{tag}-{tag}/bin/python"

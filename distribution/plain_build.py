"""A build of the two binaries that needs neither torch nor Triton: for wheels.

It compiles the files itself, so that the flags are the same whatever Python runs it, and it can
build ``_C`` for several Pythons at once. A build next to an installed torch is
``torch.utils.cpp_extension``'s (setup.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools.command.build_ext import build_ext

from distribution import native, oldest, torch_stub
from distribution.interpreters import Interpreter, described

# As distutils compiles for CPython.
_FLAGS = ["-fPIC", "-DNDEBUG", "-fwrapv", *native.FLAGS]
# The file that takes longest goes first: the others fill the remaining time.
_SLOW = ("csrc/python/module.cpp", "csrc/python/direct_call.cpp")


def wanted() -> list[Interpreter]:
    """The Pythons of ``TILEOPS_WHEEL_PYTHONS``, oldest first; else the one that runs this."""
    places = os.environ.get("TILEOPS_WHEEL_PYTHONS", sys.executable).split(os.pathsep)
    found = {each.version: each for place in places for each in (described(place),)}
    return [
        found[version] for version in sorted(found, key=lambda v: tuple(map(int, v.split("."))))
    ]


def is_release() -> bool:
    """True if a wheel for every Linux is built: it names its Pythons."""
    return "TILEOPS_WHEEL_PYTHONS" in os.environ


class PlainBuild(build_ext):
    """Compiles and links libtileops.so and a ``_C`` for each Python."""

    def build_extensions(self) -> None:
        """Build everything into the folder of the package."""
        cxx = os.environ.get("CXX", "g++")
        package = Path(self.get_ext_fullpath("tileops.libtileops")).parent.resolve()
        package.mkdir(parents=True, exist_ok=True)
        objects = Path(self.build_temp).resolve()
        pythons = wanted()
        pybind = native.pybind_include()
        jobs: list[tuple[str, Path, list[str]]] = []
        for python in pythons:
            folders = [str(pybind), *python.include]
            extra = [flag for folder in folders for flag in (native.SYSTEM, folder)]
            # No path of this machine in the binary.
            extra += [f"-ffile-prefix-map={pybind}=pybind11"]
            jobs += [(source, objects / python.tag, extra) for source in native.BINDING]
        jobs += [(source, objects / "library", []) for source in native.LIBRARY]
        jobs.sort(key=lambda job: job[0] not in _SLOW)
        with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS", "2"))) as pool:
            list(pool.map(lambda job: _compile(cxx, *job), jobs))
        stub = objects / "torch"
        torch_stub.write(stub, native.TORCH_HEADER, cxx)
        library = package / "libtileops.so"
        _link(cxx, objects / "library", native.LIBRARY, library, [
            f"-L{stub}", f"-l{torch_stub.LIBRARY}", *native.LIBRARY_LINK,
        ])  # fmt: skip
        for python in pythons:
            _link(cxx, objects / python.tag, native.BINDING, package / f"_C{python.suffix}", [
                f"-L{package}", "-ltileops", *native.BINDING_LINK,
            ])  # fmt: skip
        if is_release():
            oldest.require(package)


def _object(source: str, folder: Path) -> Path:
    return folder / Path(source).with_suffix(".o")


def _compile(cxx: str, source: str, folder: Path, extra: list[str]) -> None:
    out = _object(source, folder)
    out.parent.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{folder}" for folder in native.INCLUDE]
    prefix = f"-ffile-prefix-map={native.ROOT}=."
    command = [cxx, *_FLAGS, prefix, *includes, *extra, "-c", source, "-o", str(out)]
    _run(command)


def _link(cxx: str, folder: Path, sources: list[str], out: Path, extra: list[str]) -> None:
    objects = [str(_object(source, folder)) for source in sources]
    _run([cxx, "-shared", "-pthread", *objects, *extra, "-o", str(out)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=native.ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")

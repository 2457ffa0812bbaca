"""Wheels by each build backend, for seven targets, built twice: byte for byte the same.

Minutes: ``TILEOPS_BUILDS=1``, as ``make nightly`` sets it.
"""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from pathlib import Path

import pytest

from tests.packages import clean
from tests.packages.test_wheel import build, copied

pytestmark = pytest.mark.skipif(
    not os.environ.get("TILEOPS_BUILDS"), reason="TILEOPS_BUILDS=1 is not set"
)

SEVEN = (
    'targets = ["cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_90", "cuda:sm_100", '
    '"cuda:sm_120", "cpu:x86-64-v3"]\nptx = "sm_80"\n'
)
PROJECT = """
[build-system]
requires = ["{requires}"]
build-backend = "{backend}"
[project]
name = "userops"
version = "1.0"
[project.entry-points."tileops.kernels"]
userops = "userops:_kernels"
"""
HATCH = """
[tool.hatch.build.targets.wheel]
packages = ["src/userops"]
[tool.hatch.build.hooks.tileops]
"""
SCIKIT = """
[tool.scikit-build]
wheel.packages = ["src/userops"]
wheel.py-api = "py3"
"""
CMAKE = """
cmake_minimum_required(VERSION 3.26)
project(userops LANGUAGES NONE)
find_package(Python REQUIRED COMPONENTS Interpreter)
add_custom_target(kernels ALL COMMAND ${Python_EXECUTABLE} -m tileops build
    ${CMAKE_SOURCE_DIR} --out ${CMAKE_BINARY_DIR}/_kernels)
install(DIRECTORY ${CMAKE_BINARY_DIR}/_kernels DESTINATION userops)
"""
BACKENDS = {
    "setuptools.build_meta": ("setuptools", '[tool.setuptools.packages.find]\nwhere = ["src"]\n'),
    "hatchling.build": ("hatchling", HATCH),
    "scikit_build_core.build": ("scikit-build-core", SCIKIT),
}
PACKAGES = {
    "setuptools": ("setuptools",),
    "hatchling": ("hatchling", "pathspec", "pluggy", "packaging", "trove-classifiers"),
    "scikit-build-core": ("scikit-build-core", "pathspec", "packaging", "cmake", "ninja"),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_seven_targets_twice(backend: str, tmp_path: Path) -> None:
    requires, table = BACKENDS[backend]
    site = clean.linked(tmp_path / "site", "triton", "filelock", *PACKAGES[requires])
    python = clean.environment(tmp_path / "environment", site)
    digests, seconds = [], []
    for folder in ("one", "two"):
        project = copied(tmp_path / folder)
        file = project / "pyproject.toml"
        kernels = file.read_text().partition("[tool.tileops]")[2].partition("targets =")[0]
        head = PROJECT.format(requires=requires, backend=backend)
        file.write_text(f"{head}{table}[tool.tileops]{kernels}{SEVEN}")
        (project / "CMakeLists.txt").write_text(CMAKE)
        start = time.monotonic()
        wheel = build(python, project, backend)
        seconds.append(time.monotonic() - start)
        digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    print(f"{wheel.name}: {wheel.stat().st_size} bytes, {seconds[0]:.1f} and {seconds[1]:.1f} s")
    assert wheel.name.startswith("userops-1.0-py3-none-")
    assert "linux" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "userops/_kernels/bundle.json" in names
    assert "userops/programs.py" in names
    suffixes = {Path(name).suffix for name in names}
    assert {".cubin", ".ptx", ".so"} <= suffixes
    assert digests[0] == digests[1]

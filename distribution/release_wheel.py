"""The wheel: tags for all of its Pythons, a bill of materials, and the same bytes each time."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import setuptools
from setuptools.command.bdist_wheel import bdist_wheel

from distribution import native, oldest, plain_build, sbom


class ReleaseWheel(bdist_wheel):
    """``bdist_wheel``, and for a release (TILEOPS_WHEEL_PYTHONS) what its users may rely on."""

    def get_tag(self) -> tuple[str, str, str]:
        """One wheel for every Python that it has a ``_C`` for, on every Linux of the platform."""
        if not plain_build.is_release():
            return super().get_tag()
        tags = ".".join(python.tag for python in plain_build.wanted())
        machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
        return tags, tags, f"{oldest.PLATFORM}_{machine}"

    def write_wheelfile(self, wheelfile_base: str, *args: object, **kwargs: object) -> None:
        """Write WHEEL and the bill, and give every file the mode that it has in each checkout."""
        super().write_wheelfile(wheelfile_base, *args, **kwargs)
        if not plain_build.is_release():
            return
        root = Path(self.bdist_dir)
        folder = Path(wheelfile_base) / "sboms"
        folder.mkdir(exist_ok=True)
        (folder / sbom.NAME).write_text(self._bill(root))
        for path in root.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)

    def _bill(self, root: Path) -> str:
        project = self.distribution
        optional = [each for group in ("gpu",) for each in project.extras_require.get(group, ())]
        return sbom.describe(
            name=project.get_name(),
            version=project.get_version(),
            epoch=int(os.environ["SOURCE_DATE_EPOCH"]),
            requirements=project.install_requires,
            optional=optional,
            compiled_in={
                "pybind11": (native.pybind_version(native.pybind_include()), "BSD-3-Clause")
            },
            tools={"g++": _compiler_version(), "setuptools": setuptools.__version__},
            binaries={str(path.relative_to(root)): path for path in root.rglob("*.so")},
        )


def _compiler_version() -> str:
    command = [os.environ.get("CXX", "g++"), "-dumpfullversion"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

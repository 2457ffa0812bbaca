"""Owns the build of the two binaries: libtileops.so (no Python in it) and tileops._C.

Next to an installed torch, as in a checkout, ``torch.utils.cpp_extension`` builds them. Wheels, and
builds that pip isolates, need no torch: ``distribution/plain_build.py``.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from distribution import native, plain_build, release_wheel  # noqa: E402

TORCH = None if plain_build.is_release() else native.package_folder("torch")


def extensions() -> list[Extension]:
    library_dirs = [] if TORCH is None else [str(TORCH / "lib")]
    library = Extension(
        "tileops.libtileops",
        native.LIBRARY,
        include_dirs=native.INCLUDE,
        depends=native.headers(),
        extra_compile_args={"cxx": native.FLAGS},
        library_dirs=library_dirs,
        libraries=["torch_cpu"],
        extra_link_args=native.LIBRARY_LINK,
        language="c++",
    )
    binding = Extension(
        "tileops._C",
        native.BINDING,
        include_dirs=native.INCLUDE,
        depends=native.headers(),
        extra_compile_args={"cxx": [*native.FLAGS, native.SYSTEM, str(native.pybind_include())]},
        libraries=["tileops"],
        extra_link_args=native.BINDING_LINK,
        language="c++",
    )
    return [library, binding]


def with_own_name(base: type) -> type:
    """The command ``base`` that names the library of C++ programs as those expect."""

    class Build(base):  # type: ignore[misc,valid-type]
        def get_ext_filename(self, ext_name: str) -> str:
            # No Python in it, so no Python in its name: C++ programs load it too.
            if ext_name.rpartition(".")[2] == "libtileops":
                return str(Path(*ext_name.split(".")).with_suffix(".so"))
            return str(super().get_ext_filename(ext_name))

        def build_extensions(self) -> None:
            folder = Path(self.get_ext_fullpath("tileops.libtileops")).parent
            for extension in self.extensions:
                if extension.name == "tileops._C":
                    extension.library_dirs.append(str(folder.resolve()))
            super().build_extensions()

    return Build


def build_command() -> type:
    if TORCH is None:
        return with_own_name(plain_build.PlainBuild)
    from torch.utils.cpp_extension import BuildExtension

    return with_own_name(BuildExtension)


class BuildPy(build_py):
    """Adds what a wheel carries beyond the package: CPU headers, the generators' digest."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # a checkout's own files are read in place
        package = Path(self.build_lib) / "tileops"
        include = package / "include"
        shutil.rmtree(include, ignore_errors=True)
        shutil.copytree(ROOT / "csrc" / "cpu", include, ignore=shutil.ignore_patterns("*.cpp"))
        self.write_digest(package, include)

    def write_digest(self, package: Path, include: Path) -> None:
        # Loaded by path: importing the package would run code that needs the build's result.
        path = ROOT / "tileops" / "cache" / "sources.py"
        spec = importlib.util.spec_from_file_location("_tileops_sources", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.write_module(package / "cache" / "_sources_digest.py", package, include)


if platform.machine() not in ("x86_64", "aarch64", "arm64"):
    sys.exit(f"tileops supports x86-64 and aarch64, not {platform.machine()}")
os.environ.setdefault("MAX_JOBS", "2")
setup(
    ext_modules=extensions(),
    cmdclass={
        "build_ext": build_command(),
        "build_py": BuildPy,
        "bdist_wheel": release_wheel.ReleaseWheel,
    },
)

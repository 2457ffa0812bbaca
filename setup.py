"""Owns the build of the two binaries: libtileops.so (no Python in it) and tileops._C."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from torch.utils.cpp_extension import BuildExtension

ROOT = Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
# The warnings of other projects' headers are not ours to mend.
SYSTEM = "-isystem"


def package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else None


def torch_folder() -> Path:
    folder = package_folder("torch")
    assert folder is not None  # imported above
    return folder


def cuda_include() -> Path:
    """The folder of cuda.h: a toolkit is not needed, Triton's wheel carries the header."""
    triton, nvidia = package_folder("triton"), package_folder("nvidia")
    candidates = [triton / "backends" / "nvidia" / "include"] if triton is not None else []
    if nvidia is not None:
        candidates += sorted(nvidia.glob("*/include"))
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    candidates.append(Path(home) / "include")
    for folder in candidates:
        if (folder / "cuda.h").is_file():
            return folder
    sys.exit(
        "tileops: cuda.h was not found; pip install triton, or set CUDA_HOME to a CUDA toolkit"
    )


def pybind_include() -> Path:
    """The folder of pybind11's headers: pip's own, else a copy of torch's without the rest."""
    own = package_folder("pybind11")
    if own is not None and (own / "include" / "pybind11").is_dir():
        return own / "include"
    # torch's include folder itself would put torch's headers on the path of a file that may not
    # use them.
    copy = ROOT / "build" / "pybind11"
    shutil.copytree(torch_folder() / "include" / "pybind11", copy / "pybind11", dirs_exist_ok=True)
    return copy


def sources(*folders: str) -> list[str]:
    found = [path for folder in folders for path in sorted((ROOT / "csrc" / folder).glob("*.cpp"))]
    return [str(path.relative_to(ROOT)) for path in found]


def headers() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "csrc").glob("*/*.h"))]


def extensions() -> list[Extension]:
    own = [str(ROOT / "csrc"), str(ROOT / "csrc" / "cpu")]
    cuda = [SYSTEM, str(cuda_include())]
    library = Extension(
        "tileops.libtileops",
        sources("core", "torch"),
        include_dirs=own,
        depends=headers(),
        extra_compile_args={"cxx": [*FLAGS, *cuda, SYSTEM, str(torch_folder() / "include")]},
        library_dirs=[str(torch_folder() / "lib")],
        libraries=["torch_cpu", "c10"],
        extra_link_args=["-Wl,-soname,libtileops.so", "-Wl,--no-undefined", "-Wl,-z,defs"],
        language="c++",
    )
    binding = Extension(
        "tileops._C",
        sources("python"),
        include_dirs=own,
        depends=headers(),
        extra_compile_args={"cxx": [*FLAGS, *cuda, SYSTEM, str(pybind_include())]},
        libraries=["tileops"],
        extra_link_args=["-Wl,-rpath,$ORIGIN"],
        language="c++",
    )
    return [library, binding]


class Build(BuildExtension):  # type: ignore[misc]
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
setup(ext_modules=extensions(), cmdclass={"build_ext": Build, "build_py": BuildPy})

"""Where NVRTC and CUDA's headers are: in wheels, beside torch, or in a toolkit."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from tileops import settings
from tileops.errors import ToolchainError

_TOOLKIT = Path("/usr/local/cuda")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


def library(what: str = "compiling CUDA C++") -> Path:
    """The NVRTC to compile with: that of ``TILEOPS_NVRTC``, of a wheel, of torch, of a toolkit.

    ToolchainError without one, which ``what`` needs.
    """
    chosen = settings.current().nvrtc
    if chosen is not None:
        path = Path(chosen)
        if not path.is_file():
            raise ToolchainError(f"TILEOPS_NVRTC={chosen} is not a file: expected libnvrtc.so")
        return path
    found = [f / name for f in _folders("lib", "lib64") for name in _NAMES if (f / name).is_file()]
    if found:
        # Headers of CUDA 13 need what is built into NVRTC 13.
        majors = {_major_of_headers(folder) for folder in _all_header_folders()}
        return min(found, key=lambda path: _major(path) not in majors)
    raise ToolchainError(
        f"{what} needs NVRTC 12 or 13, which was not found: pip install "
        "nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12, or name the file libnvrtc.so in "
        "TILEOPS_NVRTC"
    )


def header_folders() -> tuple[Path, ...]:
    """The folders with CUDA's own headers, the first to win: those of the library's CUDA first."""
    try:
        wanted = _major(library())
    except ToolchainError:  # the compile says so
        wanted = None
    folders = _all_header_folders()
    return tuple(sorted(folders, key=lambda folder: _major_of_headers(folder) != wanted))


def _major(path: Path) -> int | None:
    """13 for ``libnvrtc.so.13``."""
    match = re.search(r"\.so\.(\d+)", path.resolve().name)
    return int(match.group(1)) if match else None


@cache
def _major_of_headers(folder: Path) -> int | None:
    for place in (folder, folder.parent):  # include/cccl goes with include
        with suppress(OSError):
            text = (place / "cuda.h").read_text(errors="replace")
            if match := re.search(r"#define CUDA_VERSION (\d+)", text):
                return int(match.group(1)) // 1000
    return None


def _all_header_folders() -> tuple[Path, ...]:
    found = [folder for folder in _folders("include", "include/cccl") if _has_headers(folder)]
    for package in _places("triton"):
        found.append(package / "backends" / "nvidia" / "include")
    return tuple(folder for folder in found if folder.is_dir())


def _folders(*names: str) -> Iterator[Path]:
    for package in _places("nvidia"):
        for part in sorted(package.iterdir()):  # cu13 before cuda_nvrtc
            yield from (part / name for name in names)
    for package in _places("torch"):
        yield from (package / name for name in names)
    yield from (_TOOLKIT / name for name in names)


def _places(package: str) -> list[Path]:
    """The folders of a package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    places = (spec.submodule_search_locations if spec is not None else None) or []
    return [Path(place) for place in places if Path(place).is_dir()]


def _has_headers(folder: Path) -> bool:
    return (folder / "cuda_fp16.h").is_file() or (folder / "cuda" / "std").is_dir()

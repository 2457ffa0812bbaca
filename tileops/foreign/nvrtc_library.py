"""Where NVRTC and CUDA's headers are: in wheels, beside torch, or in a toolkit."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
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
    for folder in _folders("lib", "lib64"):
        for name in _NAMES:
            if (folder / name).is_file():
                return folder / name
    raise ToolchainError(
        f"{what} needs NVRTC 12 or 13, which was not found: pip install "
        "nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12, or name the file libnvrtc.so in "
        "TILEOPS_NVRTC"
    )


def header_folders() -> tuple[Path, ...]:
    """The folders with CUDA's own headers that exist, the first to win."""
    found = [folder for folder in _folders("include", "include/cccl") if _has_headers(folder)]
    for package in _places("triton"):
        found.append(package / "backends" / "nvidia" / "include")
    return tuple(folder for folder in found if folder.is_dir())


def _folders(*names: str) -> Iterator[Path]:
    for package in _places("nvidia"):
        for part in sorted(package.iterdir(), reverse=True):  # cu13 before cuda_nvrtc
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

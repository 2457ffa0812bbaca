"""What the two binaries are made of: sources, headers and flags, for every way to build them."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = [
    "-std=c++17", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden",
    "-include", str(ROOT / "csrc" / "oldest" / "libc.h"),
]  # fmt: skip
# The warnings of other projects' headers are not ours to mend.
SYSTEM = "-isystem"
INCLUDE = [str(ROOT / "csrc"), str(ROOT / "csrc" / "cpu")]
LIBRARY_LINK = ["-Wl,-soname,libtileops.so", "-Wl,--no-undefined", "-Wl,-z,defs"]
BINDING_LINK = ["-Wl,-rpath,$ORIGIN"]
TORCH_HEADER = ROOT / "csrc" / "torch" / "torch_abi.h"


def sources(*folders: str) -> list[str]:
    """The C++ files in folders of csrc, relative to the root."""
    found = [path for folder in folders for path in sorted((ROOT / "csrc" / folder).glob("*.cpp"))]
    return [str(path.relative_to(ROOT)) for path in found]


LIBRARY = sources("core", "torch", "oldest")
BINDING = sources("python", "oldest")


def headers() -> list[str]:
    """All headers of csrc, relative to the root."""
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "csrc").glob("*/*.h"))]


def package_folder(name: str) -> Path | None:
    """Where the installed package ``name`` is; it is not imported."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else None


def pybind_include() -> Path:
    """The folder of pybind11's headers: pip's own, else a copy of torch's without the rest."""
    own = package_folder("pybind11")
    if own is not None and (own / "include" / "pybind11").is_dir():
        return own / "include"
    torch = package_folder("torch")
    if torch is None:
        raise SystemExit("tileops: pybind11 was not found; pip install pybind11")
    # torch's include folder itself would put torch's headers on the path of a file that may not
    # use them.
    copy = ROOT / "build" / "pybind11"
    shutil.copytree(torch / "include" / "pybind11", copy / "pybind11", dirs_exist_ok=True)
    return copy


def pybind_version(include: Path) -> str:
    """The version that pybind11's headers say."""
    text = (include / "pybind11" / "detail" / "common.h").read_text()
    found = dict(re.findall(r"#\s*define PYBIND11_VERSION_(MAJOR|MINOR|MICRO|PATCH) (\S+)", text))
    last = found.get("PATCH") or found.get("MICRO") or "0"
    return f"{found['MAJOR']}.{found['MINOR']}.{last}"

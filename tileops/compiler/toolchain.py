"""The identity of the toolchain: what makes an artifact, by version and content, never by path."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path

from tileops import cxx
from tileops.compiler import cxx_identity
from tileops.errors import ToolchainError
from tileops.target import Target

_DISTRIBUTIONS = ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm")
_LIBRARY = "_C/libtriton.so"
# The parts of Triton that turn a program into the text its assembler takes, beside its library.
_SOURCES = ("compiler", "language", "runtime", "backends/{kind}")


@dataclass(frozen=True)
class Toolchain:
    """``versions`` is a key's part: tool to version and content. While ``files`` stay, so do they.

    ``is_settled`` is False where other files may decide too, so that the tools are to be asked
    again at the next look.
    """

    versions: dict[str, str]
    files: tuple[Path, ...]
    is_settled: bool


def toolchain_of(target: Target, hash_of: Callable[[Path], str] | None = None) -> Toolchain:
    """The tools that code for ``target`` goes through; imports no compiler.

    ``hash_of`` gives the hash of a file's content, by default computed once while the file stays.
    ToolchainError where a tool is missing.
    """
    hash_of = hash_of or _known_hash
    if target.kind == "cpu":
        found = cxx_identity.composition(cxx.command(target))
        return Toolchain(found.identity(hash_of), found.files, not found.is_wrapper)
    package = _package()
    versions = {"triton": f"{triton_version()} {_triton_content(package, target, hash_of)}"}
    files = [package / "__init__.py", package / _LIBRARY, *_folders(package, target)]
    files += _sources(package, target)
    if target.kind == "cuda":
        assemblers = _assemblers(package)
        versions["ptxas"] = " ".join(hash_of(path) for path in assemblers)
        files += [assemblers[0].parent, *assemblers]
    return Toolchain(versions, tuple(path for path in files if path.exists()), True)


def toolchain_versions(target: Target) -> dict[str, str]:
    """The ``versions`` of ``toolchain_of``."""
    return toolchain_of(target).versions


def triton_version() -> str:
    """The version of the installed Triton; ToolchainError if there is none."""
    return _distribution().version


def _distribution() -> metadata.Distribution:
    for name in _DISTRIBUTIONS:
        try:
            return metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
    raise ToolchainError(
        "compiling for a GPU needs Triton 3.6 to 3.9, which is not installed: pip install triton"
    )


def _package() -> Path:
    spec = util.find_spec("triton")
    if spec is None or spec.origin is None:
        _distribution()  # says so if it is not installed at all
        raise ToolchainError("Triton's package folder was not found; reinstall triton")
    return Path(spec.origin).parent


def _triton_content(package: Path, target: Target, hash_of: Callable[[Path], str]) -> str:
    total = hashlib.sha256()
    for path in _sources(package, target):
        content = hashlib.sha256(_read(path)).hexdigest()
        total.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    library = package / _LIBRARY
    if library.exists():
        total.update((_recorded_hash(package) or hash_of(library)).encode())
    return total.hexdigest()[:32]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolchainError(f"{path} could not be read: {error.strerror}") from error


def _folders(package: Path, target: Target) -> list[Path]:
    kind = {"cuda": "nvidia", "hip": "amd"}[target.kind]
    return [package / name.format(kind=kind) for name in _SOURCES]


def _sources(package: Path, target: Target) -> list[Path]:
    return [path for f in _folders(package, target) for path in sorted(f.glob("*.py"))]


def _recorded_hash(package: Path) -> str | None:
    """The hash of Triton's library as its installer recorded it, if it is the installed file.

    The library has half a gigabyte; to read it takes longer than a compile. A build in place is in
    no record, or has another size.
    """
    found = _distribution()
    name = f"triton/{_LIBRARY}"
    if os.path.realpath(str(found.locate_file(name))) != os.path.realpath(package / _LIBRARY):
        return None
    for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
        if len(row) == 3 and row[0] == name and row[1].startswith("sha256="):
            is_same = row[2] == str((package / _LIBRARY).stat().st_size)
            text = row[1].partition("=")[2]
            digest = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()
            return digest[:32] if is_same else None
    return None


def _assemblers(package: Path) -> list[Path]:
    """Those that Triton may call, which differ by version and architecture."""
    folder = package / "backends" / "nvidia" / "bin"
    found = [path for name in ("ptxas", "ptxas-blackwell") if (path := folder / name).is_file()]
    if not found:
        raise ToolchainError(f"Triton's assembler is missing from {folder}; reinstall triton")
    return found


def _known_hash(path: Path) -> str:
    try:
        found = path.stat()
    except OSError as error:
        raise ToolchainError(f"{path} could not be read: {error.strerror}") from error
    stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return _hash_of(path, stamp)


@lru_cache(maxsize=32)
def _hash_of(path: Path, stamp: tuple[int, ...]) -> str:
    del stamp  # while it stays, the content does
    return cxx_identity.content_hash(path)

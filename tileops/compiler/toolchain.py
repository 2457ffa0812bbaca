"""The tools that make an artifact: their files, and their identity by version and content.

A key holds versions and contents, never a path of this machine. Asking imports no compiler.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from tileops import cxx, forks, settings
from tileops.errors import ToolchainError
from tileops.target import Target


@dataclass(frozen=True)
class Toolchain:
    """``versions`` is a key's part: tool to version and content. While ``files`` stay, so do they.

    ``files`` are paths as found, links not resolved, and folders whose names count. ``is_settled``
    is False where other files may decide too: a wrapper (ccache, a script, ``env``) runs another
    compiler, which can change while the files that are known here do not. Ask it at each look-up.
    """

    versions: dict[str, str]
    files: tuple[Path, ...]
    is_settled: bool


def toolchain_of(target: Target, hash_of: Callable[[Path], str]) -> Toolchain:
    """The tools that code for ``target`` goes through; ToolchainError if one is missing.

    ``hash_of`` gives the hash of a file's content.
    """
    if target.kind == "cpu":
        return _cxx_toolchain(cxx.command(target), hash_of)
    return _triton_toolchain(target, hash_of)


def content_hash(path: Path) -> str:
    """32 hexadecimal digits of the SHA-256 of a file; ToolchainError if it is unreadable."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise ToolchainError(f"{path} could not be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


# -- C++ ---------------------------------------------------------------------------------------
# The driver only calls these. They may change without it: binutils is another package.
_PROGRAMS = ("cc1plus", "collect2", "as", "ld")
_VERSION = re.compile(r"\d+(\.\d+)*\S*")
_ASK_SECONDS = 60


def _cxx_toolchain(words: Sequence[str], hash_of: Callable[[Path], str]) -> Toolchain:
    """What the compiler ``words``, an absolute path and arguments, consists of, as it answers.

    The arguments that TILEOPS_CXX adds may be flags, so they are in the key.
    """
    driver = Path(words[0])
    version = _version(words)
    named = [_asked(words, f"-print-prog-name={name}")[0].strip() for name in _PROGRAMS]
    programs = [_located(text) for text in named]
    compiler = _own_name(_asked(words, "-v")[1])
    found = [driver, *(path for path in (*programs, compiler) if path is not None)]
    files = tuple(dict.fromkeys(found))
    contents = sorted({hash_of(path) for path in files})
    digest = hashlib.sha256(" ".join(contents).encode()).hexdigest()[:32]
    versions = {"g++": f"{version} {digest}"}
    if words[1:]:
        versions["arguments"] = "\n".join(words[1:])
    is_wrapper = _is_script(driver) or compiler is None or not _is_same(driver, compiler)
    return Toolchain(versions, files, not is_wrapper)


def first_line(words: Sequence[str]) -> str:
    """What the C++ compiler calls itself, for people; ToolchainError if it cannot be run."""
    return (_asked(words, "--version")[0].splitlines() or ["no version"])[0]


def _version(words: Sequence[str]) -> str:
    out, err = _asked(words, "-dumpfullversion", "-dumpversion")
    found = out.split()
    if not found or _VERSION.fullmatch(found[0]) is None:
        said = (err or out).strip()
        raise ToolchainError(
            f"{words[0]} does not tell its version{cxx.origin()}: expected a C++ compiler, such as "
            f"g++, and it said {said[:200]!r}"
        )
    return found[0]


def _asked(words: Sequence[str], *questions: str) -> tuple[str, str]:
    """What the compiler writes on stdout, and on stderr what it does not understand."""
    try:
        done = forks.run_process(
            [*words, *questions],
            cwd="/",
            env=settings.compiler_environment("/tmp"),  # nothing is written
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(
            f"{words[0]} could not be asked for its version{cxx.origin()}: {error}"
        ) from error
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def _located(text: str) -> Path | None:
    """The file of a program that the compiler names: a path, or a name to look up on PATH."""
    found = settings.find_program(text) if text else None
    return None if found is None else Path(found)


def _own_name(text: str) -> Path | None:
    """The file that runs, as ``-v`` tells it: gcc tells its own name, clang its folder."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "COLLECT_GCC":
            return _located(value.strip())
        if line.startswith("InstalledDir: "):
            return Path(line.partition(": ")[2].strip(), "clang++")
    return None


def _is_same(driver: Path, compiler: Path) -> bool:
    real = os.path.realpath(driver)
    if compiler.name == "clang++":  # InstalledDir is the folder of the link or that of the file
        return os.path.realpath(compiler.parent) in (
            os.path.realpath(driver.parent),
            os.path.dirname(real),  # noqa: PTH120
        )
    return os.path.realpath(compiler) == real


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True  # cannot be read, only run: nothing is known of it


# -- Triton ------------------------------------------------------------------------------------
_DISTRIBUTIONS = ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm")
_LIBRARY = "_C/libtriton.so"
_BLACKWELL = 100
# The parts of Triton that turn a program into the text its assembler takes, beside its library.
# Gluon is for NVIDIA's Hopper here.
_SOURCES = (
    "compiler",
    "language",
    "runtime",
    "backends/{kind}",
    "experimental/gluon",
    "experimental/gluon/language",
    "experimental/gluon/language/nvidia/ampere",
    "experimental/gluon/language/nvidia/hopper",
)


def _triton_toolchain(target: Target, hash_of: Callable[[Path], str]) -> Toolchain:
    package = _package()
    kind = {"cuda": "nvidia", "hip": "amd"}[target.kind]
    folders = [package / name.format(kind=kind) for name in _SOURCES]
    sources = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    library = package / _LIBRARY
    total = hashlib.sha256()
    for path in sources:
        content = hashlib.sha256(_read(path)).hexdigest()
        total.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    if library.exists():
        total.update((_recorded_hash(library) or hash_of(library)).encode())
    versions = {"triton": f"{triton_version()} {total.hexdigest()[:32]}"}
    files = [package / "__init__.py", library, *folders, *sources]
    if target.kind == "cuda":
        assemblers = _assemblers(package)
        versions["ptxas"] = " ".join(hash_of(path) for path in assemblers)
        files += [assemblers[0].parent, *assemblers]
    return Toolchain(versions, tuple(path for path in files if path.exists()), True)


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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolchainError(f"{path} could not be read: {error.strerror}") from error


def _recorded_hash(library: Path) -> str | None:
    """The hash of Triton's library as its installer recorded it, if it is the installed file.

    The library has half a gigabyte; to read it takes longer than a compile. A build in place is in
    no record, or has another size.
    """
    found = _distribution()
    name = f"triton/{_LIBRARY}"
    if os.path.realpath(str(found.locate_file(name))) != os.path.realpath(library):
        return None
    for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
        if len(row) == 3 and row[0] == name and row[1].startswith("sha256="):
            text = row[1].partition("=")[2]
            digest = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()
            return digest[:32] if row[2] == str(library.stat().st_size) else None
    return None


def assembler(target: Target) -> Path:
    """The assembler for ``target``; ToolchainError if there is none."""
    found = _assemblers(_package())
    return found[-1 if target.capability >= _BLACKWELL else 0]


def _assemblers(package: Path) -> list[Path]:
    """Those that Triton may call, which differ by version and architecture."""
    folder = package / "backends" / "nvidia" / "bin"
    found = [path for name in ("ptxas", "ptxas-blackwell") if (path := folder / name).is_file()]
    if not found:
        raise ToolchainError(f"Triton's assembler is missing from {folder}; reinstall triton")
    return found

"""What a C++ compiler consists of: its version, and the files that turn text into machine code."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tileops import cxx, forks, settings
from tileops.errors import ToolchainError

# The driver only calls these. They may change without it: binutils is another package.
_PROGRAMS = ("cc1plus", "collect2", "as", "ld")
_VERSION = re.compile(r"\d+(\.\d+)*\S*")
_ASK_SECONDS = 60
_HEAD = 2  # bytes of a script's "#!"


@dataclass(frozen=True)
class Composition:
    """A compiler as it answered. ``files`` are the paths of its parts, links not resolved.

    ``is_wrapper``: the command runs another compiler (ccache, a script, ``env``), which can change
    while the files that are known here do not.
    """

    version: str
    arguments: tuple[str, ...]
    files: tuple[Path, ...]
    is_wrapper: bool

    def identity(self, hash_of: Callable[[Path], str]) -> dict[str, str]:
        """The part of a cache key: version and content, never a path of this machine.

        ``hash_of`` gives the hash of a file's content. Arguments that TILEOPS_CXX adds are part of
        it: they may be flags.
        """
        contents = sorted({hash_of(path) for path in self.files})
        digest = hashlib.sha256(" ".join(contents).encode()).hexdigest()[:32]
        found = {"g++": f"{self.version} {digest}"}
        if self.arguments:
            found["arguments"] = "\n".join(self.arguments)
        return found


def composition(words: Sequence[str]) -> Composition:
    """Ask the compiler ``words``, an absolute path and arguments, what it consists of.

    ToolchainError if it cannot be run or does not answer like a compiler.
    """
    driver = Path(words[0])
    version = _version(words)
    named = [_asked(words, f"-print-prog-name={name}")[0].strip() for name in _PROGRAMS]
    programs = [_located(text) for text in named]
    compiler = _own_name(_asked(words, "-v")[1])
    files = [driver, *(path for path in (*programs, compiler) if path is not None)]
    is_wrapper = _is_script(driver) or compiler is None or not _is_same(driver, compiler)
    return Composition(version, tuple(words[1:]), tuple(dict.fromkeys(files)), is_wrapper)


def first_line(words: Sequence[str]) -> str:
    """What the compiler calls itself, for people; ToolchainError if it cannot be run."""
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
    """What the compiler writes on stdout and stderr; what it does not understand it says there."""
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
    """The file of a program that the compiler named: by its path, or to be found like a command."""
    found = settings.find_program(text) if text else None
    return None if found is None else Path(found)


def _own_name(text: str) -> Path | None:
    """The file that runs, as ``-v`` tells it: gcc its own name, clang the folder it lies in."""
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
            return file.read(_HEAD) == b"#!"
    except OSError:
        return True  # cannot be read, only run: nothing is known of it


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

"""The C++ compiler for a target: the one that TILEOPS_CXX names, or g++ on the path."""

from __future__ import annotations

from pathlib import Path

from tileops import settings
from tileops.errors import ToolchainError
from tileops.target import Target, host_cpu_level

INSTALL = (
    "compiling for the CPU needs g++ 11 or newer (Debian, Ubuntu: apt install g++; "
    "Fedora: dnf install gcc-c++; conda: conda install -c conda-forge gxx), or TILEOPS_CXX naming "
    "another compiler"
)


def include_folder() -> Path:
    """The folder of the headers that kernels include: in the package or in ``csrc/cpu``."""
    package = Path(__file__).resolve().parent
    installed = package / "include"
    return installed if installed.is_dir() else package.parent / "csrc" / "cpu"


def command(target: Target) -> list[str]:
    """The compiler for ``target`` as an argument list: an absolute path, then arguments.

    The path is not resolved: a compiler may go by the name that it was called by. ToolchainError
    saying what to install if there is none, or naming TILEOPS_CXX if that names none.
    """
    named = settings.current().cxx
    words = [_default_name(target)] if named is None else _words(named)
    found = settings.find_program(words[0])
    if found is not None:
        return [found, *words[1:]]
    if named is not None:
        raise ToolchainError(f"the compiler that TILEOPS_CXX names was not found: {named}")
    if words[0] != "g++":
        raise ToolchainError(
            f"compiling for {target} on this machine needs the cross compiler {words[0]}, or "
            "TILEOPS_CXX naming one"
        )
    raise ToolchainError(f"g++ was not found; {INSTALL}")


def _words(named: str) -> list[str]:
    import shlex  # only where a setting names a compiler

    try:
        words = shlex.split(named)
    except ValueError as error:
        raise ToolchainError(
            f"TILEOPS_CXX={named!r} is not a command: {error}; expected a compiler, such as "
            "g++-12, and perhaps arguments"
        ) from None
    if not words or not words[0]:
        raise ToolchainError(f"TILEOPS_CXX={named!r} names no compiler; expected one, such as g++")
    return words


def origin() -> str:
    """Words for errors: where the compiler's name came from."""
    named = settings.current().cxx
    return "" if named is None else f" (TILEOPS_CXX={named!r})"


def _default_name(target: Target) -> str:
    host = "aarch64" if host_cpu_level() == "aarch64" else "x86_64"
    wanted = "aarch64" if target.arch == "aarch64" else "x86_64"
    return "g++" if host == wanted else f"{wanted}-linux-gnu-g++"

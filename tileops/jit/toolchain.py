"""Owns the toolchain's part of a key at a warm start: recalled, so that no compiler is imported.

Asking the compilers means importing them, hashing an assembler and starting g++. What they said is
remembered beside the cache while the files they said it of stay the same.
"""

from __future__ import annotations

import importlib.util
import os
import shutil

from tileops import settings
from tileops.cache import memo
from tileops.target import Target, host_cpu_level


def versions(target: Target) -> dict[str, str]:
    """The tools that code for ``target`` goes through: name to version and content.

    ToolchainError where one is missing and was never seen here.
    """
    name, choice = f"toolchain of {target}", _choice(target)
    known = memo.recall(name, choice)
    if isinstance(known, dict):
        return known
    from tileops.compiler import toolchain_files, toolchain_versions

    found = toolchain_versions(target)
    memo.remember(name, choice, toolchain_files(target), found)
    return found


def _choice(target: Target) -> list[str | None]:
    """What decides which files the tools are, found without their help."""
    if target.kind != "cpu":
        spec = importlib.util.find_spec("triton")
        return [spec.origin if spec is not None else None]
    named = settings.current().cxx
    architecture = "aarch64" if target.arch == "aarch64" else "x86_64"
    is_own = (architecture == "aarch64") == (host_cpu_level() == "aarch64")
    default = "g++" if is_own else f"{architecture}-linux-gnu-g++"
    return [named, _where(_first_word(named) or default, settings.search_path())]


def _first_word(command: str | None) -> str:
    if not command or not command.strip():
        return ""
    import shlex  # only where a setting names a compiler

    return shlex.split(command)[0]


def _where(name: str, path: str) -> str | None:
    # Looking through the folders of the path costs as much as all the rest of a key. What was found
    # is believed while it is there; what was not found may have been installed since.
    found = _found.get((name, path))
    if found is None or not os.access(found, os.X_OK):
        found = shutil.which(name, path=path)
        if found is not None:
            _found[name, path] = found
    return found


_found: dict[tuple[str, str], str] = {}

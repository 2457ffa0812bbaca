"""The versions of compilers and assemblers that a key contains, remembered between processes.

Asking the compilers means importing them, hashing an assembler and starting g++. So their answers
are kept beside the cache while the files that they speak of stay the same.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tileops import cxx, settings
from tileops.cache import memo
from tileops.target import Target

if TYPE_CHECKING:
    from tileops.compiler import Toolchain


def of(target: Target) -> dict[str, str]:
    """The tools for ``target`` now, name to version and content; or ToolchainError."""
    name, choice = f"toolchain of {target}", _choice(target)
    known = memo.recall(name, choice)
    if isinstance(known, dict):
        return known
    from tileops.compiler import toolchain_of

    began = time.time()
    found: Toolchain = toolchain_of(target, _hash_of)
    if found.is_settled:
        memo.remember(name, choice, found.files, found.versions, began=began)
    return found.versions


def _hash_of(path: Path) -> str:
    # Remembered apart from the answers: a wrapper is asked each time, and hashing the program that
    # it calls takes much longer than asking.
    known = memo.recall("content", str(path))
    if isinstance(known, str):
        return known
    from tileops.compiler import content_hash

    began = time.time()
    found: str = content_hash(path)
    memo.remember("content", str(path), [path], found, began=began)
    return found


def _choice(target: Target) -> list[str | None]:
    """The paths that decide which files the tools are, found without asking the tools."""
    if target.kind != "cpu":
        spec = importlib.util.find_spec("triton")
        return [spec.origin if spec is not None else None]
    # g++ looks for its assembler and its linker on the path.
    programs = [settings.find_program(name) for name in ("as", "ld")]
    return [*cxx.command(target), *programs]

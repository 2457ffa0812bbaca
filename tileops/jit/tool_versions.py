"""The versions of compilers and assemblers that a key contains, remembered between processes.

Asking the compilers means importing them, hashing an assembler and starting g++. So their answers
are kept beside the cache while the files that they speak of stay the same.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tileops import cxx, settings
from tileops.cache import memo
from tileops.foreign.nvrtc_library import library
from tileops.ir.program import Program
from tileops.ir.stmt import Threads
from tileops.target import Target

if TYPE_CHECKING:
    from tileops.compiler import Toolchain


def of(target: Target) -> dict[str, str]:
    """The tools for ``target`` now, name to version and content; or ToolchainError."""

    def ask() -> Toolchain:
        from tileops.compiler import toolchain_of

        return toolchain_of(target, _hash_of)

    return _remembered(f"toolchain of {target}", _choice(target), ask)


def of_program(program: Program, target: Target) -> dict[str, str]:
    """The tools that code of ``program`` goes through: those of its foreign kernels' languages."""
    languages = {extern.language for extern in program.externs}
    found: dict[str, str] = {}
    if program.launches or not languages <= {"cuda", "ptx", "cubin"} or not languages:
        found |= of(target)
    if "ptx" in languages:
        found["ptxas"] = of(target)["ptxas"]
    if "cuda" in languages or (target.kind == "cuda" and _has_threads(program)):
        found |= _nvrtc(library(f"op {program.name}: compiling CUDA C++"))
    return found


def _has_threads(program: Program) -> bool:
    """True if a launch is of threads, whose text NVRTC compiles."""
    return any(isinstance(stmt, Threads) for launch in program.launches for stmt in launch.body)


def _nvrtc(path: Path) -> dict[str, str]:
    def ask() -> Toolchain:
        from tileops.compiler import nvrtc

        return nvrtc.toolchain(path, _hash_of)

    return _remembered("toolchain of CUDA C++", [str(path)], ask)


def _remembered(
    name: str, choice: Sequence[str | None], ask: Callable[[], Toolchain]
) -> dict[str, str]:
    known = memo.recall(name, list(choice))
    if isinstance(known, dict):
        return known
    began = time.time()
    found = ask()
    if found.is_settled:
        memo.remember(name, list(choice), found.files, found.versions, began=began)
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

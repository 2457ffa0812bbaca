"""Owns disassembly: cubin bytes to text through NVIDIA's tools, where they are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tileops import forks, settings
from tileops.cache import staging
from tileops.errors import ToolchainError


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin.

    ToolchainError where neither ``nvdisasm`` nor ``cuobjdump`` is found, or the tool fails.
    """
    command = _command()
    with staging.temporary("sass") as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        done = forks.run_process(
            [*command, str(path)],
            capture_output=True,
            text=True,
            env=settings.compiler_environment(str(folder)),
        )
    if done.returncode != 0:
        raise ToolchainError(f"{command[0]} failed: {done.stderr.strip()}")
    return str(done.stdout)


def _command() -> list[str]:
    for name, arguments in (("nvdisasm", ["-c"]), ("cuobjdump", ["-sass"])):
        found = settings.find_program(name) or _beside_triton(name)
        if found is not None:
            return [found, *arguments]
    raise ToolchainError(
        "no disassembler: install the CUDA toolkit's nvdisasm or cuobjdump (triton brings both)"
    )


def _beside_triton(name: str) -> str | None:
    spec = importlib.util.find_spec("triton")  # located, not imported
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "backends" / "nvidia" / "bin" / name
        if path.is_file():
            return str(path)
    return None

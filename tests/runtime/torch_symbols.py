"""Which functions torch's stable C interface has in a version, read from the installed headers.

Run as a program, it writes the list that the tests compare the library with:

    python -m tests.runtime.torch_symbols

The preprocessor takes the two headers of the interface with the version as TORCH_TARGET_VERSION, so that what later
versions added falls away by torch's own guards (TORCH_FEATURE_VERSION); what is left are declarations, and those of
functions that torch exports as C are kept.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import torch

LIST = Path(__file__).with_name("torch_2_10_symbols.txt")
TORCH_2_10 = "0x020a000000000000"
HEADERS = ("torch/csrc/inductor/aoti_torch/c/shim.h", "torch/csrc/stable/c/shim.h")


def declared(version: str = TORCH_2_10) -> list[str]:
    """Names of the functions that the headers declare for a program that targets ``version``."""
    include = Path(torch.__file__).parent / "include"
    done = subprocess.run(
        [shutil.which("g++") or "g++", "-E", "-P", "-x", "c++", "-std=c++17", f"-DTORCH_TARGET_VERSION={version}",
         "-isystem", str(include), "-"],
        input="".join(f"#include <{header}>\n" for header in HEADERS), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(set(re.findall(r"\b((?:aoti_torch|torch)_[a-z0-9_]+)\s*\(", done.stdout)))


def listed() -> list[str]:
    """The names in the list."""
    return [line for line in LIST.read_text().splitlines() if not line.startswith("#")]


if __name__ == "__main__":
    head = (
        "# Functions of torch 2.10's stable C interface; made by tests/runtime/torch_symbols.py.\n"
    )
    LIST.write_text(head + "".join(f"{name}\n" for name in declared()))

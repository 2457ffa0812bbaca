"""A stand-in for torch's library, to link against where torch is not installed.

It has the names of the functions that ``csrc/torch/torch_abi.h`` declares, and no code. The linker
needs no more: what a process loads is torch itself.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

LIBRARY = "torch_cpu"


def names(header: str) -> list[str]:
    """The functions that the text of a header declares."""
    found = re.findall(r"\b((?:aoti_torch|torch)_\w+)\(", header)
    return sorted(set(found))


def write(folder: Path, header: Path, cxx: str) -> None:
    """Write the library into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [cxx, "-shared", "-fPIC", f"-Wl,-soname,lib{LIBRARY}.so", "-x", "c", "-",
         "-o", str(folder / f"lib{LIBRARY}.so")],
        input="".join(f"void {name}(void) {{}}\n" for name in names(header.read_text())),
        text=True, check=True,
    )  # fmt: skip

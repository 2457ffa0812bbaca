"""Which glibc and libstdc++ a binary needs, read from the versions of its symbols."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PLATFORM = "manylinux_2_28"
# What that platform has: glibc 2.28 and the libraries of GCC 8.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7,)}


def too_new(binary: Path) -> list[str]:
    """The symbols of ``binary`` that the platform lacks, with their versions."""
    done = subprocess.run(
        ["nm", "-D", "--undefined-only", str(binary)], capture_output=True, text=True, check=True
    )
    found = []
    for name, family, version in re.findall(
        r"(\w+)@([A-Z]+)_([0-9.]+)$", done.stdout, re.MULTILINE
    ):
        numbers = tuple(map(int, version.split(".")))
        newest = NEWEST.get(family)
        if newest is None or numbers > newest:
            found.append(f"{name}@{family}_{version}")
    return found


def require(folder: Path) -> None:
    """Exit with the symbols that the platform lacks, if a library in ``folder`` needs any."""
    for binary in sorted(folder.rglob("*.so")):
        symbols = too_new(binary)
        if symbols:
            raise SystemExit(
                f"{binary.name} does not load on {PLATFORM}: it needs {', '.join(symbols)}; build "
                "it with an older compiler, or add them to csrc/oldest"
            )

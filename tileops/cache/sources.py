"""Owns the digest of tileops' own code generators, a field of every cache key.

A build writes the digest into ``_sources_digest.py`` (setup.py calls ``write_module``); a
development install has no such file and hashes the sources when first asked.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
from pathlib import Path

# What decides which text and which machine code comes out of a given IR. csrc/cpu holds the headers
# that generated CPU kernels include; a wheel carries them as include/.
PACKAGE_FOLDERS = ("ir", "passes", "codegen", "compiler")
_SUFFIXES = (".py", ".h", ".hpp", ".inc")
_MODULE = "tileops.cache._sources_digest"


def compute(package: Path, headers: Path) -> str:
    """SHA-256 over names and contents of the generator sources; paths and times do not matter.

    ``package`` is the folder of the package ``tileops``, ``headers`` that of the CPU headers.
    """
    roots = [(name, package / name) for name in PACKAGE_FOLDERS] + [("include", headers)]
    total = hashlib.sha256()
    for label, root in roots:
        files = sorted(
            (path.relative_to(root).as_posix(), path)
            for path in root.rglob("*")
            if path.suffix in _SUFFIXES and path.is_file()
        )
        for name, path in files:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{label}/{name} {content}\n".encode())
    return total.hexdigest()


@functools.cache
def digest() -> str:
    """The digest of the generators that this process runs: 64 hexadecimal digits."""
    if importlib.util.find_spec(_MODULE) is not None:
        return str(importlib.import_module(_MODULE).DIGEST)
    package = Path(__file__).resolve().parent.parent
    return compute(package, headers_folder(package))


def headers_folder(package: Path) -> Path:
    """Where the CPU headers lie: in the package when installed, in ``csrc/cpu`` of a checkout."""
    installed = package / "include"
    return installed if installed.is_dir() else package.parent / "csrc" / "cpu"


def write_module(target: Path, package: Path, headers: Path) -> None:
    """Write the digest of these sources as the module file ``target`` (called by the build)."""
    target.write_text(
        '"""Owns the digest of the code generators, as the build found them."""\n\n'
        f'DIGEST = "{compute(package, headers)}"\n',
        encoding="ascii",
    )

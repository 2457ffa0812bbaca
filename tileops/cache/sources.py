"""Owns the digest of tileops' own code generators, a field of every cache key.

A build writes the digest into ``_sources_digest.py`` (setup.py calls ``write_module``); a
development install has no such file and hashes the sources when first asked.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import time
from collections.abc import Iterator
from pathlib import Path

# What decides which text and which machine code comes out of a given IR. csrc/cpu holds the headers
# that generated CPU kernels include; a wheel carries them as include/.
PACKAGE_FOLDERS = ("ir", "passes", "codegen", "compiler")
# The form of an entry on disk. It is in the digest, and so in every key: two versions of the
# package that write entries differently can share a directory, and neither takes the other's for
# damaged.
ENTRY_FORMAT = 2
_SUFFIXES = (".py", ".h", ".hpp", ".inc")
_MODULE = "tileops.cache._sources_digest"
# A file written twice within one tick of the file system's clock has one time of change.
_SETTLED_SECONDS = 2.0


def compute(package: Path, headers: Path) -> str:
    """SHA-256 over names and contents of the generator sources; paths and times do not matter.

    ``package`` is the folder of the package ``tileops``, ``headers`` that of the CPU headers.
    """
    roots = [(name, package / name) for name in PACKAGE_FOLDERS] + [("include", headers)]
    total = hashlib.sha256(f"entry format {ENTRY_FORMAT}\n".encode())
    for label, root in roots:
        for name, entry in sorted(_files(root), key=lambda file: file[0]):
            content = hashlib.sha256(Path(entry.path).read_bytes()).hexdigest()
            total.update(f"{label}/{name} {content}\n".encode())
    return total.hexdigest()


def _files(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    pending = [(str(root), "")]
    while pending:
        folder, prefix = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIXES):
                    yield prefix + entry.name, entry
                elif entry.name != "__pycache__" and entry.is_dir():
                    pending.append((entry.path, f"{prefix}{entry.name}/"))


def stamps(package: Path, headers: Path) -> tuple[str, float]:
    """A digest of names, sizes, inodes and times of change, and the latest of these times.

    While it stays, so does ``compute``; taking it costs a tenth.
    """
    lines, latest = [], 0
    for root in (*(package / name for name in PACKAGE_FOLDERS), headers):
        for name, entry in _files(root):
            found = entry.stat()
            changed = found.st_ctime_ns
            if changed > latest:
                latest = changed
            lines.append(f"{name} {found.st_size} {found.st_ino} {changed}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest(), latest * 1e-9


@functools.cache
def digest() -> str:
    """The digest of the generators that this process runs: 64 hexadecimal digits."""
    if importlib.util.find_spec(_MODULE) is not None:
        return str(importlib.import_module(_MODULE).DIGEST)
    package = Path(__file__).resolve().parent.parent
    return remembered(package, headers_folder(package))


def remembered(package: Path, headers: Path) -> str:
    """``compute``, recalled from an earlier process while no source has changed since."""
    # Here and not above: the build loads this file alone.
    from tileops.cache import memo

    choice, (stamp, latest) = [str(package), ENTRY_FORMAT], stamps(package, headers)
    known = memo.recall("digest of the generators", choice)
    if isinstance(known, list) and known[:1] == [stamp]:
        return str(known[1])
    found = compute(package, headers)
    if time.time() - latest > _SETTLED_SECONDS:
        memo.remember("digest of the generators", choice, [package / "__init__.py"], [stamp, found])
    return found


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

"""The digest of tileops' own code generators, a field of every cache key.

A build writes the digest into ``_sources_digest.py`` (setup.py calls ``write_module``); a
development install has no such file and hashes the sources when first asked.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import time
from pathlib import Path

# What decides which text and which machine code comes out of a given IR: folders and modules.
# csrc/cpu holds the headers that generated kernels include; a wheel carries them as include/.
GENERATORS = (
    "ir", "passes", "codegen", "compiler", "foreign",
    "cxx.py", "dtypes.py", "pass_configs.py", "target.py",
)  # fmt: skip
# The form of an entry on disk. It is in the digest, and so in every key: two versions of the
# package that write entries differently can share a directory, and neither takes the other's for
# damaged.
ENTRY_FORMAT = 2
_SUFFIXES = (".py", ".h", ".hpp", ".inc")
# A file written twice within one tick of the file system's clock has one time of change.
_SETTLED_SECONDS = 2.0


def compute(package: Path, headers: Path) -> str:
    """SHA-256 over names and contents of the generators in the folders of package and headers."""
    total = hashlib.sha256(f"entry format {ENTRY_FORMAT}\n".encode())
    for root in _roots(package, headers):
        label = "include" if root == headers else root.name
        for path in sorted(_tree(root)[1], key=lambda path: path.relative_to(root).as_posix()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{label}/{path.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()


def _roots(package: Path, headers: Path) -> list[Path]:
    return [*(package / name for name in GENERATORS), headers]


def _tree(root: Path) -> tuple[list[Path], list[Path]]:
    """The folders from ``root`` on, and the sources in them; of a module, its file."""
    if root.suffix in _SUFFIXES:
        return [], [root]
    folders, files = [], []
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name != "__pycache__"]
        folders.append(Path(folder))
        files += [Path(folder, name) for name in names if name.endswith(_SUFFIXES)]
    return folders, files


@functools.cache
def digest() -> str:
    """The digest of the generators that this process runs: 64 hexadecimal digits."""
    if Path(__file__).with_name("_sources_digest.py").exists():
        return str(importlib.import_module("tileops.cache._sources_digest").DIGEST)
    # Here and not above: the build loads this file alone.
    from tileops.cxx import include_folder

    return remembered(Path(__file__).parent.parent, include_folder())


def remembered(package: Path, headers: Path) -> str:
    """``compute``, recalled from an earlier process while no source has changed since."""
    from tileops.cache import memo

    choice = [str(package), ENTRY_FORMAT, *GENERATORS]
    known = memo.recall("digest of the generators", choice)
    if isinstance(known, str):
        return known
    began = time.time() - _SETTLED_SECONDS
    found = compute(package, headers)
    trees = [_tree(root) for root in _roots(package, headers)]
    paths = [path for folders, files in trees for path in (*folders, *files)]
    memo.remember("digest of the generators", choice, paths, found, began=began)
    return found


def write_module(target: Path, package: Path, headers: Path) -> None:
    """Write the digest of these sources as the module file ``target`` (called by the build)."""
    target.write_text(
        '"""The digest of the code generators, as the build found them."""\n\n'
        f'DIGEST = "{compute(package, headers)}"\n',
        encoding="ascii",
    )

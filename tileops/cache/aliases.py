"""The folder ``aliases/``: for each identity, the names of the entries that have it.

An alias is an empty directory ``aliases/<2 digits>/<identity>/<entry>``: it has no content that
could be damaged. Nothing trusts an alias: a reader verifies the entry, and that the entry has this
identity. An entry without an alias is found by its key alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tileops.cache.directory import Directory
from tileops.cache.entry import DamagedError, read_head
from tileops.cache.files import children, make_directories
from tileops.cache.identity import identity

_NAME = re.compile(r"[0-9a-f]{64}")
_MODE = 0o755
_TRIES = 4  # another process may remove an empty parent meanwhile


def folder_of(directory: Directory, identity: str) -> Path:
    """The folder of the aliases of one identity."""
    return directory.aliases / identity[:2] / identity


def add(directory: Directory, identity: str, entry_hash: str) -> None:
    """Say that the entry has this identity. Raises OSError."""
    folder = folder_of(directory, identity)
    for left in reversed(range(_TRIES)):
        try:
            os.mkdir(folder / entry_hash, _MODE)  # noqa: PTH102
            return
        except FileExistsError:
            return
        except FileNotFoundError:
            if not left:
                raise
        make_directories(folder)


def entries_of(directory: Directory, identity: str) -> list[str]:
    """The hashes of the entries that are said to have this identity, last used first."""
    try:
        names = os.listdir(folder_of(directory, identity))  # noqa: PTH208
    except OSError:
        return []
    found = []
    for name in names:
        if _NAME.fullmatch(name):
            with suppress(OSError):  # the entry was removed, its alias not yet
                found.append((-os.lstat(directory.programs / name).st_mtime_ns, name))
    return [name for _, name in sorted(found)]


def sweep(directory: Directory) -> int:
    """Remove the aliases of entries that are gone; returns their number."""
    return sum(_remove(directory, alias) for alias in _all(directory) if not _has_entry(alias))


@dataclass(frozen=True)
class _Alias:
    directory: Directory
    identity: str
    entry_hash: str

    @property
    def path(self) -> Path:
        return folder_of(self.directory, self.identity) / self.entry_hash


def _all(directory: Directory) -> Iterator[_Alias]:
    for group in children(directory.aliases):
        for folder in children(group):
            if not _NAME.fullmatch(folder.name) or folder.name[:2] != group.name:
                continue  # other names are not the cache's
            for path in children(folder):
                if _NAME.fullmatch(path.name):
                    yield _Alias(directory, folder.name, path.name)


def _has_entry(alias: _Alias) -> bool:
    return os.path.isdir(alias.directory.programs / alias.entry_hash)  # noqa: PTH112


def _remove(directory: Directory, alias: _Alias) -> bool:
    path = alias.path
    try:
        path.rmdir()
    except OSError:
        return False
    if _has_entry(alias):  # published meanwhile, by a process that found the alias in place
        with suppress(OSError):
            add(directory, alias.identity, alias.entry_hash)
        return False
    for parent in (path.parent, path.parent.parent, directory.aliases):
        try:
            parent.rmdir()
        except OSError:  # not empty
            break
    return True


# -- checks ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Fault:
    """An alias that is not as it should be.

    ``kind``: "stale" (its entry is gone), "wrong" (its entry has another identity) or "missing" (a
    whole entry has none).
    """

    kind: Literal["stale", "wrong", "missing"]
    identity: str
    entry_hash: str
    directory: Directory

    def __str__(self) -> str:
        path = folder_of(self.directory, self.identity) / self.entry_hash
        reason = {
            "stale": "its entry is gone",
            "wrong": "its entry has another identity",
            "missing": "it is missing: the entry is found only by its key",
        }
        return f"{path}: {reason[self.kind]}"

    def repair(self) -> bool:
        """Remove or make the alias; True if that was done."""
        if self.kind == "missing":
            with suppress(OSError):
                add(self.directory, self.identity, self.entry_hash)
                return True
            return False
        alias = _Alias(self.directory, self.identity, self.entry_hash)
        with suppress(OSError):
            alias.path.rmdir()
            return True
        return False


def faults(directory: Directory) -> list[Fault]:
    """What is wrong with the aliases of undamaged entries."""
    found: list[Fault] = []
    identities: dict[str, str | None] = {}
    for path in children(directory.programs):
        if _NAME.fullmatch(path.name):
            identities[path.name] = None
            with suppress(DamagedError, OSError):
                identities[path.name] = identity(read_head(path, directory.trust)[0].fields)
    for alias in _all(directory):
        known = identities.get(alias.entry_hash, "")
        if known == alias.identity:
            del identities[alias.entry_hash]
        elif known is not None:
            kind: Literal["stale", "wrong"] = "wrong" if known else "stale"
            found.append(Fault(kind, alias.identity, alias.entry_hash, directory))
    missing = [(name, known) for name, known in identities.items() if known]
    return found + [Fault("missing", known, name, directory) for name, known in missing]

"""Expensive facts, kept between processes until the files they were taken from change.

Such as the version and content hash of a compiler: hashing an assembler of 100 MB takes longer than
a whole warm start. A fact is believed only while every file it was taken from has the same size,
inode and times of change. It lies beside the entries, never in one, and names this machine's paths.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileops import log, settings
from tileops.cache import staging
from tileops.cache.directory import Directory, resolve
from tileops.cache.files import UntrustedError, make_directories, read_file, replace_file
from tileops.cache.key import canonical

_FORMAT = 2
_LIMIT = 1 << 20  # bytes


# What this process found or read, by name and choice: also where no directory can be used.
_found: dict[str, dict[str, Any]] = {}


def recall(name: str, choice: object) -> Any | None:  # noqa: ANN401  (plain JSON)
    """The fact ``name`` under ``choice`` (plain JSON: what decides which files it is taken from).

    None if it is not known, or one of its files has changed.
    """
    identity = canonical([name, choice])
    known = _found.get(identity)
    if known is None or not _holds(known):
        known = _found[identity] = _read(identity)
    return known["value"] if known and _holds(known) else None


def _read(identity: str) -> dict[str, Any]:
    """The content of a fact's file, empty if there is none that can be used."""
    private = settings.derived(resolve).private
    try:
        content = (
            {} if private is None else json.loads(read_file(_path(private, identity), limit=_LIMIT))
        )
        is_usable = content["format"] == _FORMAT and content["files"] and "value" in content
        return content if is_usable else {}
    except (OSError, UntrustedError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _holds(content: Mapping[str, Any]) -> bool:
    try:
        return all(_stamp(Path(path)) == stamp for path, stamp in content["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def remember(name: str, choice: object, files: Sequence[Path], value: object) -> None:
    """Keep ``value`` (plain JSON), taken from ``files``; in this process if not on disk."""
    identity = canonical([name, choice])
    try:
        stamps = [[str(path), _stamp(path)] for path in files]
    except OSError:  # one of them went meanwhile
        return
    content = {"format": _FORMAT, "name": name, "files": stamps, "value": value}
    _found[identity] = content
    private = settings.derived(resolve).private
    if private is None:
        return
    try:
        path = _path(private, identity)
        make_directories(path.parent)
        replace_file(path, json.dumps(content, indent=1).encode(), staging.fresh(private, "fact"))
    except (OSError, UntrustedError) as error:
        log.warn_once("cache", f"tileops cache: cannot write in {private.root}: {error}")


def forget() -> None:
    """Forget what this process knows, not what is on disk (tests)."""
    _found.clear()


def _path(directory: Directory, identity: str) -> Path:
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return directory.state / "facts" / f"{digest[:32]}.json"


def _stamp(path: Path) -> list[int]:
    # The time of change (ctime) cannot be set by a program, so a file that was replaced and given
    # its old time of modification is seen.
    # Links are followed: what one leads to counts, now.
    found = os.stat(path)  # noqa: PTH116
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]

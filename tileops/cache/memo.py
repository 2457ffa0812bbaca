"""Expensive facts, cached until the files they were taken from change.

Such as the version and content hash of a compiler: hashing an assembler of 100 MB takes longer than
a whole warm start. Facts are stored beside the entries and name paths of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tileops import log
from tileops.cache import staging
from tileops.cache.directory import Directory, here
from tileops.cache.files import UntrustedError, make_directories, read_file
from tileops.cache.key import canonical

_FORMAT = 3
_LIMIT = 1 << 20  # bytes

# What this process found or read, by name and choice: also where no directory can be used.
_found: dict[str, Mapping[str, Any]] = {}


def recall(name: str, choice: object) -> Any | None:  # noqa: ANN401  (plain JSON)
    """The fact ``name`` under ``choice`` (plain JSON), None if unknown or if a file has changed."""
    identity = canonical([name, choice])
    for find in (_found.get, _read):
        content = find(identity)
        if content and _is_current(content):
            _found[identity] = content
            return content["value"]
    return None


def _read(identity: str) -> Mapping[str, Any] | None:
    private = here().private
    if private is None:
        return None
    try:
        content = json.loads(read_file(_path(private, identity), limit=_LIMIT))
        is_usable = content["format"] == _FORMAT and content["files"] and "value" in content
        return content if is_usable else None
    except (OSError, UntrustedError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _is_current(content: Mapping[str, Any]) -> bool:
    try:
        return bool(_stamps(content["files"]) == content["stamps"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _stamps(files: Iterable[str]) -> list[int]:
    """Device, inode, size and times of each file, one after the other; links are followed.

    A program cannot set the time of change (ctime). One flat list: a fact of a hundred files is
    read and compared at each warm start.
    """
    found: list[int] = []
    for path in files:
        status = os.stat(path)  # noqa: PTH116
        found += (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
    return found


def remember(
    name: str, choice: object, files: Iterable[Path | str], value: object, *, began: float
) -> None:
    """Keep ``value`` (plain JSON), taken from ``files`` and folders; here if not on disk.

    Nothing is kept if one of them has changed since ``began`` (Unix seconds).
    """
    identity = canonical([name, choice])
    paths = [str(path) for path in files]
    try:
        stamps = _stamps(paths)
    except OSError:  # one of them went meanwhile
        return
    if max(stamps[4::5]) * 1e-9 >= began:
        return
    content = {"format": _FORMAT, "name": name, "files": paths, "stamps": stamps, "value": value}
    _found[identity] = content
    private = here().private
    if private is None:
        return
    try:
        path = _path(private, identity)
        make_directories(path.parent)
        staging.place(private, path, json.dumps(content, indent=1).encode())
    except (OSError, UntrustedError) as error:
        log.warn_once("cache", f"tileops cache: cannot write in {private.root}: {error}")


def _path(directory: Directory, identity: str) -> Path:
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return directory.state / "facts" / f"{digest[:32]}.json"

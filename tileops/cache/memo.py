"""Owns facts that are dear to find and true while some files stay the same, kept between processes.

Such as the version and content hash of a compiler: hashing an assembler of 100 MB takes longer than
a whole warm start. A fact is believed only while every file it was taken from has the same size,
inode and times of change. It lies beside the entries, never in one, and names this machine's paths.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tileops import log, settings
from tileops.cache.directory import Directory, resolve
from tileops.cache.files import UntrustedError, make_directories, read_file, replace_file
from tileops.cache.key import canonical

_FORMAT = 1
_LIMIT = 1 << 20  # bytes


def recall(name: str, choice: object) -> Any | None:  # noqa: ANN401  (plain JSON)
    """The fact ``name`` under ``choice`` (plain JSON: what decides which files it is taken from).

    None if it is not known, or one of its files has changed.
    """
    private = resolve(settings.current()).private
    if private is None:
        return None
    try:
        content = json.loads(read_file(_path(private, name, choice), limit=_LIMIT))
        if content["format"] != _FORMAT or not content["files"]:
            return None
        if any(_stamp(Path(path)) != stamp for path, stamp in content["files"]):
            return None
        return content["value"]
    except (OSError, UntrustedError, ValueError, LookupError, TypeError, RecursionError):
        return None


def remember(name: str, choice: object, files: Sequence[Path], value: object) -> None:
    """Keep ``value`` (plain JSON), taken from ``files``. Silent where nothing can be written."""
    private = resolve(settings.current()).private
    if private is None:
        return
    try:
        stamps = [[str(path), _stamp(path)] for path in files]
        content = {"format": _FORMAT, "name": name, "files": stamps, "value": value}
        path = _path(private, name, choice)
        make_directories(path.parent)
        staging = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        replace_file(path, json.dumps(content, indent=1).encode(), staging)
    except OSError as error:
        log.warn_once("cache", f"tileops cache: cannot write in {private.root}: {error}")


def _path(directory: Directory, name: str, choice: object) -> Path:
    digest = hashlib.sha256(canonical([name, choice]).encode()).hexdigest()
    return directory.state / "facts" / f"{digest[:32]}.json"


def _stamp(path: Path) -> list[int]:
    # The time of change (ctime) cannot be set by a program, so a file that was replaced and given
    # its old time of modification is seen.
    status = os.stat(path)  # noqa: PTH116
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]

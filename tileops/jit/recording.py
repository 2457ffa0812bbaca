"""The lock file: what a process compiled or looked up, for another machine to compile ahead.

One JSON object a line, appended in one write, so that many processes may share a file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileops import forks, log
from tileops.errors import CacheError

_WHAT = ("program", "target", "fast", "index64")  # the rest of a line is for people
_noted: set[tuple[str, str]] = set()


def note(request: Mapping[str, Any], path: str) -> None:
    """Append a request, as ``Request.to_json`` has it, to the file ``path``, once a process."""
    line = json.dumps(request, sort_keys=True, separators=(",", ":")) + "\n"
    known = (path, _digest(request))
    with forks.guard:
        if known in _noted:
            return
        _noted.add(known)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        log.warn_once("record", f"TILEOPS_RECORD: {path} cannot be written: {error.strerror}")


def read(path: Path) -> list[dict[str, Any]]:
    """The requests in a file, each once, in an order that no run decides; CacheError if it is none.

    A line that a killed process left half is passed over if it is the last.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CacheError(f"{path}: {error!s:.200}") from None
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        try:
            request = json.loads(line)
            found[_digest(request)] = request
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            if number < len(lines):
                raise CacheError(f"{path}:{number} is not a recorded program: {error}") from None
    return sorted(found.values(), key=lambda r: (str(r.get("op")), _digest(r)))


def tidy(path: Path) -> int:
    """Write the file anew, each request once and in order; returns how many there are."""
    requests = read(path)
    text = "".join(json.dumps(r, sort_keys=True, separators=(",", ":")) + "\n" for r in requests)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)
    return len(requests)


def _digest(request: Mapping[str, Any]) -> str:
    what = json.dumps([request[name] for name in _WHAT], sort_keys=True)
    return hashlib.sha256(what.encode()).hexdigest()

"""The staging of a cache directory: files on their way to their places, and compiles at work.

A process that is killed leaves them behind. Later ones remove them: those of a process that has
ended at once, those of another machine or container when they are old.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tileops.cache.directory import Directory
from tileops.cache.files import make_directories, remove, replace_file

# Longer than any compile (ten minutes), with room for clocks that differ between machines.
_STALE_SECONDS = 3600.0


def fresh(directory: Directory, name: str) -> Path:
    """A path in staging that nobody uses; makes the folder. Raises OSError."""
    make_directories(directory.staging)
    return directory.staging / f"{name}.{_processes()}.{os.getpid()}.{os.urandom(6).hex()}"


def place(directory: Directory, path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` in one step: a reader sees the old file or the new one. OSError."""
    replace_file(path, data, fresh(directory, path.name))


@functools.cache
def _processes() -> str:
    """The name of the set of processes that share process ids: one boot, one namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return "unknown"
    return hashlib.sha256(f"{boot!r} {space}".encode()).hexdigest()[:12]


def _is_of_dead_process(path: Path) -> bool:
    """True if the process that made ``path`` is known to have ended."""
    parts = path.name.rsplit(".", 3)
    if len(parts) != 4 or parts[1] != _processes() or not parts[2].isdecimal():
        return False
    try:
        os.kill(int(parts[2]), 0)
    except (ProcessLookupError, OverflowError):
        return parts[1] != "unknown"
    except OSError:
        return False
    return False


def sweep(directory: Directory, older_than: float = _STALE_SECONDS) -> int:
    """Remove what ended processes left, and what is older than that; the number of paths."""
    count = 0
    try:
        paths = sorted(directory.staging.iterdir())
    except OSError:
        return count
    for path in paths:
        with suppress(OSError):
            is_old = time.time() - path.lstat().st_mtime >= older_than
            if (is_old or _is_of_dead_process(path)) and remove(path):
                count += 1
    return count


@contextmanager
def folder(directory: Directory, name: str) -> Iterator[Path]:
    """A new empty folder in staging, removed at the end. Raises OSError."""
    path = fresh(directory, name)
    os.mkdir(path, 0o700)  # noqa: PTH102
    try:
        # Resolved, as the working directory of a compiler is.
        yield Path(os.path.realpath(path))
    finally:
        remove(path)


# Folders for temporary files, and the process that made each and removes it at its end: a forked
# child has its own.
_temporary: dict[str, int] = {}


def temporary_path(name: str) -> Path:
    """A new folder for temporary files; removed by ``discard_temporary`` or at the end."""
    if not _temporary:
        atexit.register(_discard_all)
    path = os.path.realpath(tempfile.mkdtemp(prefix=f"tileops-{name}-"))
    _temporary[path] = os.getpid()
    return Path(path)


def discard_temporary(path: Path) -> None:
    """Remove a folder that ``temporary_path`` made."""
    _temporary.pop(str(path), None)
    remove(path)


def _discard_all() -> None:
    for path, owner in tuple(_temporary.items()):
        if owner == os.getpid():
            discard_temporary(Path(path))


@contextmanager
def temporary(name: str) -> Iterator[Path]:
    """A folder outside the cache, for when the cache has none or its staging cannot be used."""
    path = temporary_path(name)
    try:
        yield path
    finally:
        discard_temporary(path)

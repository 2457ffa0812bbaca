"""Owns what keeps the directory bounded: who uses which entry, its size, and what goes first."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tileops import forks
from tileops.cache import scripts, staging
from tileops.cache.directory import Directory
from tileops.cache.files import (
    UntrustedError,
    children,
    make_directories,
    read_file,
    remove,
    replace_file,
    tree_bytes,
)

# Eviction goes down to this share of the limit, so that one scan of the directory pays for many
# compiles: at 1,000 entries a scan takes about as long as 1 % of one compile.
_LOW_WATER = 0.9
_STALE_SECONDS = 3600.0
# Files of dead processes that a new one removes: more than it adds, so their number cannot grow.
_REAPED = 16
_LOCK_TRIES = 100
_SIZES_LIMIT = 1 << 20  # bytes; past it a scan costs less than the sum of a hundred thousand lines
_ENTRY_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class _Mark:
    """The locked file in which this process names the entries that it uses."""

    path: Path
    descriptor: int
    inode: int

    def is_there(self) -> bool:
        try:
            return os.stat(self.path).st_ino == self.inode  # noqa: PTH116
        except OSError:
            return False


class Users:
    """Tells other processes which entries this one uses: a locked file of hashes a process.

    The kernel drops the lock when the process dies, so a file that can be locked is nobody's. A
    file that was deleted is made again, with all its hashes, at the next note.
    """

    def __init__(self, parents: Users | None = None) -> None:
        """``parents``: of the process that this one was forked from; what it uses this one does."""
        self._lock = forks.renewed_lock()
        self._marks: dict[Path, _Mark] = {}
        noted = {} if parents is None else parents._noted
        self._noted: dict[Path, dict[str, None]] = {path: dict(h) for path, h in noted.items()}

    def note(self, directory: Directory, entry_hash: str) -> None:
        """Say that this process uses ``entry_hash`` from now until it ends. Raises OSError."""
        folder = directory.in_use
        with self._lock:
            noted = self._noted.setdefault(folder, {})
            mark = self._marks.get(folder)
            if mark is not None and mark.is_there():
                fresh = [] if entry_hash in noted else [entry_hash]
            else:
                self._drop(folder)
                mark = self._marks[folder] = _new_mark(folder)
                fresh = [*noted, entry_hash]
            try:
                _append(mark.descriptor, "".join(f"{name}\n" for name in fresh).encode())
            except OSError:
                self._drop(folder)  # half a line says nothing; the next note writes all anew
                raise
            noted[entry_hash] = None

    def _drop(self, folder: Path) -> None:
        mark = self._marks.pop(folder, None)
        if mark is not None:
            os.close(mark.descriptor)


def _append(descriptor: int, data: bytes) -> None:
    if data and os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _new_mark(folder: Path) -> _Mark:
    make_directories(folder)
    found = children(folder)
    # From any of them on: the first ones may all be of living processes.
    start = int.from_bytes(os.urandom(4), "little") % max(len(found), 1)
    for path in (found[start:] + found[:start])[:_REAPED]:
        _hashes_or_remove(path)
    path = folder / f"{os.getpid()}.{os.urandom(6).hex()}"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        _lock(descriptor)
        return _Mark(path, descriptor, os.fstat(descriptor).st_ino)
    except OSError:
        os.close(descriptor)
        remove(path)  # a file system without locks must not gather a file a process
        raise


def _lock(descriptor: int) -> None:
    # Another process may look at this moment whether the file is nobody's, and holds the lock for
    # some microseconds.
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.001)
    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))


def used_hashes(directory: Directory) -> set[str]:
    """Hashes that a living process uses; files of dead processes are removed on the way."""
    used: set[str] = set()
    for path in children(directory.in_use):
        used.update(_hashes_or_remove(path))
    return used


def _hashes_or_remove(path: Path) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        if _is_abandoned(descriptor):
            remove(path)
            return []
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, size, 0).decode("ascii", errors="replace").split()
    except OSError:
        return []
    finally:
        os.close(descriptor)


def _is_abandoned(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    # Between making its file and locking it, a process owns an unlocked, empty file.
    status = os.fstat(descriptor)
    return status.st_size > 0 or time.time() - status.st_mtime > _STALE_SECONDS


@dataclass(frozen=True)
class Stored:
    """One entry on disk: its folder, size in bytes, and when it was last used (seconds, Unix)."""

    path: Path
    size: int
    used_at: float


def stored_entries(directory: Directory) -> list[Stored]:
    """All entries, least recently used first. What vanishes meanwhile is left out.

    What is not named like an entry is somebody else's: it is neither counted nor ever removed.
    """
    found = []
    for path in children(directory.programs):
        if not _ENTRY_NAME.fullmatch(path.name):
            continue
        with suppress(OSError):
            found.append(Stored(path, tree_bytes(path), path.lstat().st_mtime))
    return sorted(found, key=lambda stored: (stored.used_at, stored.path.name))


def touch(path: Path) -> None:
    """Note that the entry in ``path`` was used now. Silent where the directory is read-only."""
    with suppress(OSError):
        os.utime(path)


class Growth:
    """An estimate of the directory's size that costs one short append a compile.

    ``size`` holds one number a line: what the last scan found, then the size of each entry since.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._path = directory.state / "size"

    def add(self, size: int) -> int | None:
        """Add an entry of ``size`` bytes; the estimated total, None if nothing was scanned yet.

        Raises OSError.
        """
        try:
            text = read_file(self._path, limit=_SIZES_LIMIT)
        except (OSError, UntrustedError):
            return None  # missing, or no file at all: the scan writes it anew
        if not text:
            return None
        with self._path.open("ab") as file:
            file.write(f"{size}\n".encode())
        return size + sum(int(line) for line in text.split() if line.isdigit())

    def restart(self, total: int) -> None:
        """Begin anew from what a scan found. Raises OSError."""
        replace_file(self._path, f"{total}\n".encode(), staging.fresh(self._directory, "size"))


def make_room(directory: Directory, limit: int, keep: frozenset[str] = frozenset()) -> list[Path]:
    """Remove least recently used entries until the directory is under ``limit`` bytes.

    Entries that a living process uses and those in ``keep`` stay. Returns the removed folders.
    Raises OSError only if the bookkeeping cannot be written; what cannot be removed is skipped.
    """
    stored = stored_entries(directory)
    total = sum(entry.size for entry in stored)
    removed: list[Path] = []
    asides: list[Path] = []
    if total > limit:
        used = used_hashes(directory) | keep
        for entry in stored:
            if total <= limit * _LOW_WATER:
                break
            if entry.path.name not in used and _take_out(directory, entry.path, asides):
                total -= entry.size
                removed.append(entry.path)
    if asides:
        # Removing a folder can take milliseconds (a journal commits): not on the caller's time. The
        # interpreter waits for this thread at its end.
        threading.Thread(target=_tidy, args=(directory, asides), name="tileops-evict").start()
    Growth(directory).restart(total)
    return removed


def _tidy(directory: Directory, asides: list[Path]) -> None:
    _remove_all(asides)
    scripts.sweep(directory)


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        remove(path)


def discard(directory: Directory, path: Path) -> bool:
    """Take an entry out in one rename, then remove its files; True if it is no longer there."""
    asides: list[Path] = []
    gone = _take_out(directory, path, asides)
    _remove_all(asides)
    return gone


def _take_out(directory: Directory, path: Path, asides: list[Path]) -> bool:
    try:
        aside = staging.fresh(directory, f"{path.name[:12]}.gone")
        os.rename(path, aside)  # noqa: PTH104
    except OSError:
        return not os.path.lexists(path)
    asides.append(aside)
    return True

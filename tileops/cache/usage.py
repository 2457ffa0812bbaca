"""What keeps the directory bounded: who uses which entry, its size, and what goes first."""

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
from tileops.cache import aliases, files, scripts, staging
from tileops.cache.directory import Directory
from tileops.cache.entry import problem_of

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

    The kernel drops the lock when the process dies. A file that was deleted is made again, with all
    its hashes, at the next note.
    """

    def __init__(self, parents: Users | None = None) -> None:
        """``parents``: those of the process that this one was forked from; it uses the same."""
        self._lock = forks.renewed_lock()
        self._marks: dict[Path, _Mark] = {}
        noted = {} if parents is None else parents._noted
        self._noted: dict[Path, dict[str, None]] = {path: dict(h) for path, h in noted.items()}

    def note(self, directory: Directory, entry_hash: str) -> None:
        """Say that this process uses ``entry_hash`` from now until it ends. Raises OSError."""
        folder = directory.state / "in_use"
        with self._lock:
            noted = self._noted.setdefault(folder, {})
            mark = self._marks.get(folder)
            if mark is not None and mark.is_there():
                fresh = [] if entry_hash in noted else [entry_hash]
            else:
                self._drop(folder)
                mark = self._marks[folder] = _new_mark(folder)
                fresh = [*noted, entry_hash]
            data = "".join(f"{name}\n" for name in fresh).encode()
            try:
                if data and os.write(mark.descriptor, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                self._drop(folder)  # half a line says nothing; the next note writes all anew
                raise
            noted[entry_hash] = None

    def _drop(self, folder: Path) -> None:
        mark = self._marks.pop(folder, None)
        if mark is not None:
            os.close(mark.descriptor)


def _new_mark(folder: Path) -> _Mark:
    files.make_directories(folder)
    found = files.children(folder)
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
        files.remove(path)  # a file system without locks must not gather a file a process
        raise


def _lock(descriptor: int) -> None:
    # Another process may be looking whether the file is abandoned: it holds the lock for some
    # microseconds.
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.001)
    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))


def used_hashes(directory: Directory) -> set[str]:
    """Hashes that a living process uses; files of dead processes are removed on the way."""
    used: set[str] = set()
    for path in files.children(directory.state / "in_use"):
        used.update(_hashes_or_remove(path))
    return used


def _hashes_or_remove(path: Path) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        if _is_abandoned(descriptor):
            files.remove(path)
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
    """All entries, least recently used first; other names are not the cache's."""
    found = []
    for path in files.children(directory.programs):
        if not _ENTRY_NAME.fullmatch(path.name):
            continue
        with suppress(OSError):
            found.append(Stored(path, files.tree_bytes(path), path.lstat().st_mtime))
    return sorted(found, key=lambda stored: (stored.used_at, stored.path.name))


# An estimate of the directory's size that costs one short append a compile: the file ``size`` holds
# one number a line, what the last scan found and then the size of each entry since.
def add_size(directory: Directory, size: int) -> int | None:
    """Add an entry of ``size`` bytes; the estimated total, None before a scan. Raises OSError."""
    path = directory.state / "size"
    try:
        text = files.read_file(path, limit=_SIZES_LIMIT)
    except (OSError, files.UntrustedError):
        return None  # missing, or not a file at all: the scan writes it anew
    if not text:
        return None
    with path.open("ab") as file:
        file.write(f"{size}\n".encode())
    return size + sum(int(line) for line in text.split() if line.isdigit())


def restart_size(directory: Directory, total: int) -> None:
    """Begin the estimate anew from what a scan found. Raises OSError."""
    staging.place(directory, directory.state / "size", f"{total}\n".encode())


def make_room(directory: Directory, limit: int, keep: frozenset[str] = frozenset()) -> list[Path]:
    """Remove least recently used entries until the directory is under ``limit`` bytes: which.

    Entries that a living process uses and those in ``keep`` stay, and what cannot be removed.
    OSError if the bookkeeping cannot be written.
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
            if entry.path.name in used:
                continue
            aside = _taken_out(directory, entry.path)
            if aside is not None:
                asides.append(aside)
            if aside is not None or not os.path.lexists(entry.path):
                total -= entry.size
                removed.append(entry.path)

    def tidy() -> None:
        for aside in asides:
            files.remove(aside)
        aliases.sweep(directory)
        scripts.sweep(directory)

    if asides:
        # Removing a folder can take milliseconds (a journal commits): not on the caller's time. The
        # interpreter waits for this thread at its end.
        threading.Thread(target=tidy, name="tileops-evict").start()
    restart_size(directory, total)
    return removed


def put_in_place(stage: Path, directory: Directory, entry_hash: str) -> bool:
    """Rename the entry in ``stage`` to its place; False if a whole one is there. Raises OSError."""
    final = directory.programs / entry_hash
    for is_last in (False, True):
        if os.path.lexists(final):
            if problem_of(final, directory.trust) is None:
                return False
            discard(directory, final)
        try:
            os.rename(stage, final)  # noqa: PTH104
            break
        except OSError:  # another process may have been faster
            if is_last:
                raise
    return True


def discard(directory: Directory, path: Path) -> bool:
    """Take an entry out in one rename, then remove its files; True if it is no longer there."""
    aside = _taken_out(directory, path)
    if aside is not None:
        files.remove(aside)
    return aside is not None or not os.path.lexists(path)


def _taken_out(directory: Directory, path: Path) -> Path | None:
    """The place to which an entry was moved in one rename; None if it could not be."""
    try:
        aside = staging.fresh(directory, f"{path.name[:12]}.gone")
        os.rename(path, aside)  # noqa: PTH104
    except OSError:
        return None
    return aside

"""Owns what keeps the directory bounded: who uses which entry, its size, and what goes first."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tileops.cache.directory import Directory
from tileops.cache.files import make_directories, remove, replace_file, tree_bytes

# Eviction goes down to this share of the limit, so that one scan of the directory pays for many
# compiles: at 1,000 entries a scan takes about as long as 1 % of one compile.
_LOW_WATER = 0.9
_STALE_STAGING_SECONDS = 3600.0
# Files of dead processes that a new one removes: more than it adds, so their number cannot grow.
_REAPED = 16
_ENTRY_NAME = re.compile(r"[0-9a-f]{64}")


class Users:
    """Tells other processes which entries this one uses: a locked file of hashes a process.

    The kernel drops the lock when the process dies, so a file that can be locked is nobody's.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: dict[Path, tuple[int, int]] = {}  # folder -> (process, descriptor)

    def note(self, directory: Directory, entry_hash: str) -> None:
        """Say that this process uses ``entry_hash`` from now until it ends. Raises OSError."""
        with self._guard:
            process, descriptor = self._open.get(directory.in_use, (0, -1))
            if process != os.getpid():  # the first use, or a forked child: its own file
                descriptor = _new_user_file(directory.in_use)
                self._open[directory.in_use] = (os.getpid(), descriptor)
            os.write(descriptor, f"{entry_hash}\n".encode())


def _new_user_file(folder: Path) -> int:
    make_directories(folder)
    for path in _children(folder)[:_REAPED]:
        _hashes_or_remove(path)
    name = folder / f"{os.getpid()}.{secrets.token_hex(6)}"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def used_hashes(directory: Directory) -> set[str]:
    """Hashes that a living process uses; files of dead processes are removed on the way."""
    used: set[str] = set()
    for path in _children(directory.in_use):
        used.update(_hashes_or_remove(path))
    return used


def _hashes_or_remove(path: Path) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        if _is_abandoned(descriptor):
            remove(path)
            return []
        return path.read_text(encoding="ascii", errors="replace").split()
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
    return os.fstat(descriptor).st_size > 0


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
    for path in _children(directory.programs):
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
        self._path = directory.state / "size"

    def add(self, size: int) -> int | None:
        """Add an entry of ``size`` bytes; the estimated total, None if nothing was scanned yet.

        Raises OSError.
        """
        text = self._path.read_bytes() if self._path.exists() else b""
        if not text:
            return None
        with self._path.open("ab") as file:
            file.write(f"{size}\n".encode())
        return size + sum(int(line) for line in text.split() if line.isdigit())

    def restart(self, total: int) -> None:
        """Begin anew from what a scan found. Raises OSError."""
        staging = self._path.with_name(f"size.{secrets.token_hex(6)}")
        make_directories(self._path.parent)
        replace_file(self._path, f"{total}\n".encode(), staging)


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
        threading.Thread(target=_remove_all, args=(asides,), name="tileops-evict").start()
    Growth(directory).restart(total)
    return removed


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
    aside = directory.staging / f"{path.name[:12]}.gone.{secrets.token_hex(6)}"
    try:
        make_directories(directory.staging)
        os.rename(path, aside)  # noqa: PTH104
    except OSError:
        return not os.path.lexists(path)
    asides.append(aside)
    return True


def clean_staging(directory: Directory, older_than: float = _STALE_STAGING_SECONDS) -> int:
    """Remove what writers that were killed left in staging more than ``older_than`` seconds ago."""
    count = 0
    for path in _children(directory.staging):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime >= older_than and remove(path):
                count += 1
    return count


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []

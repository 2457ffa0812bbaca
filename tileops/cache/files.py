"""File operations of the cache: durable writes, guarded reads, removal."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Never writable by group or others, whatever the umask: such files would be refused when read.
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_REMOVE_TRIES = 8


class UntrustedError(Exception):
    """A file that someone else could have written, or that is not a plain file."""


def make_directories(path: Path) -> None:
    """Make ``path`` and its missing parents, none of them writable by others. Raises OSError."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directories(path.parent)
    try:
        os.mkdir(path, _DIRECTORY_MODE)  # noqa: PTH102  (Path.mkdir takes the same, one frame more)
    except FileExistsError:
        if not path.is_dir():
            raise


def write_file(path: Path, data: bytes | Iterable[bytes], *, durable: bool = True) -> None:
    """Write a new file, in parts if so given. OSError, also if it exists.

    With ``durable`` it waits for the disk.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, _FILE_MODE)
    try:
        for part in (data,) if isinstance(data, bytes) else data:
            view = memoryview(part)
            while view:
                view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names in ``path`` are on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path | str, *, limit: int | None = None, trust: Trust | None = None) -> bytes:
    """Bytes of a plain file, never through a link; OSError if it cannot be read.

    UntrustedError for other files, more than ``limit`` bytes, and what ``trust`` refuses.
    """
    # O_NONBLOCK: opening a FIFO that someone left there must not wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedError(f"{path} is not a plain file")
        if limit is not None and status.st_size > limit:
            raise UntrustedError(f"{path} has {status.st_size} bytes, more than {limit}")
        if trust is not None:
            trust.require(path, status)
        data = os.read(descriptor, status.st_size + 1)
        while part := os.read(descriptor, 1 << 16):  # short reads, or a file that grew
            data += part
        return data
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, staging: Path) -> None:
    """Put ``data`` at ``path`` in one step: a reader sees the old file or the new one. OSError.

    A folder at ``path`` is removed. If ``staging`` is on another file system, a name beside
    ``path`` is used instead.
    """
    try:
        write_file(staging, data)
        if path.is_dir() and not path.is_symlink():
            remove(path)
        os.replace(staging, path)  # noqa: PTH105
    except OSError as error:
        remove(staging)
        if error.errno != errno.EXDEV or staging.parent == path.parent:
            raise
        replace_file(path, data, path.with_name(f".{staging.name}"))


def remove(path: Path) -> bool:
    """Remove a file, link or tree, as far as it can be; True if nothing is left."""
    # More than once: on a network file system EBUSY and ESTALE pass by themselves.
    for _ in range(_REMOVE_TRIES):
        with suppress(OSError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)  # noqa: PTH108
        if not os.path.lexists(path):
            return True
    return False


def children(folder: Path) -> list[Path]:
    """What is in ``folder``, sorted by name; nothing if it cannot be read."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]  # noqa: PTH208
    except OSError:
        return []


def tree_bytes(path: Path) -> int:
    """Sum of the sizes of the files under ``path``, links not followed; what vanishes counts 0."""
    total = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += tree_bytes(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return total
    return total


@dataclass(frozen=True)
class Trust:
    """Who may have written a file whose content will run as code: with ``shared``, anybody.

    Else this user and root, and no write permission for others. Group write permission is accepted
    where the group is the user's private one (the usual umask 002 of some systems).
    """

    shared: bool

    def require(self, path: Path | str, status: os.stat_result) -> None:
        """UntrustedError if someone other than the user and root can write ``path``."""
        if self.shared:
            return
        user = os.geteuid()
        if status.st_uid not in (0, user):
            raise UntrustedError(f"{path} belongs to another user (uid {status.st_uid})")
        if status.st_mode & stat.S_IWOTH:
            raise UntrustedError(f"{path} can be written by every user")
        if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, user):
            raise UntrustedError(f"{path} can be written by its group (gid {status.st_gid})")


def _is_private_group(gid: int, uid: int) -> bool:
    import grp
    import pwd

    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    members = set(group.gr_mem)
    return gid == user.pw_gid and group.gr_name == user.pw_name and members <= {user.pw_name}

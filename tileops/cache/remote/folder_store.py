"""A remote that is a folder, on a network file system, say: ``file:///share/tileops``."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tileops.cache import envelope
from tileops.cache.files import (
    UntrustedError,
    children,
    make_directories,
    read_file,
    remove,
    write_file,
)
from tileops.cache.remote.lease import BucketLease
from tileops.cache.remote.stores import Bounds, Item, RefusedError, UnavailableError

_PARTS = "1/p"  # where files are written before they are renamed
# The folder is there and says no: full, read-only, something else in the place of a file. Reads of
# other names go on, so the breaker stays closed.
_REFUSALS = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST,
    errno.ENOTEMPTY, errno.ELOOP,
})  # fmt: skip
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderStore:
    """Files below a folder. What they hold is believed no more than what a server sends."""

    def __init__(self, root: str, bounds: Bounds) -> None:
        self.operation_seconds = bounds.operation
        self._root = Path(root)

    def get(self, name: str) -> bytes | None:
        """See ``RemoteStore``; what was read counts as used."""
        path = self._root / name
        with self._explained():
            try:
                data = read_file(path, limit=envelope.LIMIT)
            except FileNotFoundError:
                return None
            with suppress(OSError):
                os.utime(path)
            return data

    def put(self, name: str, data: bytes) -> None:
        """See ``RemoteStore``."""
        with self._explained(), self._written(data) as part:
            path = self._place(name)
            os.replace(part, path)  # noqa: PTH105

    def create(self, name: str, data: bytes) -> bool:
        """See ``RemoteStore``."""
        with self._explained(), self._written(data) as part:
            path = self._place(name)
            try:
                os.link(part, path)  # also on network file systems it fails if the name is taken
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                return _written_anew(path, data)
            return True

    def delete(self, name: str) -> None:
        """See ``RemoteStore``."""
        with self._explained(), suppress(FileNotFoundError):
            os.unlink(self._root / name)  # noqa: PTH108

    def items(self, prefix: str) -> Iterator[Item]:
        """See ``RemoteStore``."""
        with self._explained():
            for path in sorted(self._root.joinpath(prefix).rglob("*")):
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    if path.is_file():
                        name = path.relative_to(self._root).as_posix()
                        yield Item(name, status.st_size, status.st_mtime)

    def lease(self, key: str, seconds: float) -> BucketLease:
        """See ``RemoteStore``."""
        return BucketLease(self, key, seconds)

    def abandon(self) -> None:
        """See ``RemoteStore``: its threads end by themselves."""

    def _place(self, name: str) -> Path:
        path = self._root / name
        make_directories(path.parent)
        return path

    @contextmanager
    def _written(self, data: bytes) -> Iterator[Path]:
        """A file with ``data`` in the folder's file system, removed if it is still there."""
        if not self._root.is_dir():  # never made: it may be where a file system is mounted
            raise RefusedError(f"{self._root} is not a folder")
        parts = self._root / _PARTS
        make_directories(parts)
        path = parts / os.urandom(12).hex()
        try:
            write_file(path, data)
            yield path
        finally:
            remove(path)

    def sweep(self, older_than: float) -> None:
        """Remove what killed writers left before that moment (Unix seconds)."""
        with self._explained():
            for path in children(self._root / _PARTS):
                with suppress(FileNotFoundError):
                    if path.lstat().st_mtime < older_than:
                        remove(path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise RefusedError(str(error)) from None
        except UntrustedError as error:
            raise RefusedError(str(error)) from None
        except OSError as error:
            kind = RefusedError if error.errno in _REFUSALS else UnavailableError
            raise kind(str(error)) from None


def _written_anew(path: Path, data: bytes) -> bool:
    try:
        write_file(path, data)
    except FileExistsError:
        return False
    return True

"""Reading of tar files from elsewhere: plain or compressed, a bounded piece at a time."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tileops.errors import CacheError

CHUNK = 1 << 20  # bytes; the most that is held of a member at a time
# Bytes for the headers of one member: names, times, owners. More is not an archive of ours.
_HEADER_LIMIT = 1 << 18
_MOST_MEMBERS = 500_000
_XZ_MEMORY = 128 << 20  # what xz -9 needs is 65 MiB
# What reading a hostile or torn archive raises. ValueError and IndexError: bad numbers in headers.
# RecursionError: headers of headers.
_TORN = (
    tarfile.TarError, EOFError, ValueError, LookupError, zlib.error, gzip.BadGzipFile,
    lzma.LZMAError, MemoryError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """An archive for messages: its path, what it should be, and the most bytes it may unpack to."""

    path: Path
    kind: str
    limit: int
    limit_name: str


class Member:
    """One member: ``info`` as tarfile read it, and its content if it is a plain file."""

    def __init__(self, info: tarfile.TarInfo, stream: _Stream, source: Source) -> None:
        self.info = info
        self.is_plain = info.isreg() and not info.issparse()
        self._stream = stream
        self._source = source

    def chunks(self) -> Iterator[bytes]:
        """The content in pieces of at most ``CHUNK``; once, before the next member; same errors."""
        left = self.info.size
        while left:
            with _explained(self._source):
                data = self._stream.content(min(left, CHUNK))
            left -= len(data)
            yield data

    def read(self) -> bytes:
        """The whole content, of a member whose size the caller has looked at."""
        return b"".join(self.chunks())


def members(file: IO[bytes], source: Source) -> Iterator[Member]:
    """The members of the archive ``file``, one by one.

    CacheError naming ``source`` if it is not what it should be, cannot be read, or has more bytes
    than its limit once unpacked, skipped members and headers included.
    """
    with _explained(source):
        stream = _Stream(_unpacked(file), source.limit)
        archive = tarfile.TarFile(fileobj=stream, mode="r")  # type: ignore[arg-type]
    for count in range(_MOST_MEMBERS + 1):
        with _explained(source):
            stream.header_left = _HEADER_LIMIT
            info = archive.next()
            if info is None:
                stream.expect_end()
                return
            archive.members.clear()  # type: ignore[attr-defined]  # it keeps all it has seen
            if info.size < 0:
                raise tarfile.ReadError("a member of less than 0 bytes")
            if count == _MOST_MEMBERS:
                raise tarfile.ReadError(f"more than {_MOST_MEMBERS} members")
            stream.seek(info.offset_data)
        yield Member(info, stream, source)


@contextlib.contextmanager
def _explained(source: Source) -> Iterator[None]:
    try:
        yield
    except _TooMuchError:
        raise CacheError(
            f"{source.path} holds more than {source.limit_name.format(source.limit)}"
        ) from None
    except _TORN as error:
        reason = str(error).partition("\n")[0][:200]
        raise CacheError(f"{source.path} is not an {source.kind}: {reason}") from None
    except OSError as error:
        raise CacheError(f"{source.path} cannot be read: {error}") from None


class _TooMuchError(Exception):
    pass


class _Stream:
    """What tarfile needs of a file: bytes in order, skipping forward, one step back."""

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self._read_some = read
        self._limit = limit
        self._position = 0
        self._reached = 0  # bytes taken from the file; behind the position after a step back
        self._last = b""  # the last byte taken
        self.header_left = _HEADER_LIMIT  # bytes of the next member's headers
        self._header = b""  # what was last read for one

    def expect_end(self) -> None:
        """Take all of the rest, so that its checksum is compared; refuse what is not zeros."""
        data = self._header
        while not data.strip(b"\0"):
            data = self._take(CHUNK)
            if not data:
                return
        raise tarfile.ReadError("a damaged header, or data after its end")

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset < self._reached - len(self._last):
            raise tarfile.ReadError("a header that leads backwards")
        while self._reached < offset:
            if not self._take(min(offset - self._reached, CHUNK)):
                break
        self._position = min(offset, self._reached)
        return self._position

    def read(self, size: int) -> bytes:
        """For headers, which are small."""
        if size > self.header_left:
            raise tarfile.ReadError(f"headers of more than {_HEADER_LIMIT} bytes")
        self.header_left -= size
        self._header = self._exactly(size)
        return self._header

    def content(self, size: int) -> bytes:
        data = self._exactly(size)
        if len(data) < size:
            raise EOFError("unexpected end of data")
        return data

    def close(self) -> None:
        pass  # whoever opened the file closes it

    def _exactly(self, size: int) -> bytes:
        parts = []
        if self._position < self._reached and size:
            parts.append(self._last)
            size -= 1
        while size:
            data = self._take(min(size, CHUNK))
            if not data:
                break
            parts.append(data)
            size -= len(data)
        self._position = self._reached
        return b"".join(parts)

    def _take(self, size: int) -> bytes:
        data = self._read_some(size)
        self._reached += len(data)
        if self._reached > self._limit:
            raise _TooMuchError
        self._last = data[-1:] or self._last
        return data


def _unpacked(file: IO[bytes]) -> Callable[[int], bytes]:
    """A function that gives the next bytes, at most as many as asked for, none at the end."""
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file).read
    for magic, make in _DECOMPRESSORS:
        if start.startswith(magic):
            return _Decompressed(file, make).read
    return file.read


def _zstd() -> Any:  # noqa: ANN401
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise tarfile.ReadError("this Python cannot unpack zstd: unpack it first") from None
    return zstd.ZstdDecompressor()


_DECOMPRESSORS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
    (b"\x28\xb5\x2f\xfd", _zstd),
)


class _Decompressed:
    """The bytes of a compressed file, of one stream after the other."""

    def __init__(self, file: IO[bytes], make: Callable[[], Any]) -> None:
        self._file = file
        self._make = make
        self._inner = make()
        self._left = b""  # read from the file and not decompressed yet

    def read(self, size: int) -> bytes:
        while True:
            if self._inner.eof:
                left = self._inner.unused_data.lstrip(b"\0")
                self._left = left or self._file.read(1 << 16).lstrip(b"\0")
                if not self._left:
                    return b""
                self._inner = self._make()
            is_hungry = self._inner.needs_input
            data = b""
            if is_hungry:
                data, self._left = self._left or self._file.read(1 << 16), b""
            found: bytes = self._inner.decompress(data, size)
            if found:
                return found
            if is_hungry and not data and not self._inner.eof:
                raise EOFError("the compressed data end too early")

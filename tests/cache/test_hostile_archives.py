"""Archives made to use up memory: what is held of one is bounded, whatever it says of itself."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cache import samples

MIB = 1 << 20
ENTRY = "programs/" + "0" * 64
TUNING = "op/" + "a" * 16 + "/tuning/" + "b" * 64
KINDS = {"cache": f"{ENTRY}/kernel_lib.so", "tune": f"{TUNING}/configs.jsonl"}
SIZE = 128 * MIB

# One process an archive: it tells what it said and how much its memory grew at most.
IMPORT = """
import json, pathlib, resource, sys
from tileops.cache import archive
from tileops.cache.directory import Directory
from tileops.cache.files import Trust
from tileops.cli import tune_archive
from tileops.errors import CacheError
kind, file, folder, limit = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), int(sys.argv[4])
directory = Directory(folder, True, Trust(shared=False))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    if kind == "cache":
        said = archive.load(directory, file, limit)[1]
    else:
        said = tune_archive.load(directory, file)
except CacheError as error:
    said = str(error)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
left = [str(p) for p in folder.rglob("*") if p.is_file()]
print(json.dumps({"said": said, "grown": grown >> 10, "left": left}))
"""


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def _zeros(count: int) -> Iterator[bytes]:
    for _ in range(count // MIB):
        yield bytes(MIB)


def _large_member(name: str) -> Iterator[bytes]:
    yield _header(name, SIZE)
    yield from _zeros(SIZE)


def _large_member_of_another_kind(name: str) -> Iterator[bytes]:
    yield _header("elsewhere", SIZE)
    yield from _zeros(SIZE)


def _long_name(name: str) -> Iterator[bytes]:
    yield _header("././@LongLink", SIZE, tarfile.GNUTYPE_LONGNAME)
    for _ in range(SIZE // MIB):
        yield b"a" * MIB
    yield _header(name, 0)


def _large_extended_header(kind: bytes) -> Callable[[str], Iterator[bytes]]:
    def parts(name: str) -> Iterator[bytes]:
        yield _header("pax", SIZE, kind)
        yield f"{SIZE} comment=".encode()
        yield from _zeros(SIZE)
        yield _header(name, 0)

    return parts


def _headers_of_headers(name: str) -> Iterator[bytes]:
    record = b"12 path=abc\n"
    for _ in range(200_000):
        yield _header("pax", len(record), tarfile.XHDTYPE) + record.ljust(512, b"\0")
    yield _header(name, 0)


def _sparse(name: str) -> Iterator[bytes]:
    records = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    pax = records.encode()
    yield _header("pax", len(pax), tarfile.XHDTYPE) + pax.ljust(512, b"\0")
    yield _header(name, SIZE)
    yield b"99999999999\n"
    for _ in range(SIZE // MIB):
        yield b"0\n" * (MIB // 2)


def _many_members(name: str) -> Iterator[bytes]:
    yield _header(name, 0)
    for first in range(0, 1_000_000, 1000):
        yield b"".join(_header(f"x/{first + n}", 0) for n in range(10)) * 100


def _many_members_of_that_kind(name: str) -> Iterator[bytes]:
    yield _header(name, 0)
    for _ in range(400):
        yield _header(name, 0) * 1000


BOMBS: dict[str, Callable[[str], Iterator[bytes]]] = {
    "a large member": _large_member,
    "a large member to be skipped": _large_member_of_another_kind,
    "a long name": _long_name,
    "a large extended header": _large_extended_header(tarfile.XHDTYPE),
    "a large global header": _large_extended_header(tarfile.XGLTYPE),
    "headers of headers": _headers_of_headers,
    "a sparse member": _sparse,
    "many members": _many_members,
    "many members of one name": _many_members_of_that_kind,
}


def _open(path: Path, how: str) -> object:
    match how:
        case "gz":
            return gzip.open(path, "wb", 1)
        case "bz2":
            return bz2.open(path, "wb", 1)
        case "xz":
            return lzma.open(path, "wb", preset=0)
    return path.open("wb")


def _import(kind: str, file: Path, folder: Path, limit: int) -> dict[str, object]:
    arguments = [kind, file, folder / "cache", limit]
    return samples.result(samples.start(IMPORT, arguments, env=samples.environment(None)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BOMBS)
def test_memory_is_bounded(name: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "bomb.tar.gz"
    with _open(file, "gz") as out:  # type: ignore[attr-defined]
        for part in BOMBS[name](KINDS[kind]):
            out.write(part)
        out.write(bytes(10240))
    found = _import(kind, file, tmp_path, 50 * MIB)
    assert found["grown"] < 100, found
    assert found["left"] == [], found
    assert found["said"], found


@pytest.mark.parametrize("how", ["bz2", "xz", "plain"])
def test_memory_is_bounded_for_every_compression(how: str, tmp_path: Path) -> None:
    file = tmp_path / "bomb"
    with _open(file, how) as out:  # type: ignore[attr-defined]
        for part in _large_member(KINDS["cache"]):
            out.write(part)
    found = _import("cache", file, tmp_path, 50 * MIB)
    assert found["grown"] < 100, found
    assert "holds more than the cache's limit" in str(found["said"])


def test_a_claimed_size_is_not_believed(tmp_path: Path) -> None:
    """A short file that says it has a large member."""
    file = tmp_path / "bomb.tar"
    file.write_bytes(_header(KINDS["cache"], 200 * MIB) + b"short")
    found = _import("cache", file, tmp_path, 500 * MIB)
    assert found["grown"] < 50
    assert "unexpected end of data" in str(found["said"])


@pytest.mark.parametrize("how", ["gz", "bz2", "xz", "plain"])
@pytest.mark.parametrize("streams", [1, 3])
def test_whole_archives_are_read_in_every_compression(
    how: str, streams: int, tmp_path: Path
) -> None:
    """Also of several compressed streams one after the other, cut anywhere."""
    from tileops.cache import tar_reader

    plain = tmp_path / "plain.tar"
    contents = {
        f"{ENTRY}/file{n}": samples.content(n, "x", size)
        for n, size in enumerate((0, 1, 511, 512, 513, 1023, 1024, 70_000, 3 * MIB + 5, 2 * MIB))
    }
    with tarfile.open(plain, "w") as made:
        for name, data in contents.items():
            (tmp_path / "one").write_bytes(data)
            made.add(tmp_path / "one", name)
    text = plain.read_bytes()
    file = tmp_path / "archive"
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "plain": bytes}[how]
    cut = [len(text) * n // streams for n in range(streams + 1)]
    file.write_bytes(b"".join(pack(text[a:b]) for a, b in itertools.pairwise(cut)))
    source = tar_reader.Source(file, "archive", 1 << 30, "{} bytes")
    with file.open("rb") as stream:
        found = {m.info.name: m.read() for m in tar_reader.members(stream, source)}
    assert found == contents
    with file.open("rb") as stream:  # none, or every other one read
        names = [
            (m.info.name, n % 2 and m.read())
            for n, m in enumerate(tar_reader.members(stream, source))
        ]
    assert [name for name, _ in names] == list(contents)

"""Archives of entries that somebody else made: what is not an entry is refused, and says why."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import io
import json
import lzma
import math
import os
import random
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cache import samples
from tileops import option
from tileops.cache import Store, archive, catalog, staging, usage
from tileops.cache.directory import Directory
from tileops.cache.entry import sealed
from tileops.cache.files import remove
from tileops.cli.main import main
from tileops.errors import CacheError

HASH = samples.key(0).hash()
FOLDER = f"programs/{HASH}"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """The files of one whole entry by name, its links left out."""
    with option.cache_dir(tmp_path / "maker"):
        path = Store().fetch(samples.key(0), samples.built).path
    assert path is not None
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and not p.is_symlink()
    }


@pytest.fixture
def private(root: Path) -> Directory:
    found = catalog.here().private
    assert found is not None
    return found


def _pack(file: Path, members: Iterable[tuple[str, bytes | str]]) -> Path:
    """An archive of files (bytes) and links (str)."""
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as made:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if isinstance(data, str):
                member.type, member.linkname = tarfile.SYMTYPE, data
                made.addfile(member)
            else:
                member.size = len(data)
                made.addfile(member, io.BytesIO(data))
    return file


def _entry(
    files: dict[str, bytes], changes: dict[str, object] | None = None
) -> list[tuple[str, bytes | str]]:
    """The members of the entry, with a manifest changed but sealed as its maker would."""
    content = {**json.loads(files["manifest.json"]), "links": {}, **(changes or {})}
    changed = {**files, "manifest.json": sealed(content).encode()}
    return [(f"{FOLDER}/{name}", data) for name, data in changed.items()]


def _is_untouched(private: Directory, tmp_path: Path) -> bool:
    """True if nothing was published or left, inside or outside."""
    outside = {path.name for path in tmp_path.iterdir()} - {"cache", "maker", "archive.tar"}
    return not outside and not list(private.programs.iterdir()) and not _staged(private)


def _staged(private: Directory) -> list[Path]:
    return list(private.staging.iterdir()) if private.staging.exists() else []


def _facts(files: dict[str, bytes]) -> dict[str, Any]:
    return dict(json.loads(files["manifest.json"])["files"])


MANIFESTS: dict[str, Callable[[dict[str, Any]], dict[str, object]]] = {
    "absolute path": lambda f: {"files": {**f, "/etc/passwd": f["program.txt"]}},
    "path up": lambda f: {"files": {**f, "../../x": f["program.txt"]}},
    "path through here": lambda f: {"files": {**f, "./program.txt": f["program.txt"]}},
    "huge size": lambda f: {"files": {**f, "kernel.py": {"size": 10**300, "sha256": "0"}}},
    "endless size": lambda f: {"files": {**f, "kernel.py": {"size": math.inf, "sha256": "0"}}},
    "no number": lambda f: {"files": {**f, "kernel.py": {"size": math.nan, "sha256": "0"}}},
    "negative size": lambda f: {"files": {**f, "kernel.py": {"size": -1, "sha256": "0"}}},
    "size as text": lambda f: {"files": {**f, "kernel.py": {**f["kernel.py"], "size": "3000"}}},
    "digest of another type": lambda f: {"files": {**f, "kernel.py": {"size": 1, "sha256": 5}}},
    "hash of another file": lambda f: {"files": {**f, "kernel.py": f["launch0.ptx"]}},
    "a file that is not there": lambda f: {"files": {**f, "more.txt": f["kernel.py"]}},
    "a name in unicode": lambda f: {"files": {**f, "kern\u00e9l.py": f["kernel.py"]}},
    "a name like another": lambda f: {"files": {**f, "Kernel.py": f["kernel.py"]}},
    "files as a list": lambda f: {"files": [*f]},
    "no files": lambda f: {"files": {}},
    "a link up": lambda f: {"links": {"../x": "kernel.py"}},
    "a link to elsewhere": lambda f: {"links": {"x": "../../../../etc/passwd"}},
    "a link to itself": lambda f: {"links": {"x": "x"}},
    "a link that is not there": lambda f: {"links": {"x": "kernel.py"}},
    "links as a number": lambda f: {"links": 7},
    "another hash": lambda f: {"hash": "0" * 64},
    "another key": lambda f: {"key": {}},
    "a key of other types": lambda f: {"key": [1]},
    "another format": lambda f: {"format": "1"},
    "manifest as a list": lambda f: {"manifest": []},
    "a name that is no text": lambda f: {"manifest": {"name": 3}},
}


@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS)
def test_a_hostile_manifest_is_refused(
    files: dict[str, bytes],
    private: Directory,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], dict[str, object]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _pack(tmp_path / "archive.tar", _entry(files, change(_facts(files))))
    assert main(["cache", "import", str(tmp_path / "archive.tar")]) == 1
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[0].startswith("refused: ")
    assert HASH in out[0]
    assert out[1].startswith("0 new entries")
    assert _is_untouched(private, tmp_path)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[" * 100_000, b"null", b"\xff\xfe", b'{"digest": NaN}', b"9" * 5000],
    ids=["empty", "torn", "deep", "null", "no text", "no number", "a long number"],
)
def test_what_is_no_manifest_is_refused(
    files: dict[str, bytes], private: Directory, tmp_path: Path, text: bytes
) -> None:
    members = [m for m in _entry(files) if not m[0].endswith("manifest.json")]
    members.append((f"{FOLDER}/manifest.json", text))
    added, refused = archive.load(private, _pack(tmp_path / "archive.tar", members))
    assert (added, len(refused)) == (0, 1)
    assert "manifest.json" in refused[0]
    assert _is_untouched(private, tmp_path)


def test_deep_nesting_in_a_sealed_manifest_is_refused(
    files: dict[str, bytes], private: Directory, tmp_path: Path
) -> None:
    text = sealed({**json.loads(files["manifest.json"]), "manifest": {"deep": 0}})
    deep = text.replace('"deep": 0', '"deep": ' + "[" * 50_000 + "]" * 50_000)
    plain = deep.replace(json.loads(text)["digest"], "")
    whole = plain.replace(
        '"digest": ""', f'"digest": "{hashlib.sha256(plain.encode()).hexdigest()}"'
    )
    members = [m for m in _entry(files) if not m[0].endswith("manifest.json")]
    members.append((f"{FOLDER}/manifest.json", whole.encode()))
    added, refused = archive.load(private, _pack(tmp_path / "archive.tar", members))
    assert (added, len(refused)) == (0, 1)
    assert _is_untouched(private, tmp_path)


def test_files_that_no_manifest_names_are_left_behind(
    files: dict[str, bytes], private: Directory, tmp_path: Path
) -> None:
    extra = [
        (f"{FOLDER}/evil.pkl", b"x"), (f"{FOLDER}/more/evil.py", b"x"),
        (f"{FOLDER}/ir/99_more.txt", b"x"), (f"{FOLDER}/aside", "kernel.py"),
    ]  # fmt: skip
    added, refused = archive.load(
        private, _pack(tmp_path / "archive.tar", [*_entry(files), *extra])
    )
    assert added == 1
    assert sorted(refused) == sorted(f"{name}: in no manifest" for name, _ in extra)
    placed = private.programs / HASH
    left = {str(p.relative_to(placed)) for p in placed.rglob("*") if not p.is_dir()}
    assert left == set(files)
    assert not (placed / "more").exists()


@pytest.mark.parametrize(
    "name",
    [
        "programs/../../outside", "/outside", f"{FOLDER}/../../../outside", f"/{FOLDER}/kernel.py",
        f"{FOLDER}/.hidden", f"{FOLDER}/a/b/c", "programs/short/kernel.py", FOLDER, "programs",
        f"programs/{HASH.upper()}/kernel.py", f"{FOLDER}/kern\u00e9l.py", f"{FOLDER}/KERNEL.py",
        f"{FOLDER}/kernel.py", f"{FOLDER}/kernel.py/below", f"{FOLDER}/a\nb", f"{FOLDER}/{'n' * 201}",
        f"Programs/{HASH}/other.py", "",
    ],
)  # fmt: skip
def test_a_member_that_is_no_file_of_an_entry_is_refused_and_the_entry_is_taken(
    files: dict[str, bytes], private: Directory, tmp_path: Path, name: str
) -> None:
    members = [*_entry(files), (name, b"evil")]
    added, refused = archive.load(private, _pack(tmp_path / "archive.tar", members))
    assert (added, len(refused)) == (1, 1)
    assert refused[0].startswith(repr(name)[:200])
    assert not _staged(private)
    assert {p.name for p in tmp_path.iterdir()} == {"cache", "maker", "archive.tar"}
    assert Store().get(samples.key(0)) is not None


def test_what_unpacks_to_more_than_the_limit_is_refused(
    private: Directory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = [(f"{FOLDER}/zeros{n}", bytes(1 << 20)) for n in range(64)]
    _pack(tmp_path / "plain.tar", members)
    (tmp_path / "archive.tar").write_bytes(gzip.compress((tmp_path / "plain.tar").read_bytes()))
    (tmp_path / "plain.tar").unlink()
    with option.cache_limit("20MB"):
        assert main(["cache", "import", str(tmp_path / "archive.tar")]) == 2
    assert "limit of 20000000 bytes (TILEOPS_CACHE_LIMIT)" in capsys.readouterr().err
    assert _is_untouched(private, tmp_path)


def test_a_sparse_member_is_not_unpacked(
    files: dict[str, bytes], private: Directory, tmp_path: Path
) -> None:
    """A header of one block can say a terabyte of zeros."""
    member = tarfile.TarInfo(f"{FOLDER}/zeros")
    member.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0",
        "GNU.sparse.name": f"{FOLDER}/zeros", "GNU.sparse.realsize": str(1 << 40),
    }  # fmt: skip
    data = b"1\n0\n1\n".ljust(512, b"\0") + b"x"
    member.size = len(data)
    _pack(tmp_path / "archive.tar", [])
    with tarfile.open(tmp_path / "archive.tar", "w", format=tarfile.PAX_FORMAT) as made:
        made.addfile(member, io.BytesIO(data))
    added, refused = archive.load(private, tmp_path / "archive.tar")
    assert (added, len(refused)) == (0, 1)
    assert _is_untouched(private, tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_noise_in_an_archive_is_an_answer_in_words(
    files: dict[str, bytes], private: Directory, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """Any bytes anywhere: either an entry is whole, or the archive or the entry is refused."""
    chance = random.Random()
    whole = pack(_pack(tmp_path / "archive.tar", _entry(files)).read_bytes())
    for _ in range(60):
        noise = bytearray(whole)
        for _ in range(chance.choice((1, 3, 40))):
            at = chance.randrange(len(noise))
            noise[at : at + chance.choice((0, 1, 8))] = chance.randbytes(chance.choice((0, 1, 8)))
        (tmp_path / "archive.tar").write_bytes(noise)
        try:
            added, _ = archive.load(private, tmp_path / "archive.tar")
        except CacheError:
            added = 0
        assert added == len(list(private.programs.iterdir()))
        assert all(problem is None for _, problem in catalog.verify())
        for path in private.programs.iterdir():
            remove(path)
    assert _is_untouched(private, tmp_path)


HEADERS = {
    "GNU.sparse.map": "0,x", "GNU.sparse.size": "x", "GNU.sparse.realsize": "x", "size": "-512",
    "path": "\0", "hdrcharset": "BINARY", "mtime": "nan", "uid": "inf",
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_an_answer_in_words(
    files: dict[str, bytes], private: Directory, tmp_path: Path, name: str
) -> None:
    with tarfile.open(tmp_path / "archive.tar", "w", format=tarfile.PAX_FORMAT) as made:
        for member_name, data in _entry(files):
            assert isinstance(data, bytes)
            member = tarfile.TarInfo(member_name)
            member.size = len(data)
            member.pax_headers = {name: HEADERS[name]}
            made.addfile(member, io.BytesIO(data))
    with contextlib.suppress(CacheError):
        archive.load(private, tmp_path / "archive.tar")
    assert not _staged(private)
    assert all(problem is None for _, problem in catalog.verify())


# -- troubles on the way ---------------------------------------------------------------------------
def test_a_full_disk_during_an_import_leaves_nothing(
    files: dict[str, bytes], private: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    _pack(tmp_path / "archive.tar", _entry(files))
    count = [0]
    real = archive.files.write_file

    def write(path: Path, data: bytes) -> None:
        count[0] += 1
        if count[0] > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    monkeypatch.setattr(archive.files, "write_file", write)
    assert main(["cache", "import", str(tmp_path / "archive.tar")]) == 2
    err = capsys.readouterr().err
    assert f"cannot import into {private.root}" in err
    assert "No space left on device" in err
    assert _is_untouched(private, tmp_path)


def test_imports_and_prunes_at_a_time(private: Directory, tmp_path: Path) -> None:
    with option.cache_dir(tmp_path / "maker"):
        entries = [Store().fetch(samples.key(n), lambda n=n: samples.built(n)) for n in range(6)]
        maker = catalog.here().private
    assert maker is not None
    archive.export([e.path for e in entries if e.path], maker.trust, tmp_path / "archive.tar")
    problems: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            for _ in range(3):
                work()
        except BaseException as error:
            problems.append(error)

    work = [lambda: archive.load(private, tmp_path / "archive.tar")] * 2
    prune = [lambda: usage.make_room(private, 40_000), lambda: staging.sweep(private)]
    threads = [threading.Thread(target=run, args=(job,)) for job in (*work, *prune)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    archive.load(private, tmp_path / "archive.tar")
    assert len(catalog.verify()) == 6
    assert all(problem is None for _, problem in catalog.verify())


# -- export ----------------------------------------------------------------------------------------
def test_an_export_holds_what_the_manifest_names_and_no_more(
    private: Directory, tmp_path: Path
) -> None:
    path = Store().fetch(samples.key(0), samples.built).path
    assert path is not None
    archive.export([path], private.trust, tmp_path / "one.tar")
    (path / "ir" / "99_dump.txt").write_text("a dump")
    (path / "evil.pkl").write_text("x")
    archive.export([path], private.trust, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_an_export_that_fails_leaves_no_file(
    private: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Store().fetch(samples.key(0), samples.built).path
    assert path is not None
    monkeypatch.setattr(
        tarfile.TarFile, "addfile", lambda *a: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(OSError, match="full"):
        archive.export([path], private.trust, tmp_path / "one.tar")
    assert {p.name for p in tmp_path.iterdir()} == {"cache"}


def test_an_export_without_hard_links(
    private: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EPERM, "no hard links")

    path = Store().fetch(samples.key(0), samples.built).path
    assert path is not None
    monkeypatch.setattr(os, "link", refuse)
    assert archive.export([path], private.trust, tmp_path / "one.tar") == (1, [])
    with pytest.raises(FileExistsError):
        archive.export([path], private.trust, tmp_path / "one.tar")


def test_an_entry_that_vanishes_during_an_export_of_all(private: Directory, tmp_path: Path) -> None:
    paths = [Store().fetch(samples.key(n), lambda n=n: samples.built(n)).path for n in range(3)]
    assert paths[1] is not None
    shutil.rmtree(paths[1])
    found = [path for path in paths if path is not None]
    assert archive.export(found, private.trust, tmp_path / "a.tar", skip_damaged=True) == (2, [])
    with pytest.raises(CacheError):
        archive.export(found, private.trust, tmp_path / "b.tar")


def test_an_entry_of_a_layer_is_exported_by_name_and_the_whole_one_of_two_is_found(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = [tmp_path / name for name in ("one", "two", "three")]
    for layer in layers:
        with option.cache_dir(layer):
            Store().fetch(samples.key(0), samples.built)
    for layer in (layers[0], layers[2]):
        (layer / "programs" / HASH / "kernel.py").write_bytes(b"x")
    with option.cache_path(*layers):
        assert main(["cache", "show", HASH[:12]]) == 0
        assert str(layers[1]) in capsys.readouterr().out
        assert main(["cache", "export", str(tmp_path / "out.tar"), HASH[:12]]) == 0
        with pytest.warns(match="damaged cache entry, passed over"):
            found = Store().get(samples.key(0))
        assert found is not None
        assert found.path == layers[1] / "programs" / HASH
    assert main(["cache", "import", str(tmp_path / "out.tar")]) == 0

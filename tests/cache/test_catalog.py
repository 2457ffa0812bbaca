"""Questions to the cache, and carrying it: the catalogue, the archive, the command line."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.cache import samples
from tileops import option
from tileops.cache import Store, archive, catalog, scripts
from tileops.cache.files import remove
from tileops.cache.identity import identity
from tileops.cli.main import main
from tileops.errors import CacheError


@pytest.fixture
def three(root: Path) -> list[str]:
    """Two entries of op f that differ in the toolchain, and one of op g; their hashes."""
    hashes = []
    for number, name, triton in ((0, "f", "3.6.0"), (0, "f", "3.9.0"), (1, "g", "3.9.0")):
        key = samples.key(number, toolchain={"triton": triton})
        made = samples.built(number)
        entry = Store().put(key, made.files, {**made.manifest, "name": name})
        scripts.record(scripts.Script(name, "ab" * 32), entry, {"fast": True})
        hashes.append(entry.hash)
    return hashes


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(arguments)
    taken = capsys.readouterr()
    return status, taken.out + taken.err


def test_ls(three: list[str], root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = _run(capsys, "cache", "ls")
    assert status == 0
    lines = text.splitlines()
    assert lines[0].split() == ["hash", "op", "target", "facts", "size", "used"]
    assert {line.split()[0] for line in lines[1:4]} == {h[:12] for h in three}
    assert "cuda:sm_90a" in lines[1]
    assert lines[4].startswith("3 entries, ")
    assert lines[4].endswith(str(root))
    assert len(_run(capsys, "cache", "ls", "g")[1].splitlines()) == 3


def test_ls_json(three: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(_run(capsys, "cache", "ls", "--json")[1])
    assert {row["hash"] for row in rows} == set(three)
    assert {row["name"] for row in rows} == {"f", "g"}
    assert all(row["problem"] is None and row["bytes"] > 9000 for row in rows)


def test_ls_of_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no entries" in _run(capsys, "cache", "ls")[1]
    assert not root.exists()


def test_show(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = {
        "name": "f",
        "record": {
            "launches": [
                {
                    "entry": "f_kernel",
                    "threads": 128,
                    "shared_bytes": 49152,
                    "params": [
                        {
                            "kind": "tensormap",
                            "index": 1,
                            "box": [64, 32],
                            "swizzle": 3,
                            "elem_type": 6,
                        }
                    ],
                }
            ]
        },
        "resources": [
            {
                "language": "gluon",
                "registers": 168,
                "spills": 0,
                "notes": ["a thread keeps 8 bytes"],
            }
        ],
    }
    files = {"kernel.py": b"# the generated source\n", "launch0.cubin": b"x"}
    entry = Store().put(samples.key(), files, manifest)
    status, text = _run(capsys, "cache", "show", entry.hash[:10])
    assert status == 0
    for part in (
        "f_kernel",
        "128",
        "49152",
        "168",
        "gluon",
        "launch 0: map of tensor 1, box [64, 32], swizzle 3, element type 6\n",
        "launch 0: a thread keeps 8 bytes\n",
        "program f0(",
        "# the generated source",
        "3.9.0",
    ):
        assert part in text
    content = json.loads(_run(capsys, "cache", "show", entry.hash, "--json")[1])
    assert content["manifest"]["resources"][0]["registers"] == 168
    assert content["files"]["launch0.cubin"] == 1


@pytest.mark.parametrize("prefix", ["ffff", "xyz", "", "../.."])
def test_show_of_what_is_not_there(
    three: list[str], prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if any(h.startswith(prefix) for h in three) and prefix:
        pytest.fail("choose another prefix")
    status, text = _run(capsys, "cache", "show", prefix)
    assert status == 2
    assert text.startswith("tileops: ")


def test_why(three: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, text = _run(capsys, "cache", "why", three[0])
    assert status == 0
    assert f"nearest: {three[1][:12]} f" in text
    assert "differs in: toolchain" in text
    assert 'triton: "3.9.0" -> "3.6.0"' in text
    found = json.loads(_run(capsys, "cache", "why", three[0], "--json")[1])
    same = identity(samples.key().fields)
    assert found == {"identity": same, "nearest": three[1], "fields": ["toolchain"], "parts": []}
    assert f"identity: {same[:12]}, the nearest has the same" in text
    assert f"identity: {same}" in _run(capsys, "cache", "show", three[0])[1]
    assert json.loads(_run(capsys, "cache", "show", three[0], "--json")[1])["identity"] == same


def test_why_missed_names_the_field(three: list[str]) -> None:
    new = samples.key(0, toolchain={"triton": "3.9.1"})
    assert catalog.why_missed(new, "f") == "changed: toolchain"
    other = samples.key(0, toolchain={"triton": "3.9.0"}, target="cuda:sm_100a")
    assert catalog.why_missed(other, "f") == "changed: target"
    assert catalog.why_missed(new, "unknown") == "first compile of this op"
    with option.cache_disable():
        assert catalog.why_missed(new, "f") == "no cache directory"


def test_verify_and_repair(
    three: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(capsys, "cache", "verify")[0] == 0
    (root / "programs" / three[0] / "kernel.py").write_bytes(b"x")
    status, text = _run(capsys, "cache", "verify")
    assert status == 1
    assert "kernel.py is not what was written" in text
    assert _run(capsys, "cache", "ls")[0] == 0
    assert _run(capsys, "cache", "verify", "--repair")[0] == 0
    assert _run(capsys, "cache", "verify")[1].startswith("2 entries, 0 damaged")


def test_prune_and_clear(three: list[str], root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (root / ".state" / "in_use").iterdir():
        path.unlink()
    assert _run(capsys, "cache", "prune", "--limit", "20KB")[1] == "2 entries removed\n"
    for thread in threading.enumerate():
        if thread.name == "tileops-evict":  # it sweeps the scripts that `clear` removes
            thread.join()
    assert _run(capsys, "cache", "prune", "--days", "1")[1] == "0 entries removed\n"
    assert _run(capsys, "cache", "prune", "--limit", "much")[0] == 2
    # What a process leaves that ends while it removes a script.
    (root / "scripts" / "some_op").mkdir()
    (root / "scripts" / "other_op" / "0123456789ab").mkdir(parents=True)
    (root / "scripts" / "other_op" / "0123456789ab" / ".lock").touch()
    assert _run(capsys, "cache", "clear", "--json")[0] == 0
    assert list((root / "programs").iterdir()) == []
    assert not (root / "scripts").exists()


def test_export_and_import(
    three: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kernels.tar"
    assert _run(capsys, "cache", "export", str(file))[0] == 0
    assert _run(capsys, "cache", "export", str(file))[0] == 2, "never overwrites"
    again = tmp_path / "again.tar"
    assert _run(capsys, "cache", "export", str(again))[0] == 0
    assert file.read_bytes() == again.read_bytes()
    with option.cache_dir(tmp_path / "other"):
        assert _run(capsys, "cache", "import", str(file))[1].startswith("3 new entries")
        assert _run(capsys, "cache", "import", str(file))[1].startswith("0 new entries")
        assert _run(capsys, "cache", "verify")[0] == 0
        found = Store().get(samples.key(1, toolchain={"triton": "3.9.0"}))
        assert found is not None
        assert samples.is_right(found.files, 1)
    one = tmp_path / "one.tar"
    assert _run(capsys, "cache", "export", str(one), three[2][:12])[1].startswith("1 entries")


Member = tuple[tarfile.TarInfo, bytes]


def _member(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Member:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.size = len(data) if kind == tarfile.REGTYPE else 0
    member.linkname = link
    return member, data


def _loaded(file: Path, members: Iterable[Member]) -> tuple[int, list[str]]:
    """What ``archive.load`` says of an archive of these members."""
    with tarfile.open(file, "w") as made:
        for member, data in members:
            made.addfile(member, io.BytesIO(data) if member.size else None)
    directory = catalog.here().private
    assert directory is not None
    return archive.load(directory, file)


def test_a_hostile_archive_changes_nothing(root: Path, tmp_path: Path) -> None:
    entry = "programs/" + "ab" * 32
    members = (
        _member("../../evil"),
        _member("/etc/evil"),
        _member("programs/../../evil"),
        _member(f"{entry}/../../../evil"),
        _member(f"{entry}/link", kind=tarfile.SYMTYPE, link="../../../outside"),
        _member(f"{entry}/device", kind=tarfile.CHRTYPE),
        _member(f"{entry}/kernel.py"),
    )
    added, refused = _loaded(tmp_path / "hostile.tar", members)
    assert added == 0
    assert len(refused) == 7
    assert list((root / "programs").iterdir()) == []
    assert list((root / ".state" / "staging").iterdir()) == []
    assert not list(tmp_path.rglob("evil"))


def test_links_in_an_archive_are_not_walked_through(root: Path, tmp_path: Path) -> None:
    entry = "programs/" + "ab" * 32
    members = (
        _member(f"{entry}/up", kind=tarfile.SYMTYPE, link=".."),
        _member(f"{entry}/up/out", kind=tarfile.SYMTYPE, link=".."),
        _member("programs/out/evil"),
        _member("programs/out/up", kind=tarfile.SYMTYPE, link=".."),
        _member("programs/out/up/evil"),
        _member(f"{entry}/side", kind=tarfile.SYMTYPE, link="other"),
        _member(f"{entry}/side/evil"),
    )
    added, _ = _loaded(tmp_path / "hostile.tar", members)
    assert added == 0
    assert list((root / ".state" / "staging").iterdir()) == []
    assert {path.name for path in (root / ".state").iterdir()} <= {"staging", "size"}
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("odd", ["twice", "long", "below a file"])
def test_an_odd_member_is_refused_and_the_others_are_taken(
    three: list[str], root: Path, tmp_path: Path, odd: str
) -> None:
    directory = catalog.here().private
    assert directory is not None
    file = tmp_path / "entries.tar"
    archive.export([directory.programs / h for h in three], directory.trust, file)
    name = {
        "twice": f"programs/{three[0]}/manifest.json",
        "long": f"programs/{three[0]}/{'n' * 300}",
        "below a file": f"programs/{three[0]}/manifest.json/x",
    }[odd]
    with tarfile.open(file, "a") as made:
        member, data = _member(name)
        made.addfile(member, io.BytesIO(data))
    for entry_hash in three:
        remove(directory.programs / entry_hash)
    added, refused = archive.load(directory, file)
    assert added == 3
    assert len(refused) == 1
    assert list((root / ".state" / "staging").iterdir()) == []


def test_a_torn_archive(three: list[str], root: Path, tmp_path: Path) -> None:
    directory = catalog.here().private
    assert directory is not None
    file = tmp_path / "entries.tar"
    archive.export([directory.programs / h for h in three], directory.trust, file)
    packed = gzip.compress(file.read_bytes())
    for data in (packed[: len(packed) // 2], packed[:300] + bytes(50) + packed[350:]):
        file.write_bytes(data)
        with pytest.raises(CacheError, match="not an archive"):
            archive.load(directory, file)


def test_an_archive_with_a_damaged_byte(three: list[str], root: Path, tmp_path: Path) -> None:
    """A damaged header, or a member that became zeros, does not end an archive early."""
    directory = catalog.here().private
    assert directory is not None
    file = tmp_path / "entries.tar"
    archive.export([directory.programs / h for h in three], directory.trust, file)
    whole = file.read_bytes()
    with tarfile.open(file) as tar:
        offsets = [member.offset for member in tar.getmembers()]
    packed = gzip.compress(whole)
    damaged = [whole[:n] + b"\xff" * 512 + whole[n + 512 :] for n in offsets]
    damaged += [whole[:n] + bytes(512) + whole[n + 512 :] for n in offsets]
    damaged += [whole + b"more", whole[: offsets[-1] + 100], whole + whole]
    damaged += [packed[:n] + bytes([packed[n] ^ 0xFF]) + packed[n + 1 :] for n in (60, -5, -7)]
    damaged += [packed[:-4], packed[:-9], gzip.compress(damaged[1])]
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(CacheError, match="not an archive"):
            archive.load(directory, file)
    for data in (whole, packed, whole + bytes(10240), packed + bytes(512)):
        file.write_bytes(data)
        assert archive.load(directory, file) == (0, [])


def test_what_is_no_archive(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("not an archive")
    directory = catalog.here().private
    assert directory is not None
    with pytest.raises(CacheError, match="not an archive"):
        archive.load(directory, file)


def test_a_layer_is_listed_but_not_removed(
    three: list[str], root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with option.cache_dir(tmp_path / "private"), option.cache_path(root):
        assert "(layer)" in _run(capsys, "cache", "ls")[1]
        assert _run(capsys, "cache", "clear")[1] == "0 entries removed\n"
    assert len(list((root / "programs").iterdir())) == 3


def test_env(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = _run(capsys, "env")
    assert status == 0
    for name in ("python", "torch", "triton", "c++ compiler", "cache", "missing"):
        assert name in text
    assert json.loads(_run(capsys, "env", "--json")[1])["cache"].startswith(str(root))
    assert not root.exists()

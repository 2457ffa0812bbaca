"""Damage: whatever happens to a file of an entry: a right result, one recompile, then healed."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache import samples
from tileops import log
from tileops.cache import Built, Store

NAMES = (
    "manifest.json", "program.txt", "options.txt", "kernel.py", "launch0.ptx", "launch0.cubin",
    "params.json", "ir/01_place.txt", "kernel.cubin",
)  # fmt: skip


def _truncate(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def _flip(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[min(2000, len(data) // 2)] ^= 0x10
    path.write_bytes(bytes(data))


def _grow(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def _delete(path: Path, other: Path) -> None:
    path.unlink()


def _to_directory(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


def _to_link(path: Path, other: Path) -> None:
    # The target has the very bytes that belong there: a link is refused all the same.
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)


def _swap(path: Path, other: Path) -> None:
    data = other.read_bytes()
    path.unlink()
    path.write_bytes(data)


def _fifo(path: Path, other: Path) -> None:
    import os

    path.unlink()
    os.mkfifo(path)


DAMAGES = (_truncate, _empty, _flip, _grow, _delete, _to_directory, _to_link, _swap, _fifo)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__.strip("_"))
def test_one_recompile_then_healed(
    root: Path, name: str, damage: Callable[[Path, Path], None]
) -> None:
    folders = []
    for number in (0, 1):
        entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n))
        assert entry.path is not None
        folders.append(entry.path)
    damage(folders[0] / name, folders[1] / name)
    _check_one_recompile(root)


def _check_one_recompile(root: Path, number: int = 0) -> None:
    calls: list[int] = []

    def build() -> Built:
        calls.append(1)
        return samples.built(number)

    log._warned.clear()
    with pytest.warns(RuntimeWarning, match="damaged cache entry") as caught:
        entry = Store().fetch(samples.key(number), build)
    assert len([w for w in caught if "damaged" in str(w.message)]) == 1
    assert str(root) in str(caught[0].message)
    assert samples.is_right(entry.files, number)
    assert len(calls) == 1
    healed = Store().fetch(samples.key(number), build)
    assert samples.is_right(healed.files, number)
    assert len(calls) == 1
    assert list((root / ".state" / "staging").iterdir()) == []


def test_a_whole_entry_in_the_place_of_another_is_no_hit(root: Path) -> None:
    folders = []
    for number in (0, 1):
        entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n))
        assert entry.path is not None
        folders.append(entry.path)
    shutil.rmtree(folders[0])
    shutil.copytree(folders[1], folders[0], symlinks=True)
    _check_one_recompile(root)


@pytest.mark.parametrize("kind", ["file", "link", "empty folder", "dangling link"])
def test_the_folder_itself_replaced(root: Path, kind: str) -> None:
    entry = Store().fetch(samples.key(), samples.built)
    assert entry.path is not None
    aside = root / "aside"
    entry.path.rename(aside)
    match kind:
        case "file":
            entry.path.write_text("no folder")
        case "link":
            entry.path.symlink_to(aside)
        case "empty folder":
            entry.path.mkdir()
        case "dangling link":
            entry.path.symlink_to(root / "nowhere")
    _check_one_recompile(root)
    assert (aside / "launch0.cubin").is_file(), "what a link names is left alone"


HOSTILE = {
    "no json": "{",
    "a list": "[]",
    "null": "null",
    "deep": "[" * 100_000,
    "a number": "1e999",
    "big integer": '{"digest": ' + "9" * 5000 + "}",
    "no digest": '{"format": 1}',
    "not ascii": '{"digest": "\u00e9"}',
    "duplicate": '{"digest": "a", "digest": "b"}',
    "wrong types": '{"digest": [], "files": 3, "links": "x", "key": null}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_a_miss(root: Path, text: str) -> None:
    entry = Store().fetch(samples.key(), samples.built)
    assert entry.path is not None
    (entry.path / "manifest.json").write_text(text)
    _check_one_recompile(root)


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../../../etc/passwd": {"size": 1, "sha256": "0"}}},
        {"files": {"/etc/passwd": {"size": 1, "sha256": "0"}}},
        {"files": {}},
        {"files": {"program.txt": {"size": 10**18, "sha256": "0"}}},
        {"links": {"kernel.cubin": "../../x"}},
        {"links": {"kernel.cubin": 3}},
        {"key": {"target": "cpu"}},
        {"format": 99},
        {"hash": "0" * 64},
        {"manifest": None, "files": None},
        {"manifest": []},
        {"manifest": {"name": ["f0"]}},
        {"files": {"program.txt": {"size": math.inf, "sha256": "0"}}},
        {"files": {"program.txt": {"size": math.nan, "sha256": "0"}}},
        {"files": {"program.txt": {"size": -1, "sha256": "0"}}},
        {"files": {"program.txt": {"size": True, "sha256": "0"}}},
        {"files": {"program.txt": {"size": "37", "sha256": "0"}}},
        {"files": {"program.txt": {"size": 37, "sha256": None}}},
        {"files": {"program.txt": []}},
        {"files": {"n" * 300: {"size": 1, "sha256": "0"}}},
        {"files": {"progr\u00e4m.txt": {"size": 1, "sha256": "0"}}},
        {"files": ["program.txt"]},
        {"links": {"../other/kernel.cubin": "launch0.cubin"}},
        {"links": ["kernel.cubin"]},
        {"key": {"target": "\ud800"}},
        {"key": []},
    ],
    ids=str,
)
def test_a_manifest_with_a_right_digest_and_wrong_content_is_a_miss(
    root: Path, change: dict[str, object]
) -> None:
    from tileops.cache.entry import sealed

    entry = Store().fetch(samples.key(), samples.built)
    assert entry.path is not None
    path = entry.path / "manifest.json"
    content = json.loads(path.read_text())
    for name, value in change.items():
        # What the change does not name stays, so that nothing but the change is wrong.
        both = value and isinstance(value, dict) and isinstance(content[name], dict)
        content[name] = {**content[name], **value} if both else value
    path.write_text(sealed(content))
    _check_one_recompile(root)


def test_links_that_a_copy_made_into_files_are_accepted(root: Path) -> None:
    entry = Store().fetch(samples.key(), samples.built)
    assert entry.path is not None
    link = entry.path / "kernel.cubin"
    data = link.read_bytes()
    link.unlink()
    link.write_bytes(data)
    assert Store().get(samples.key()) is not None


def test_files_that_no_manifest_names_are_never_read(root: Path, tmp_path: Path) -> None:
    entry = Store().fetch(samples.key(), samples.built)
    assert entry.path is not None
    marker = tmp_path / "marker"
    planted = f"cposix\nsystem\n(S'touch {marker}'\ntR.".encode()
    for name in ("params.pkl", "function.pkl", "evil.pkl", "conftest.py", "sitecustomize.py"):
        (entry.path / name).write_bytes(planted)
    answer = samples.ask(root)
    assert answer["right"]
    assert answer["builds"] == 0
    assert answer["stats"]["disk_hits"] == 1  # type: ignore[index]
    assert not marker.exists()


def test_reading_never_unpickles(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    def refuse(*args: object, **more: object) -> object:
        raise AssertionError("pickle was used")

    Store().fetch(samples.key(), samples.built)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert Store().get(samples.key()) is not None

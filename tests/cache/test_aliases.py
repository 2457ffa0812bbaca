"""Aliases: an entry is found by its identity, whatever compiler made it, and the alias goes with it."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cache import samples
from tileops import counters, log, option
from tileops.cache import Key, Store, aliases, archive, usage
from tileops.cache.directory import here
from tileops.cache.identity import identity
from tileops.cache.kernel_cache import clear_cache
from tileops.cli.main import main

OLD, NEW = {"triton": "3.6.0"}, {"triton": "3.9.0"}


def made_by(toolchain: dict[str, str], number: int = 0, **changes: object) -> Key:
    return samples.key(number, toolchain=toolchain, **changes)


def same(number: int = 0) -> str:
    return identity(samples.key(number).fields)


def alias_of(root: Path, key: Key) -> Path:
    name = identity(key.fields)
    return root / "aliases" / name[:2] / name / key.hash()


def all_aliases(root: Path) -> list[Path]:
    return sorted((root / "aliases").glob("*/*/*"))


def fill(number: int = 0, toolchain: dict[str, str] = OLD) -> Key:
    key = made_by(toolchain, number)
    Store().fetch(key, lambda: samples.built(number))
    return key


def test_an_entry_is_found_by_its_identity(root: Path) -> None:
    key = fill()
    assert all_aliases(root) == [alias_of(root, key)]
    assert list(alias_of(root, key).iterdir()) == []
    counters.stats(reset=True)
    store = Store()
    found = store.find_alike(same())
    assert found is not None
    assert found.key == key
    assert samples.is_right(found.files, 0)
    assert store.find_alike(same()) is found, "from memory"
    stats = counters.stats()
    assert (stats["misses"], stats["disk_hits"], stats["memory_hits"]) == (0, 1, 1)
    assert store.get(made_by(NEW)) is None, "the key says another compiler"
    assert store.find_alike(same(1)) is None


def test_of_several_entries_the_last_used_one_that_serves(root: Path) -> None:
    old, new = fill(), fill(toolchain=NEW)
    os.utime(root / "programs" / old.hash(), (1000, 1000))
    assert aliases.entries_of(here().private, same()) == [new.hash(), old.hash()]  # type: ignore[arg-type]
    assert Store().find_alike(same()).key == new  # type: ignore[union-attr]
    found = Store().find_alike(same(), lambda entry: entry.key == old)
    assert found is not None
    assert found.key == old
    assert Store().find_alike(same(), lambda entry: False) is None


def test_a_layer_serves_too(root: Path, tmp_path: Path) -> None:
    fill()
    with option.cache_dir(tmp_path / "own"), option.cache_path(root):
        found = Store().find_alike(same())
        assert found is not None
        assert found.path is not None
        assert found.path.parent == root / "programs"
        assert not (tmp_path / "own").exists()


def test_an_alias_is_a_claim_that_the_entry_must_bear_out(root: Path) -> None:
    key = fill()
    aliases.add(here().private, same(1), key.hash())  # type: ignore[arg-type]
    assert Store().find_alike(same(1)) is None
    (root / "programs" / key.hash() / "kernel.py").write_bytes(b"x")
    with pytest.warns(log.TileopsWarning, match="damaged cache entry, passed over"):
        assert Store().find_alike(same()) is None
    other = fill(toolchain=NEW)
    assert Store().find_alike(same()).key == other  # type: ignore[union-attr]


def test_what_is_no_alias_is_left_alone(root: Path) -> None:
    key = fill()
    folder = alias_of(root, key).parent
    (folder / "notes.txt").write_text("mine")
    (root / "aliases" / "readme").write_text("mine")
    (folder / ("a" * 64)).symlink_to("/nonexistent")
    assert Store().find_alike(same()).key == key  # type: ignore[union-attr]
    clear_cache()
    assert sorted(p.name for p in folder.iterdir()) == ["a" * 64, "notes.txt"]
    assert (root / "aliases" / "readme").exists()


def evict(root: Path) -> None:
    for path in (root / ".state" / "in_use").iterdir():
        path.unlink()
    usage.make_room(here().private, 0)  # type: ignore[arg-type]
    for thread in threading.enumerate():
        if thread.name == "tileops-evict":
            thread.join()


@pytest.mark.parametrize(
    "remove",
    [evict, lambda root: clear_cache(), lambda root: main(["cache", "clear"])],
    ids=["evict", "clear_cache", "cache clear"],
)
def test_aliases_go_with_their_entries(root: Path, remove: Callable[[Path], object]) -> None:
    for number in range(3):
        fill(number)
    assert len(all_aliases(root)) == 3
    remove(root)
    assert list((root / "programs").iterdir()) == []
    assert not (root / "aliases").exists()
    fill()
    assert Store().find_alike(same()) is not None


def test_prune_removes_what_leads_nowhere(root: Path) -> None:
    gone, stays = fill(0), fill(1)
    shutil.rmtree(root / "programs" / gone.hash())
    assert Store().find_alike(same()) is None
    assert main(["cache", "prune"]) == 0
    assert all_aliases(root) == [alias_of(root, stays)]


def verify(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    status = main(["cache", "verify", "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def test_verify_finds_and_mends(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [fill(number) for number in range(3)]
    assert verify(capsys)[1]["aliases"] == []
    alias_of(root, keys[0]).rmdir()
    shutil.rmtree(root / "programs" / keys[1].hash())
    status, found = verify(capsys)
    assert status == 0, "they cost a compile at most"
    assert found["aliases"] == [
        f"{alias_of(root, keys[1])}: its entry is gone",
        f"{alias_of(root, keys[0])}: it is missing: the entry is found only by its key",
    ]
    aliases.add(here().private, same(1), keys[2].hash())  # type: ignore[arg-type]
    status, found = verify(capsys)
    assert status == 1
    wrong = alias_of(root, keys[1]).with_name(keys[2].hash())
    assert f"{wrong}: its entry has another identity" in found["aliases"]  # type: ignore[operator]
    status, found = verify(capsys, "--repair")
    assert (status, found["mended"]) == (0, 3)
    assert verify(capsys)[1]["aliases"] == []
    assert all_aliases(root) == sorted(alias_of(root, key) for key in (keys[0], keys[2]))


def test_an_import_makes_aliases(root: Path, tmp_path: Path) -> None:
    key = fill()
    private = here().private
    assert private is not None
    archive.export([private.programs / key.hash()], private.trust, tmp_path / "a.tar")
    with option.cache_dir(tmp_path / "other"):
        assert main(["cache", "import", str(tmp_path / "a.tar")]) == 0
        assert all_aliases(tmp_path / "other") == [alias_of(tmp_path / "other", key)]
        assert Store().find_alike(same()).key == key  # type: ignore[union-attr]


def test_an_alias_that_cannot_be_made_costs_nothing_but_itself(root: Path) -> None:
    root.mkdir()
    (root / "aliases").write_text("in the way")
    with pytest.warns(log.TileopsWarning, match="cannot make an alias in"):
        key = fill()
    assert Store().get(key) is not None
    assert Store().find_alike(same()) is None


def test_making_and_sweeping_at_a_time_loses_no_alias(root: Path) -> None:
    private = here().private
    assert private is not None
    key = fill()
    entry = private.programs / key.hash()
    aside = root / "aside"

    def publish() -> None:
        for _ in range(200):
            entry.rename(aside)
            aside.rename(entry)
            aliases.add(private, same(), key.hash())

    def sweep() -> None:
        for _ in range(200):
            aliases.sweep(private)

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(publish), pool.submit(sweep), pool.submit(sweep)]
    for job in jobs:
        job.result()
    assert all_aliases(root) == [alias_of(root, key)]

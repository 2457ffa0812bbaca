"""The store: hits and misses, layout on disk, layers, what is kept, threads."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.cache import samples
from tileops import counters, option
from tileops.cache import Built, Store
from tileops.cache import entry as entry_module
from tileops.cache.files import remove
from tileops.errors import InternalError


def test_compiled_once_then_memory_then_disk(store: Store, root: Path) -> None:
    calls: list[int] = []

    def build() -> Built:
        calls.append(1)
        return samples.built()

    first = store.fetch(samples.key(), build)
    again = store.fetch(samples.key(), build)
    other = Store().fetch(samples.key(), build)
    assert len(calls) == 1
    assert samples.is_right(other.files, 0)
    assert first.manifest == again.manifest == other.manifest
    assert dict(first.files) == dict(other.files)
    stats = counters.stats()
    assert (stats["misses"], stats["memory_hits"], stats["disk_hits"]) == (1, 1, 1)
    assert other.path == root / "programs" / samples.key().hash()


def test_get_counts_a_miss_and_put_is_found(store: Store) -> None:
    assert store.get(samples.key()) is None
    assert counters.stats()["misses"] == 1
    made = samples.built()
    store.put(samples.key(), made.files, made.manifest)
    found = Store().get(samples.key())
    assert found is not None
    assert samples.is_right(found.files, 0)


def test_the_layout_can_be_read_with_ls(store: Store, root: Path) -> None:
    entry = store.fetch(samples.key(), samples.built)
    assert entry.path is not None
    names = {p.relative_to(entry.path).as_posix() for p in entry.path.rglob("*")}
    assert names == {
        "manifest.json", "program.txt", "options.txt", "kernel.py", "launch0.ptx", "launch0.cubin",
        "params.json", "kernel.cubin", "ir", "ir/01_place.txt",
    }  # fmt: skip
    assert (entry.path / "program.txt").read_text() == samples.key().fields["ir"]
    assert "target: cuda:sm_90a" in (entry.path / "options.txt").read_text()
    assert (entry.path / "kernel.cubin").readlink() == Path("launch0.cubin")
    assert sorted(p.name for p in root.iterdir()) == [".state", "aliases", "programs"]
    assert list((root / ".state" / "staging").iterdir()) == []


def test_an_entry_is_the_same_bytes_everywhere_and_names_no_place(tmp_path: Path) -> None:
    trees = []
    for name in ("a", "b"):
        with option.cache_dir(tmp_path / name / "deep"):
            entry = Store().fetch(samples.key(), samples.built)
            assert entry.path is not None
            files = [p for p in sorted(entry.path.rglob("*")) if p.is_file()]
            trees.append({p.relative_to(entry.path): p.read_bytes() for p in files})
    assert trees[0] == trees[1]
    for name, data in trees[0].items():
        assert str(tmp_path).encode() not in data, name
        assert b"/home/" not in data, name


def test_a_moved_cache_still_hits(store: Store, root: Path, tmp_path: Path) -> None:
    store.fetch(samples.key(), samples.built)
    root.rename(tmp_path / "moved")
    with option.cache_dir(tmp_path / "moved"):
        found = Store().get(samples.key())
    assert found is not None
    assert samples.is_right(found.files, 0)


def test_the_directory_may_be_deleted_at_any_time(store: Store, root: Path) -> None:
    import shutil

    store.fetch(samples.key(0), samples.built)
    shutil.rmtree(root)
    assert samples.is_right(store.fetch(samples.key(0), samples.built).files, 0)
    assert samples.is_right(store.fetch(samples.key(1), lambda: samples.built(1)).files, 1)
    assert (root / "programs" / samples.key(1).hash() / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["", "manifest.json", "launch0.cubin", "ir"])
def test_what_was_deleted_of_an_entry_in_memory_is_written_again(store: Store, name: str) -> None:
    entry = store.fetch(samples.key(), samples.built)
    assert entry.path is not None
    assert remove(entry.path / name)
    again = store.fetch(samples.key(), samples.built)
    assert again.path == entry.path
    assert samples.is_right(Store().fetch(samples.key(), samples.built).files, 0)
    assert (entry.path / "kernel.cubin").readlink() == Path("launch0.cubin")
    assert counters.stats()["misses"] == 1


def test_a_deleted_entry_that_cannot_be_written_again_has_no_path(store: Store) -> None:
    entry = store.fetch(samples.key(), samples.built)
    assert entry.path is not None
    remove(entry.path)
    with option.cache_disable():
        again = store.fetch(samples.key(), samples.built)
    assert again.path is None
    assert samples.is_right(again.files, 0)


def test_an_entry_that_is_taken_out_while_it_is_read_is_a_miss_without_a_warning(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store().fetch(samples.key(), samples.built)
    real = entry_module.read_file

    def read(path: Path, **more: Any) -> bytes:
        data = real(path, **more)
        if path.name == "manifest.json" and (root / "programs").exists():
            shutil.rmtree(root / "programs")
        return data

    monkeypatch.setattr(entry_module, "read_file", read)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(samples.key()) is None


@pytest.mark.parametrize("what", ["cache", "cache/.state/staging", "cache/programs"])
def test_what_is_cleared_while_an_entry_is_written_is_written_again(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    real = entry_module.write_file
    names: list[str] = []

    def write(path: Path, data: bytes, **how: bool) -> None:
        names.append(path.name)
        if len(names) == 3:
            shutil.rmtree(root.parent / what)
        real(path, data, **how)

    monkeypatch.setattr(entry_module, "write_file", write)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entry = store.fetch(samples.key(), samples.built)
    assert entry.path is not None
    assert names.count("manifest.json") <= 2
    assert Store().get(samples.key()) is not None
    assert list((root / ".state" / "staging").iterdir()) == []


def test_a_directory_named_later_receives_what_is_in_memory(store: Store, tmp_path: Path) -> None:
    store.fetch(samples.key(), samples.built)
    with option.cache_dir(tmp_path / "later"):
        entry = store.fetch(samples.key(), samples.built)
        assert entry.path is not None
        assert entry.path.is_relative_to(tmp_path / "later")
        assert (entry.path / "kernel.cubin").readlink() == Path("launch0.cubin")
    assert counters.stats()["misses"] == 1


def test_disabled_means_memory_only(store: Store, root: Path) -> None:
    with option.cache_disable(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.fetch(samples.key(), samples.built).path is None
        assert store.get(samples.key()) is not None
    assert not root.exists()


def test_layers_are_searched_first_and_never_written(store: Store, tmp_path: Path) -> None:
    with option.cache_dir(tmp_path / "layer"):
        Store().fetch(samples.key(1), lambda: samples.built(1))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "layer").rglob("*")}
    with option.cache_path(tmp_path / "absent", tmp_path / "layer"):
        store.fetch(samples.key(2), lambda: samples.built(2))
        found = store.get(samples.key(1))
        assert found is not None
        assert found.path is not None
        assert found.path.is_relative_to(tmp_path / "layer")
        assert counters.stats()["disk_hits"] == 1
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "layer").rglob("*")} == before


def test_a_damaged_layer_is_passed_over(store: Store, root: Path, tmp_path: Path) -> None:
    with option.cache_dir(tmp_path / "layer"):
        entry = Store().fetch(samples.key(), samples.built)
    assert entry.path is not None
    (entry.path / "launch0.cubin").write_bytes(b"damaged")
    with option.cache_path(tmp_path / "layer"), pytest.warns(RuntimeWarning, match="damaged"):
        found = store.fetch(samples.key(), samples.built)
    assert found.path == root / "programs" / samples.key().hash()
    assert (entry.path / "launch0.cubin").read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (("all",), {"launch0.ptx"}),
        (("none",), set()),
        (("ptx",), {"launch0.ptx"}),
        (("ttir",), set()),
    ],
)
def test_stages_are_kept_as_asked(store: Store, keep: tuple[str, ...], kept: set[str]) -> None:
    with option.cache_keep(*keep):
        entry = store.fetch(samples.key(), samples.built)
    assert entry.path is not None
    assert {p.name for p in entry.path.glob("*.ptx")} == kept
    assert (entry.path / "launch0.cubin").is_file()
    assert (entry.path / "kernel.py").is_file()
    assert Store().get(samples.key()) is not None


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../b", "", "a/b/c", "manifest.json", ".hidden", "a\nb"]
)
def test_names_that_leave_the_entry_are_refused(store: Store, root: Path, name: str) -> None:
    with pytest.raises(InternalError, match="cannot be the name of a file"):
        store.put(samples.key(), {name: b"x"}, {})
    assert not root.exists()


def test_what_a_build_raises_reaches_the_caller_and_the_next_one_tries(store: Store) -> None:
    def fail() -> Built:
        raise ZeroDivisionError("from the compiler")

    with pytest.raises(ZeroDivisionError):
        store.fetch(samples.key(), fail)
    assert samples.is_right(store.fetch(samples.key(), samples.built).files, 0)


def test_threads_compile_each_key_once(store: Store) -> None:
    built: list[int] = []
    gate = threading.Barrier(16)
    results: list[bool] = []

    def build(number: int) -> Built:
        built.append(number)
        time.sleep(0.05)
        return samples.built(number)

    def work(number: int) -> None:
        gate.wait()
        entry = store.fetch(samples.key(number), lambda: build(number))
        results.append(samples.is_right(entry.files, number))

    threads = [threading.Thread(target=work, args=(n % 4,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(built) == [0, 1, 2, 3]
    assert results == [True] * 16


def test_the_wait_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEOPS_CACHE_LOCK_SECONDS", "0.2")
    inside, leave = threading.Event(), threading.Event()

    def slow() -> Built:
        inside.set()
        assert leave.wait(30)
        return samples.built()

    holder = threading.Thread(target=store.fetch, args=(samples.key(), slow))
    holder.start()
    assert inside.wait(30)
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match="without the lock"):
        entry = store.fetch(samples.key(), samples.built)
    assert 0.2 <= time.monotonic() - start < 5
    assert samples.is_right(entry.files, 0)
    leave.set()
    holder.join()


def test_a_forked_child_does_not_inherit_held_locks(store: Store) -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow() -> Built:
        inside.set()
        assert leave.wait(30)
        return samples.built()

    holder = threading.Thread(target=store.fetch, args=(samples.key(0), slow))
    holder.start()
    assert inside.wait(30)
    child = os.fork()
    if child == 0:
        entry = store.fetch(samples.key(1), lambda: samples.built(1))
        os._exit(0 if samples.is_right(entry.files, 1) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leave.set()
    holder.join()


def test_the_manifest_is_json_that_a_person_can_read(store: Store) -> None:
    entry = store.fetch(samples.key(), samples.built)
    assert entry.path is not None
    content = json.loads((entry.path / "manifest.json").read_text())
    assert content["hash"] == samples.key().hash()
    assert content["files"]["launch0.cubin"]["size"] == 3000
    assert content["manifest"]["name"] == "f0"
    assert content["key"]["target"] == "cuda:sm_90a"

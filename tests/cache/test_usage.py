"""Bounds: the directory stays under its limit, what is used stays, and it costs next to nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.cache import samples
from tileops import option
from tileops.cache import Store, catalog, scripts, usage
from tileops.cache.files import remove, tree_bytes

ROOT = Path(__file__).parents[2]
SIZE = 3000

# Holds an entry until it is told to end.
HOLD = """
import json, sys
from tests.cache import samples
from tileops.cache import store
number = int(sys.argv[1])
entry = store().fetch(samples.key(number), lambda: samples.built(number))
print(json.dumps({"path": str(entry.path)}), flush=True)
sys.stdin.read()
"""


def _entry_bytes(store: Store) -> int:
    entry = store.fetch(samples.key(10_000), lambda: samples.built(10_000, SIZE))
    assert entry.path is not None
    return tree_bytes(entry.path)


def _forget_users(root: Path) -> None:
    """Make this process look as if it used nothing, so that eviction may take what it made."""
    for path in (root / ".state" / "in_use").glob(f"{os.getpid()}.*"):
        path.unlink()


def _seconds_of_a_compile(elsewhere: Path) -> float:
    """Seconds to compile a product for the CPU; for a GPU it takes longer."""

    @tileops.jit
    def product(A, B):
        A: T.Tensor((64, 64), T.float32)
        B: T.Tensor((64, 64), T.float32)
        C = T.empty((64, 64), T.float32)
        with T.Kernel(1, threads=128):
            left = T.alloc_shared((64, 64), T.float32)
            right = T.alloc_shared((64, 64), T.float32)
            acc = T.alloc_fragment((64, 64), T.float32)
            T.copy(A, left)
            T.copy(B, right)
            T.gemm(left, right, acc, clear_accum=True)
            T.copy(acc, C)
        return C

    program = product.get_tir(torch.zeros(64, 64), torch.zeros(64, 64))
    with option.cache_dir(elsewhere):
        start = time.perf_counter()
        tileops.compile(program, target="cpu")
        return time.perf_counter() - start


def _hold(root: Path, number: int) -> tuple[subprocess.Popen[str], Path]:
    """A process that uses entry ``number`` until its standard input ends, and the entry's folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(number)],
        cwd=ROOT, env=samples.environment(root), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(json.loads(process.stdout.readline())["path"])


@pytest.mark.slow
def test_a_thousand_entries_against_a_limit_for_three_hundred(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The directory stays under its limit, three entries in use survive, and it costs next to nothing."""
    compile_seconds = _seconds_of_a_compile(tmp_path / "elsewhere")
    holders = [_hold(root, number) for number in (20_001, 20_002, 20_003)]
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: None
    )  # 10,000 files; durability is not asked
    size = _entry_bytes(Store())
    limit = 300 * size
    spent = 0.0
    real = usage.make_room

    def timed(*args: object) -> list[Path]:
        nonlocal spent
        _forget_users(root)
        start = time.perf_counter()
        removed = real(*args)  # type: ignore[arg-type]
        spent += time.perf_counter() - start
        return removed

    monkeypatch.setattr(usage, "make_room", timed)
    with option.cache_limit(limit):
        for number in range(1000):
            Store().put(samples.key(number), samples.built(number, SIZE).files, {"name": "f"})
            if number % 50 == 0:
                assert tree_bytes(root / "programs") <= limit
    assert tree_bytes(root / "programs") <= limit
    assert len(list((root / "programs").iterdir())) >= 250
    for process, path in holders:
        assert (path / "manifest.json").is_file()
        assert path.parent == root / "programs"
        process.communicate("")
    share = spent / 1000 / compile_seconds
    assert share < 0.01, f"{share:.2%} of a compile of {compile_seconds:.2f} s"


def test_least_recently_used_go_first(root: Path) -> None:
    store = Store()
    size = _entry_bytes(store)
    for number in range(6):
        store.fetch(samples.key(number), lambda n=number: samples.built(n))
        then = time.time() - 1000 + number
        os.utime(root / "programs" / samples.key(number).hash(), (then, then))
    assert Store().get(samples.key(0)) is not None  # used now, so it is the youngest
    _forget_users(root)
    removed = usage.make_room(_private(), 5 * size)
    gone = {path.name for path in removed}
    assert samples.key(1).hash() in gone
    assert samples.key(0).hash() not in gone


def _private() -> usage.Directory:
    directory = catalog.here().private
    assert directory is not None
    return directory


def test_what_a_living_process_uses_stays_until_it_ends(root: Path) -> None:
    import subprocess
    import sys

    env = samples.environment(root)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, "0"],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert "programs" in holder.stdout.readline()
    for number in (1, 2):
        assert samples.ask(root, number)["builds"] == 1
    usage.make_room(_private(), 0)
    left = {p.name for p in (root / "programs").iterdir()}
    assert left == {samples.key(0).hash()}
    holder.communicate("")
    usage.make_room(_private(), 0)
    assert list((root / "programs").iterdir()) == []


def test_files_of_dead_processes_do_not_pile_up(root: Path) -> None:
    for _ in range(6):
        samples.ask(root)
    assert len(list((root / ".state" / "in_use").iterdir())) <= 2


@pytest.mark.parametrize("number", [0, 1, 2], ids=["of memory", "of disk", "and store"])
def test_a_deleted_mark_is_made_again_at_the_next_look_up(root: Path, number: int) -> None:
    store = Store()
    Store().fetch(samples.key(1), lambda: samples.built(1))
    store.fetch(samples.key(0), samples.built)
    shutil.rmtree(root / ".state" / "in_use")
    assert usage.used_hashes(_private()) == set()
    store.fetch(samples.key(number), lambda: samples.built(number))
    used = usage.used_hashes(_private())
    assert used == {samples.key(n).hash() for n in {0, number}}
    usage.make_room(_private(), 0)
    assert {path.name for path in (root / "programs").iterdir()} == used


def test_a_forked_child_marks_what_its_parent_used(root: Path) -> None:
    store = Store()
    store.fetch(samples.key(0), samples.built)
    child = os.fork()
    if child == 0:
        shutil.rmtree(root / ".state" / "in_use")
        store.fetch(samples.key(1), lambda: samples.built(1))
        used = usage.used_hashes(_private())
        os._exit(int(used != {samples.key(n).hash() for n in (0, 1)}))
    assert os.waitpid(child, 0)[1] == 0


def test_a_file_system_without_locks_gathers_no_marks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in (0, 1, 0, 1):
            entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n))
            assert samples.is_right(entry.files, number)
    assert len(caught) == 1
    assert list((root / ".state" / "in_use").iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_a_mark_that_another_process_looks_at_is_locked_a_moment_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [True, True]
    real = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if held:
            held.pop()
            raise BlockingIOError(errno.EWOULDBLOCK, "held")
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    usage.Users().note(_private(), "ab" * 32)
    assert not held
    monkeypatch.undo()
    assert usage.used_hashes(_private()) == {"ab" * 32}


def test_marks_that_nobody_owns_go(root: Path) -> None:
    """Those of processes that died before they wrote a hash too, but not at once."""
    folder = root / ".state" / "in_use"
    folder.mkdir(parents=True)
    for name in ("1.young", "2.old", "3.used"):
        (folder / name).write_text("ab" * 32 + "\n" if name == "3.used" else "")
    os.utime(folder / "2.old", (1e9, 1e9))
    assert usage.used_hashes(_private()) == set()
    assert [path.name for path in folder.iterdir()] == ["1.young"]


def test_scripts_without_programs_go_with_them(root: Path) -> None:
    for number in range(6):
        entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n))
        scripts.record(scripts.Script("f", f"{number:064x}"), entry, {"M": number})
        scripts.record(scripts.Script(f"g{number}", "ab" * 32), entry, {"M": number})
    (root / "scripts" / "f" / f"{1:064x}" / "tuning").mkdir()
    (root / "scripts" / "f" / "mine").mkdir()
    (root / "scripts" / "mine").write_text("x")
    _forget_users(root)
    usage.make_room(_private(), 0, frozenset({samples.key(0).hash()}))
    for thread in threading.enumerate():
        if thread.name == "tileops-evict":
            thread.join()
    left = {str(path.relative_to(root / "scripts")) for path in (root / "scripts").glob("*/*")}
    kept = {f"f/{0:064x}", f"f/{1:064x}", "f/mine", f"g0/{'ab' * 32}"}
    assert left == kept
    assert {path.name for path in (root / "scripts").iterdir()} == {"f", "g0", "mine"}
    entry = Store().fetch(samples.key(5), lambda: samples.built(5))
    scripts.record(scripts.Script("g5", "ab" * 32), entry, {"M": 5})
    assert len(scripts.dispatch_rows(root / "scripts" / "g5" / ("ab" * 32))) == 1


def test_a_script_that_gets_a_program_while_it_is_swept_has_it(root: Path) -> None:
    script = scripts.Script("f", "ab" * 32)
    swept: list[int] = []
    ended = threading.Event()

    def sweep() -> None:
        while not ended.is_set():
            swept.append(scripts.sweep(_private()))

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(25):
            entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n, 50))
            scripts.record(script, entry, {"M": number})
            rows = scripts.dispatch_rows(root / "scripts" / "f" / script.hash)
            assert {"program": entry.hash, "when": {"M": number}} in rows
            remove(root / "programs" / entry.hash)
    ended.set()
    sweeper.join()
    assert sum(swept) > 0


@pytest.mark.parametrize("odd", ["folder", "pipe", "huge"])
def test_what_stands_in_the_place_of_the_size_does_not_end_the_bound(root: Path, odd: str) -> None:
    place = root / ".state" / "size"
    place.parent.mkdir(parents=True)
    match odd:
        case "folder":
            (place / "below").mkdir(parents=True)
        case "pipe":
            os.mkfifo(place)
        case "huge":
            place.write_text("1\n" * (1 << 20))
    with option.cache_limit(30_000), warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(8):
            Store().fetch(samples.key(number), lambda n=number: samples.built(n))
            _forget_users(root)
    assert place.is_file()
    assert tree_bytes(root / "programs") <= 30_000


def test_an_entry_larger_than_the_limit_still_works(root: Path) -> None:
    with option.cache_limit(100):
        for number in range(3):
            entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n))
            assert samples.is_right(entry.files, number)


def test_no_limit(root: Path) -> None:
    with option.cache_limit(None):
        Store().fetch(samples.key(), samples.built)
    assert not (root / ".state" / "size").exists()


def test_a_damaged_size_file_only_costs_a_scan(root: Path) -> None:
    Store().fetch(samples.key(0), samples.built)
    for text in (b"", b"garbage\n", b"\xff\xfe"):
        (root / ".state" / "size").write_bytes(text)
        number = len(text) + 1
        Store().fetch(samples.key(number), lambda n=number: samples.built(n))
    assert len(list((root / "programs").iterdir())) == 4

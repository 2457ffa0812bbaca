"""What goes wrong around a tuning: interruptions, damaged and hostile records, disks, threads, forks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.autotuner.risky import risky
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
from tests.kit.processes import ends_within
from tileops import child, log
from tileops.autotuner import benches, database, tuner
from tileops.autotuner.database import read_best, read_rows
from tileops.jit import compile_workers

pytestmark = [
    pytest.mark.usefixtures("tuning_cache"),
    pytest.mark.filterwarnings("ignore:.*tuning_risky.*"),
]

ROOT = Path(__file__).resolve().parents[2]
TIMES = {8: 3.0, 16: 2.0, 32: 1.0, 64: 0.5}
SPACE = [{"block": 8}, {"block": 32}]
FILES = ("configs.jsonl", "best_config.json", "key.json", "latency.json", "dispatch_table.txt")


def tune(size: int = 100, timer: Any = None) -> list[int]:
    """The blocks that a new process's call of the program measures."""
    timer = timer or FakeTimer(TIMES)
    program = tileops.autotune(configs=SPACE, timer=timer)(fresh_const())
    a = torch.randn(size)
    assert torch.equal(program(a), a * 2)
    assert program.compile(a).config == {"block": 32}
    return sorted(timer.calls)


def rows_in(cache: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for f in cache.rglob("configs.jsonl") for line in f.open()]


# -- interruptions ---------------------------------------------------------------------------------
def test_what_was_measured_before_an_interruption_is_kept(tuning_cache: Path) -> None:
    def timer(config: Any, kernel: Any, inputs: Any) -> float:
        if config["block"] == 16:
            raise KeyboardInterrupt
        calls.append(config["block"])
        return TIMES[config["block"]]

    calls: list[int] = []
    program = tileops.autotune(configs=SPACE, timer=timer)(fresh_const())
    a = torch.randn(100)
    with pytest.raises(KeyboardInterrupt):
        program(a)
    assert calls == [8, 32]
    assert [row["config"]["block"] for row in rows_in(tuning_cache)] == [8, 32]
    assert not list(tuning_cache.rglob("best_config.json"))
    # The timer is another one now, so its records are its own.
    assert tune() == [8, 16, 32]


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_ends_the_child_and_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[child.Child] = []

    class Noted(child.Child):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            children.append(self)

    timers: list[threading.Timer] = []
    run = benches.ChildBench.run

    def interrupted(self: Any, name: str, loadable: Any, limit_s: float, **more: Any) -> Any:
        if not timers:
            timers.append(threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()
        return run(self, name, loadable, limit_s, **more)

    monkeypatch.setattr(benches, "Child", Noted)
    monkeypatch.setattr(compile_workers, "Child", Noted)
    monkeypatch.setattr(benches.ChildBench, "run", interrupted)
    program = tileops.autotune(configs=[{"how": "loop"}], timeout=0)(
        tileops.jit(name="tuning_risky_interrupted")(risky.func)
    )
    with pytest.raises(KeyboardInterrupt):
        program(torch.randn(5000))
    assert children
    assert [c.pid for c in children if not ends_within(c.pid, 10)] == []


KILLED = """
import sys, time, torch, tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
class Slow(FakeTimer):
    __qualname__ = "FakeTimer"
    __module__ = "tests.autotuner.tuned_programs"
    def __call__(self, config, kernel, inputs):
        if config["block"] == 16:
            print("here", flush=True)
            time.sleep(60)
        return super().__call__(config, kernel, inputs)
Slow.__module__ = FakeTimer.__module__
timer = Slow({8: 3.0, 16: 2.0, 32: 1.0})
tileops.autotune(configs=[{"block": 8}, {"block": 32}], timer=timer)(fresh_const())(torch.randn(100))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_leaves_its_measurements_and_no_lock(
    tuning_cache: Path, number: int
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEOPS_CACHE_DIR": str(tuning_cache)}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=ROOT, env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    process.send_signal(number)
    assert process.wait(20) == -number
    start = time.monotonic()
    assert tune() == [16]
    assert time.monotonic() - start < 20


# -- threads and forks -----------------------------------------------------------------------------
def test_threads_tune_different_keys_at_the_same_time() -> None:
    gate = threading.Barrier(2, timeout=240)
    results: list[Any] = []

    class Meeting(FakeTimer):
        def __call__(self, config: Any, kernel: Any, inputs: Any) -> float:
            gate.wait()  # breaks where one waits for the other's whole tuning
            return super().__call__(config, kernel, inputs)

    def call(size: int) -> None:
        try:
            results.append(tune(size, Meeting(TIMES)))
        except BaseException as error:
            results.append(error)

    threads = [threading.Thread(target=call, args=(size,)) for size in (33, 44)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert results == [[8, 16, 32]] * 2


def test_a_forked_child_tunes_and_knows_what_its_parent_knew() -> None:
    assert tune(100) == [8, 16, 32]
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = [tune(100), tune(55)]
            a = torch.randn(56)
            program = tileops.autotune(configs=SPACE, warmup=1, rep=2)(fresh_const())
            found.append(bool(torch.equal(program(a), a * 2)))
            os.write(send, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(send)
    os.waitpid(pid, 0)
    assert json.loads(os.read(receive, 1000)) == [[], [8, 16, 32], True]
    os.close(receive)


# -- records ---------------------------------------------------------------------------------------
DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda p: p.write_bytes(b""),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:-20]),
    "binary": lambda p: p.write_bytes(b"\x00\xff" * 100),
    "list": lambda p: p.write_text("[1, 2]\n"),
    "null": lambda p: p.write_text("null\n"),
    "other": lambda p: p.write_text('{"config": 3, "latency": {}}\n'),
    "deep": lambda p: p.write_text("[" * 100_000),
    "missing": lambda p: p.unlink(),
    "folder": lambda p: (p.unlink(), p.mkdir()),
    "link": lambda p: (p.unlink(), p.symlink_to("/etc/hostname")),
    "loop": lambda p: (p.unlink(), p.symlink_to(p.name)),
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_a_miss_and_never_an_error(tuning_cache: Path, name: str) -> None:
    tune()
    for damage in DAMAGE.values():
        for path in [p for p in tuning_cache.rglob(name) if not p.is_dir()]:
            damage(path)
        assert set(tune()) <= {8, 16, 32}


DEEP: dict[str, Any] = {"block": 8}
for _ in range(900):
    DEEP = {"block": DEEP}
HOSTILE = [
    {"latency": -5.0}, {"latency": float("nan")}, {"latency": "1"}, {"latency": True},
    {"status": 3}, {"digest": None}, {"reason": ["x"]}, {"samples": "many"}, {"time": "now"},
    {"config": [8]}, {"config": DEEP}, {"low": {}}, {"check": 7}, {"unknown": 1},
]  # fmt: skip


def test_rows_that_cannot_be_are_left_out(tuning_cache: Path) -> None:
    tune()
    (path,) = tuning_cache.rglob("configs.jsonl")
    sound = json.loads(path.read_text().splitlines()[0])
    path.write_text("".join(json.dumps({**sound, **change}) + "\n" for change in HOSTILE))
    assert read_rows(path.parent) == []
    path.with_name("best_config.json").unlink()
    assert tune() == [8, 16, 32]
    best = json.loads(path.with_name("best_config.json").read_text())
    for change in ({"latency": -1}, {"latency": "x"}, {"digest": 5}, {"format": 99}, {"more": 1}):
        path.with_name("best_config.json").write_text(json.dumps({**best, **change}))
        assert read_best(path.parent) is None
        assert tune() == []  # the rows are there, and name it again
        assert read_best(path.parent) is not None


def test_a_winner_that_is_no_config_of_the_space_is_not_taken(tuning_cache: Path) -> None:
    tune()
    (path,) = tuning_cache.rglob("best_config.json")
    best = json.loads(path.read_text())
    for config in ({"block": 10**30}, {"block": 64}, {}, {"pass_configs": {"x": 1}}):
        path.write_text(json.dumps({**best, "config": config}))
        assert tune() == []


def test_records_of_another_version_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tune() == [8, 16, 32]
    monkeypatch.setattr(tuner.sources, "digest", lambda: "another")
    assert tune() == [8, 16, 32]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ESTALE])
def test_what_cannot_be_written_is_kept_in_this_process(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*arguments: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(database, "make_directories", refuse)
    with pytest.warns(log.TileopsWarning, match="cannot be kept in .*only in this process"):
        assert tune() == [8, 16, 32]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*tuned_.*")
        assert tune() == []
        assert tune(101) == [8, 16, 32]
    monkeypatch.undo()
    assert tune() == []  # still known here


def test_a_disk_that_takes_half_a_line_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(handle: int, data: bytes) -> int:
        return write(handle, data[: len(data) // 2] if b'"digest"' in data else data)

    monkeypatch.setattr(os, "write", half)
    with pytest.warns(log.TileopsWarning, match="not written whole"):
        assert tune() == [8, 16, 32]
    monkeypatch.undo()
    assert tune() == []


def test_rows_are_not_written_through_a_link(tuning_cache: Path, tmp_path: Path) -> None:
    tune()
    (path,) = tuning_cache.rglob("configs.jsonl")
    other = tmp_path / "other"
    other.write_text("mine\n")
    path.unlink()
    path.symlink_to(other)
    path.with_name("best_config.json").unlink()
    assert tune() == [8, 16, 32]
    assert other.read_text() == "mine\n"
    assert not path.is_symlink()  # a file of its own, in the link's place
    assert len(read_rows(path.parent)) == 3


def test_without_a_cache_a_process_remembers() -> None:
    with tileops.option.cache_disable():
        assert tune(61) == [8, 16, 32]
        assert tune(61) == []

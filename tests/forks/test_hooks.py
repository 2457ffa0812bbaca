"""What forks.py promises: the guard is taken, long locks are renewed, pipes and imports do not tie a child."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tileops import forks, settings
from tileops.child import Child
from tileops.compiler import triton_environment

SECONDS = 30


def status_of(body: Callable[[], object]) -> int:
    """What a child returns that runs ``body``: 0 where that is true, 1 where not, -1 where it hangs."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if body() else 1
        finally:
            os._exit(status)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -1


class Busy:
    """A thread that stands inside ``entered`` until it is told to leave."""

    def __init__(self, inside: Callable[[Callable[[], None]], None]) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

        def stay() -> None:
            self.entered.set()
            assert self.leave.wait(SECONDS)

        self.thread = threading.Thread(target=inside, args=(stay,))

    def __enter__(self) -> Busy:
        self.thread.start()
        assert self.entered.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self.thread.join()


def test_a_fork_waits_for_the_guard() -> None:
    state = [0, 0]
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            with forks.guard:
                state[0] += 1
                time.sleep(0.002)
                state[1] += 1

    thread = threading.Thread(target=change)
    thread.start()

    def whole() -> bool:
        with forks.guard:
            return state[0] == state[1] > 0

    try:
        time.sleep(0.01)
        assert [status_of(whole) for _ in range(20)] == [0] * 20
    finally:
        stop.set()
        thread.join()


def test_a_fork_under_the_guard_keeps_it() -> None:
    with forks.guard:
        assert status_of(lambda: forks.is_held_here(forks.guard)) == 0
        assert forks.is_held_here(forks.guard)
    assert not forks.is_held_here(forks.guard)


def test_a_guard_that_is_never_let_go_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_LONGEST_WAIT_SECONDS", 0.1)

    def inside(stay: Callable[[], None]) -> None:
        with forks.guard:
            stay()

    with Busy(inside):
        assert status_of(lambda: forks.guard.acquire(timeout=1)) == 0
    assert forks.guard.acquire(timeout=1)
    forks.guard.release()


def test_a_fork_waits_for_no_long_work() -> None:
    lock = forks.renewed_lock()

    def inside(stay: Callable[[], None]) -> None:
        with lock:
            stay()

    start = time.monotonic()
    with Busy(inside):
        assert status_of(lambda: lock.acquire(timeout=1)) == 0
        assert not lock.acquire(timeout=0.01)  # the parent's is held on
    assert time.monotonic() - start < SECONDS / 2
    with lock:  # what the forking thread holds itself, it holds in the child
        assert status_of(lambda: forks.is_held_here(lock)) == 0


def test_a_process_is_not_waited_for_longer_than_it_runs() -> None:
    stop = threading.Event()
    spent: list[float] = []

    def run() -> None:
        while not stop.is_set():
            start = time.monotonic()
            done = forks.run_process(
                [sys.executable, "-c", "print(7)"], capture_output=True, text=True
            )
            spent.append(time.monotonic() - start)
            assert (done.returncode, done.stdout) == (0, "7\n")

    thread = threading.Thread(target=run)
    thread.start()
    children = []
    for _ in range(40):
        time.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            time.sleep(20)  # with whatever it has of the pipes
            os._exit(0)
        children.append(pid)
    stop.set()
    thread.join(10)
    is_alive = thread.is_alive()
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    thread.join()
    assert not is_alive
    assert max(spent) < 10


def test_run_process_does_what_subprocess_does() -> None:
    fails = [sys.executable, "-c", "import sys; sys.exit(3)"]
    assert forks.run_process(fails).returncode == 3
    with pytest.raises(subprocess.CalledProcessError):
        forks.run_process(fails, check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run_process([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2)
    assert forks.output_of_process([sys.executable, "-c", "print(1)"], text=True) == "1\n"


def test_a_child_closes_the_pipes_of_its_parents_processes() -> None:
    process = Child("tileops.jit.compile_workers")
    assert process.ask({}, 60.0) == {"status": "ok"}
    assert status_of(lambda: process._pipe.closed and not process.is_alive) == 0
    assert process.ask({}, 60.0) == {"status": "ok"}
    process.kill()


def test_a_child_gets_tritons_settings_back(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton").knobs
    from triton.backends.nvidia import compiler as nvidia

    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    monkeypatch.setattr(knobs.compilation, "disable_line_info", False)

    def inside(stay: Callable[[], None]) -> None:
        with triton_environment.pinned(tmp_path):
            stay()

    def restored() -> bool:
        has_line_info = not knobs.compilation.disable_line_info
        with triton_environment.pinned(tmp_path):
            is_pinned = knobs.compilation.disable_line_info
        return (
            has_line_info and is_pinned and os.environ.get("DISABLE_PTXAS_OPT") == "1"
            and nvidia.subprocess is subprocess
        )  # fmt: skip

    with Busy(inside):
        assert status_of(restored) == 0
        assert knobs.compilation.disable_line_info
    assert not knobs.compilation.disable_line_info


def test_a_setting_that_changes_code_and_the_kernels_change_together() -> None:
    seen: list[str] = []

    def forget() -> Callable[[], None]:
        seen.append(f"under the guard: {forks.is_held_here(forks.guard)}")
        return lambda: seen.append(f"after it: {not forks.is_held_here(forks.guard)}")

    settings.on_code_change(forget)
    try:
        before = settings.override("check", True)
        settings.override("check", before)
    finally:
        settings._on_code_change.remove(forget)
    assert seen == ["under the guard: True", "after it: True"] * 2


@dataclass(frozen=True)
class Slow:
    gate: tuple[threading.Event, threading.Event]

    @forks.ComputedOnce
    def value(self) -> int:
        """Seven."""
        self.gate[0].set()
        assert self.gate[1].wait(SECONDS)
        return 7


def test_a_property_is_computed_without_a_lock_of_its_class() -> None:
    slow, other = (Slow((threading.Event(), threading.Event())) for _ in range(2))
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert slow.gate[0].wait(SECONDS)
    other.gate[1].set()
    assert other.value == 7
    assert vars(other)["value"] == 7
    assert status_of(lambda: other.value == 7 and (slow.gate[1].set() or slow.value == 7)) == 0
    slow.gate[1].set()
    thread.join()
    assert Slow.value.__doc__ == "Seven."

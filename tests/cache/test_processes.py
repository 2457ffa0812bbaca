"""Processes: one compile a key among all of them, and a kill at any moment leaves nothing wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.cache import samples
from tileops.cache import Store
from tileops.cache.catalog import verify

# The nightly run takes 200 moments.
KILLS = int(os.environ.get("TILEOPS_KILLS", "48"))

# Waits until the file GO exists, so that all processes start at once; then threads ask for keys.
RACE = """
import json, os, sys, threading, time
from pathlib import Path
from tests.cache import samples
from tileops import cache, counters
go, count, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
seed = int(sys.argv[4])
store, built, wrong = cache.store(), [], []

def build(number):
    built.append(number)
    time.sleep(0.05)
    return samples.built(number)

def work(offset):
    for step in range(count):
        number = (step * 7 + offset) % count
        entry = store.fetch(samples.key(number), lambda: build(number))
        if not samples.is_right(entry.files, number):
            wrong.append(number)

while not go.exists():
    time.sleep(0.001)
workers = [threading.Thread(target=work, args=(seed + n,)) for n in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
hashes = {n: store.get(samples.key(n)).hash for n in range(count)}
print(json.dumps({"built": built, "wrong": wrong, "hashes": hashes}))
"""


@pytest.mark.parametrize(("processes", "threads"), [(8, 1), (4, 4)])
def test_each_key_is_compiled_once_in_total(
    root: Path, tmp_path: Path, processes: int, threads: int
) -> None:
    go = tmp_path / "go"
    env = samples.environment(root)
    running = [samples.start(RACE, [go, 6, threads, seed], env=env) for seed in range(processes)]
    time.sleep(1.0)
    go.write_text("")
    results = [samples.result(process) for process in running]
    built = sorted(number for result in results for number in result["built"])  # type: ignore[attr-defined]
    assert built == list(range(6))
    assert all(result["wrong"] == [] for result in results)
    assert len({str(result["hashes"]) for result in results}) == 1
    assert all(problem is None for _, problem in verify())
    assert list((root / ".state" / "staging").iterdir()) == []


# Compiles and stores keys in a loop until killed, with files large enough that kills hit in writes.
LOOP = """
import sys
from tests.cache import samples
from tileops.cache import Store
number = int(sys.argv[1])
print("ready", flush=True)
while True:
    store = Store()
    for n in range(number, number + 4):
        entry = store.fetch(samples.key(n), lambda: samples.built(n, 200_000))
        assert samples.is_right(entry.files, n, 200_000)
    import shutil
    from tileops.cache import catalog, usage
    directory = catalog.here().private
    usage.discard(directory, directory.programs / samples.key(number).hash())
"""


@pytest.mark.slow
def test_kill_at_random_moments(root: Path) -> None:
    env = samples.environment(root)
    seed = int(os.environ.get("TILEOPS_RANDOM_SEED", "20260"))
    rng = random.Random(seed)
    kills = 0
    while kills < KILLS:
        process = samples.start(LOOP, [kills % 5], env=env)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # One start pays for several moments: stopping freezes the writer between two system calls,
        # where what it has written so far is judged; the last one kills it.
        for moment in range(8):
            time.sleep(rng.uniform(0.0, 0.02))
            os.kill(process.pid, signal.SIGSTOP if moment < 7 else signal.SIGKILL)
            kills += 1
            _nothing_wrong_is_believed(kills)
            if moment < 7:
                os.kill(process.pid, signal.SIGCONT)
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
    # No lock outlives its holder: all keys can be asked for without a wait.
    start = time.monotonic()
    for number in range(9):
        entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n, 200_000))
        assert samples.is_right(entry.files, number, 200_000)
    assert time.monotonic() - start < 10


def _nothing_wrong_is_believed(kills: int) -> None:
    for number in range(9):
        entry = Store().get(samples.key(number))
        assert entry is None or samples.is_right(entry.files, number, 200_000), (kills, number)


def test_what_a_kill_left_in_staging_is_removed_in_time(root: Path) -> None:
    Store().fetch(samples.key(0), samples.built)
    staging = root / ".state" / "staging"
    for name, age in (("old", 7200.0), ("young", 60.0)):
        (staging / name).mkdir()
        (staging / name / "launch0.cubin").write_bytes(b"x")
        then = time.time() - age
        os.utime(staging / name, (then, then))
    Store().fetch(samples.key(1), lambda: samples.built(1))
    assert sorted(p.name for p in staging.iterdir()) == ["young"]

"""Machines, each a process with a cache of its own: one compile for all, whatever dies or forks."""

from __future__ import annotations

import os
import random
import selectors
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cache import samples
from tests.fleet import blobs, servers
from tileops.cache import envelope
from tileops.cache.remote.opening import open_store
from tileops.cache.remote.stores import COMMAND_BOUNDS, ENTRIES

# `make nightly` has 64 machines and 20 programs.
NODES = int(os.environ.get("TILEOPS_FLEET_NODES", "4"))
PROGRAMS = 20 if NODES > 20 else 4

# Says that it is ready, waits for a line, asks for all programs, and tells which it compiled and how long a hit took.
NODE = """
import json, sys, time
from tests.cache import samples
from tileops import cache, counters
from tileops.cache.remote import fleet
count, first, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
store, built, hits, wrong = cache.store(), [], [], []
fleet.current().prepare()
print("ready", flush=True)
sys.stdin.readline()

def build(number):
    built.append(number)
    print("building", flush=True)
    time.sleep(seconds)
    return samples.built(number)

for step in range(count):
    number, before = (step + first) % count, len(built)
    began = time.perf_counter()
    entry = store.fetch(samples.key(number), lambda: build(number))
    if len(built) == before:
        hits.append((time.perf_counter() - began) * 1e3)
    wrong += [] if entry.files["launch0.cubin"] == samples.content(number, "launch0.cubin") else [number]
began = time.perf_counter()
print(json.dumps({"built": built, "hits_ms": hits, "wrong": wrong, "stats": counters.stats(), "flush": fleet.current().write_back.flush(30)}))
"""


class Node:
    """One machine."""

    def __init__(
        self,
        url: str,
        keys: Path,
        folder: Path,
        *arguments: object,
        script: str = NODE,
        **more: str,
    ) -> None:
        env = samples.environment(
            folder,
            TILEOPS_REMOTE=url,
            TILEOPS_REMOTE_MODE="readwrite",
            TILEOPS_REMOTE_KEYS=str(keys),
            **{"TILEOPS_REMOTE_TIMEOUT_SECONDS": "30", **more},
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self, seconds: float = 120) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:  # of any number of open files
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(seconds), "it says nothing"
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self, seconds: float = 300) -> dict[str, object]:
        return samples.result(self.process, seconds)


def run_all(nodes: list[Node]) -> list[dict[str, object]]:
    for node in nodes:
        assert node.line() == "ready"
    for node in nodes:
        node.go()
    return [node.result() for node in nodes]


def test_of_all_machines_one_compiles_each_program(
    url: str, keys_file: Path, tmp_path: Path
) -> None:
    patient = {"TILEOPS_REMOTE_LEASE_SECONDS": "30"}
    nodes = [
        Node(url, keys_file, tmp_path / f"node{n}", PROGRAMS, n, 0.1, **patient)
        for n in range(NODES)
    ]
    results = run_all(nodes)
    built = sorted(number for result in results for number in result["built"])  # type: ignore[attr-defined]
    stats = [{k: v for k, v in result["stats"].items() if v} for result in results]  # type: ignore[attr-defined]
    assert built == list(range(PROGRAMS)), stats
    assert all(result["wrong"] == [] for result in results)
    assert all(result["flush"] for result in results)
    # And a new machine compiles nothing.
    (cold,) = run_all([Node(url, keys_file, tmp_path / "cold", PROGRAMS, 0, 0)])
    assert cold["built"] == []
    hits = sorted(cold["hits_ms"])  # type: ignore[call-overload]
    median = hits[len(hits) // 2]
    print(f"{url}: cold machine, ms a program: median {median:.1f}, most {hits[-1]:.1f}")
    assert median <= 50 or url.startswith("s3:")  # the S3 server here is a slow imitation


@pytest.mark.parametrize("url", ["file", "redis"], indirect=True)
def test_another_takes_over_from_a_machine_that_dies(
    url: str, keys_file: Path, tmp_path: Path
) -> None:
    short = {"TILEOPS_REMOTE_LEASE_SECONDS": "1"}
    dying = Node(url, keys_file, tmp_path / "dying", 1, 0, 600, **short)
    other = Node(url, keys_file, tmp_path / "other", 1, 0, 0, **short)
    assert dying.line() == other.line() == "ready"
    dying.go()
    assert dying.line() == "building"
    other.go()
    time.sleep(1.5)  # longer than the lease, which its holder renews
    assert other.process.poll() is None
    dying.process.kill()
    dying.process.wait()
    result = other.result()
    assert result["built"] == [0]
    assert result["stats"]["remote_lease_waits"] == 1  # type: ignore[index]
    assert result["stats"]["remote_leases_expired"] == 1  # type: ignore[index]


FAILING = """
import sys
from tests.cache import samples
from tileops import cache
from tileops.cache.remote import fleet
def fail():
    raise ValueError("a program that does not compile")
print("ready", flush=True)
sys.stdin.readline()
try:
    cache.store().fetch(samples.key(0), fail)
except ValueError as error:
    print(error, flush=True)
assert fleet.current().write_back.flush(30)
print("{}")
"""


@pytest.mark.parametrize("url", ["file", "redis"], indirect=True)
def test_a_failed_compile_gives_its_lease_back(url: str, keys_file: Path, tmp_path: Path) -> None:
    failing = Node(url, keys_file, tmp_path / "failing", script=FAILING)
    failing.go()
    assert failing.result() is not None
    assert open_store(url, COMMAND_BOUNDS).lease(samples.key(0).hash(), 10).acquire()


@pytest.mark.parametrize("url", ["file", "redis", "s3"], indirect=True)
def test_what_was_compiled_last_is_written_before_the_process_ends(
    url: str, keys_file: Path, tmp_path: Path
) -> None:
    script = NODE.replace('"flush": fleet.current().write_back.flush(30)', '"flush": 0')
    node = Node(url, keys_file, tmp_path / "node", 3, 0, 0, script=script)
    run_all([node])
    assert len(list(open_store(url, COMMAND_BOUNDS).items(ENTRIES))) == 3


def test_a_server_that_stops_does_not_keep_a_process(keys_file: Path, tmp_path: Path) -> None:
    if (lack := servers.lacks()) is not None:
        pytest.skip(lack)
    script = NODE.replace('"flush": fleet.current().write_back.flush(30)', '"flush": 0')
    with servers.redis(tmp_path) as server:
        usual = {"TILEOPS_REMOTE_TIMEOUT_SECONDS": ""}
        node = Node(server.url, keys_file, tmp_path / "node", 3, 0, 1.2, script=script, **usual)
        assert node.line() == "ready"
        node.go()
        assert node.line() == "building"
        server.stop()
        result = node.result(60)
    assert result["built"] == [0, 1, 2]


# A loop that compiles and writes until it is killed.
LOOP = """
import sys, tempfile, pathlib
from tests.cache import samples
from tileops import option
from tileops.cache import Store
print("ready", flush=True)
number = 0
while True:
    with tempfile.TemporaryDirectory() as folder, option.cache_dir(folder):
        Store().fetch(samples.key(number % 8), lambda: samples.built(number % 8, 300_000))
    number += 1
"""


@pytest.mark.parametrize("url", ["file", "redis"], indirect=True)
def test_a_kill_at_any_moment_leaves_whole_entries_or_none(
    url: str, keys_file: Path, tmp_path: Path
) -> None:
    pick = random.Random()
    for _ in range(4):
        node = Node(url, keys_file, tmp_path / "loop", script=LOOP)
        assert node.line() == "ready"
        time.sleep(pick.uniform(0.05, 0.6))
        node.process.kill()
        node.process.wait()
        store = open_store(url, COMMAND_BOUNDS)
        for item in store.items(ENTRIES):
            blob = store.get(item.name)
            assert blob is not None
            envelope.unpack(blob, item.name.rpartition("/")[2], blobs.hmac_ring())


FORKS = """
import json, os, sys
from tests.cache import samples
from tileops import cache, counters
from tileops.cache.remote import fleet
store, codes = cache.store(), []
for number in range(4):
    store.fetch(samples.key(number), lambda: samples.built(number))
    child = os.fork()  # the parent's thread is writing, or its lease is being renewed
    if child == 0:
        counters.stats(reset=True)
        one = fleet.current()
        store.fetch(samples.key(100 + number), lambda: samples.built(100 + number))
        good = one.write_back.flush(30) and counters.stats()["remote_puts"] == 1
        os._exit(0 if good else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps({"codes": codes, "flush": fleet.current().write_back.flush(30), "puts": counters.stats()["remote_puts"]}))
"""


@pytest.mark.parametrize("url", ["file", "redis", "s3"], indirect=True)
def test_children_have_their_own_connection_queue_and_leases(
    url: str, keys_file: Path, tmp_path: Path
) -> None:
    result = Node(url, keys_file, tmp_path / "node", script=FORKS).result()
    assert result["codes"] == [0] * 4, result
    assert result["puts"] == 4
    assert len(list(open_store(url, COMMAND_BOUNDS).items(ENTRIES))) == 8

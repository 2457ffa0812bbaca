"""The failure semantics, row by row: whatever is wrong with the remote, a call computes, and in time."""

from __future__ import annotations

import errno
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cache import samples
from tests.fleet import blobs, servers
from tests.fleet.conftest import NO_SERVERS
from tileops import counters, option
from tileops.cache import Store
from tileops.cache.remote import fleet, folder_store
from tileops.cache.remote.opening import open_store
from tileops.cache.remote.stores import ALIASES, ENTRIES, Bounds
from tileops.cache.remote.writeback import MOST_BYTES, MOST_ENTRIES, provenance
from tileops.errors import CompileMissError

pytestmark = pytest.mark.skipif(NO_SERVERS is not None, reason=str(NO_SERVERS))
# `make nightly` makes 10,000 calls under each fault.
CALLS = int(os.environ.get("TILEOPS_FLEET_CALLS", "20"))
FIRST_SECONDS = 1.0  # added to the first call at most; a busy machine's own delays come on top
SLACK_SECONDS = 2.0


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "BACKGROUND_BOUNDS", Bounds(0.2, 0.7))
    monkeypatch.delenv("TILEOPS_REMOTE_TIMEOUT_SECONDS")


@dataclass
class Fault:
    """A remote with something wrong: its URL, and what each store of a machine is told of keys."""

    url: str
    keys: Path | None = None


@dataclass(frozen=True)
class Row:
    """One row of the table: how it is made, and what the counters and warnings say."""

    make: Callable[[pytest.FixtureRequest, Path, ExitStack], Fault]
    counted: str
    says: str
    in_strict: str = ""


def _stopped(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
    server = stack.enter_context(servers.redis(folder))
    server.stop()
    return Fault(server.url)


def _killed(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
    with servers.redis(folder) as server:
        url = server.url
    return Fault(url)


def _no_name(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
    return Fault("redis://no-such-host.invalid:6379/0")


def _stopped_s3(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
    server = request.getfixturevalue("s3_environment")
    server.stop()
    stack.callback(server.go_on)
    return Fault(f"{server.url}/stopped")


def _network(mode: str) -> Callable[[pytest.FixtureRequest, Path, ExitStack], Fault]:
    def make(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
        server = request.getfixturevalue("redis_server")
        _fill(server.url)
        proxy = servers.Proxy(server.port)
        stack.callback(proxy.close)
        proxy.mode = mode
        return Fault(f"redis://{servers.HOST}:{proxy.port}/0")

    return make


def _answers(status: int) -> Callable[[pytest.FixtureRequest, Path, ExitStack], Fault]:
    def make(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
        request.getfixturevalue("s3_environment")
        refuser = servers.Refuser(status)
        stack.callback(refuser.server_close)
        stack.callback(refuser.shutdown)
        patch = request.getfixturevalue("monkeypatch")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{servers.HOST}:{refuser.port}")
        return Fault("s3://bucket/x")

    return make


def _fill(url: str, change: Callable[[int], bytes] = blobs.blob) -> None:
    store = open_store(url)
    store.command("FLUSHALL")  # type: ignore[attr-defined]  # what another test's calls wrote
    for number in range(min(CALLS, 200)):
        store.put(ENTRIES + samples.key(number).hash(), change(number))


def _holds(
    change: Callable[[int], bytes],
) -> Callable[[pytest.FixtureRequest, Path, ExitStack], Fault]:
    def make(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
        url = request.getfixturevalue("redis_server").url
        _fill(url, change)
        return Fault(url)

    return make


def _flipped(number: int) -> bytes:
    data = bytearray(blobs.blob(number))
    data[len(data) // 2] ^= 1
    return bytes(data)


def _forged(number: int) -> bytes:
    other = blobs.keys.parse({"keys": [{**blobs.HMAC_FILE["keys"][0], "key": "B" * 44}]})
    return blobs.blob(number, other)


def _of_another_kid(number: int) -> bytes:
    return blobs.blob(
        number, blobs.keys.parse({"keys": [{**blobs.HMAC_FILE["keys"][0], "kid": "mallory"}]})
    )


def _unsigned(number: int) -> bytes:
    return blobs.envelope.pack(blobs.entry(number), None, {})


def _keys(change: dict[str, object]) -> Callable[[pytest.FixtureRequest, Path, ExitStack], Fault]:
    def make(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> Fault:
        url = request.getfixturevalue("redis_server").url
        _fill(url)
        return Fault(url, blobs.keys_file(folder, change, "changed.json"))

    return make


EXPIRED = {"keys": [{**blobs.HMAC_FILE["keys"][0], "not_after": "2020-01-01"}]}
REVOKED = {**blobs.HMAC_FILE, "revoked": {"kids": ["team"]}}

TABLE = {
    "down": Row(_killed, "remote_unavailable", "calls go on without it", "remote unavailable"),
    "stopped": Row(_stopped, "remote_unavailable", "no answer in|Timeout", "remote unavailable"),
    "stopped_s3": Row(_stopped_s3, "remote_unavailable", "no answer in|Timeout", "remote unavailable"),
    "no_such_name": Row(_no_name, "remote_unavailable", "calls go on without it", "remote unavailable"),
    "slow": Row(_network("slow"), "remote_unavailable", "calls go on without it", "remote unavailable"),
    "cut": Row(_network("truncate"), "remote_unavailable", "calls go on without it", "remote unavailable"),
    "reset": Row(_network("reset"), "remote_unavailable", "calls go on without it", "remote unavailable"),
    "black_hole": Row(_network("hole"), "remote_unavailable", "calls go on without it", "remote unavailable"),
    "error_500": Row(_answers(500), "remote_unavailable", "calls go on without it", "remote unavailable"),
    "error_403": Row(_answers(403), "remote_unavailable", "Forbidden|AccessDenied|no", "remote refused"),
    "bit_flip": Row(_holds(_flipped), "remote_damaged|remote_untrusted", "damaged|not right", "remote (damaged|untrusted)"),
    "torn": Row(_holds(lambda n: blobs.blob(n)[:-600]), "remote_damaged", "is damaged, passed over", "remote damaged"),
    "nonsense": Row(_holds(lambda n: b"<html>"), "remote_damaged", "is damaged, passed over", "remote damaged"),
    "empty": Row(_holds(lambda n: b""), "remote_damaged", "is damaged, passed over", "remote damaged"),
    "unsigned": Row(_holds(_unsigned), "remote_untrusted", "unsigned", "remote untrusted: unsigned"),
    "unknown_key": Row(_holds(_of_another_kid), "remote_untrusted", "the key mallory is unknown", "the key mallory is unknown"),
    "forged": Row(_holds(_forged), "remote_untrusted", "the signature by team is not right", "by team is not right"),
    "swapped": Row(_holds(lambda n: blobs.blob(n + 1)), "remote_untrusted", "signed for another entry", "signed for another entry"),
    "expired": Row(_keys(EXPIRED), "remote_untrusted", "the key team has expired", "the key team has expired"),
    "revoked": Row(_keys(REVOKED), "remote_untrusted", "the key team is revoked", "the key team is revoked"),
    "bad_keys": Row(_keys({"keys": [{}]}), "remote_unavailable", "the keys file", "remote refused: the keys file"),
}  # fmt: skip


@contextmanager
def machine(fault: Fault, keys_file: Path, mode: str) -> Iterator[Store]:
    # In memory only: the disk's own time would hide the remote's.
    with (
        option.cache_disable(),
        option.remote(fault.url, mode=mode, keys=fault.keys or keys_file),
    ):
        yield Store()


@pytest.mark.parametrize("mode", ["read", "readwrite"])
@pytest.mark.parametrize("name", TABLE)
def test_no_call_fails_or_waits_long(
    request: pytest.FixtureRequest, tmp_path: Path, keys_file: Path, name: str, mode: str
) -> None:
    row = TABLE[name]
    if row.counted != "remote_unavailable":
        # What counts is the answer. On a busy machine it can take longer than the usual limits, and
        # the breaker would pass over what is wrong.
        request.getfixturevalue("monkeypatch").setenv("TILEOPS_REMOTE_TIMEOUT_SECONDS", "30")
    with ExitStack() as stack, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (tmp_path / "server").mkdir()
        fault = row.make(request, tmp_path / "server", stack)
        store = stack.enter_context(machine(fault, keys_file, mode))
        one = fleet.current()
        assert one is not None
        one.prepare()  # a busy machine's own work
        took = []
        for number in range(CALLS):
            began = time.perf_counter()
            found = store.fetch(samples.key(number), lambda n=number: samples.built(n))
            took.append(time.perf_counter() - began)
            assert blobs.entry(number).files.items() <= found.files.items()
        assert one.write_back.flush(15)
    assert took[0] < FIRST_SECONDS + SLACK_SECONDS
    # Without the breaker each call would wait. A refusal is an answer, and may be of one name.
    if row.counted == "remote_unavailable" and name != "error_403":
        assert statistics.median(took) < 0.01
    stats = counters.stats()
    assert stats["misses"] >= CALLS * 0.7, (
        stats
    )  # in readwrite mode they mend what others then find
    assert sum(int(stats[n]) for n in row.counted.split("|")) > 0, stats  # type: ignore[call-overload]
    said = [str(w.message) for w in caught]
    assert any(_matches(row.says, text) for text in said), said
    assert len(said) <= 4, said  # and not one a call


def _matches(pattern: str, text: str) -> bool:
    return any(part in text for part in pattern.split("|"))


@pytest.mark.parametrize("name", TABLE)
def test_strict_mode_says_why(
    request: pytest.FixtureRequest, tmp_path: Path, keys_file: Path, name: str
) -> None:
    def refuse() -> samples.Built:
        raise CompileMissError("op f needs a compile")

    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "server").mkdir()
        fault = TABLE[name].make(request, tmp_path / "server", stack)
        store = stack.enter_context(machine(fault, keys_file, "readwrite"))
        stack.enter_context(option.strict())
        with pytest.raises(CompileMissError, match=TABLE[name].in_strict):
            store.fetch(samples.key(0), refuse)
        with pytest.raises(CompileMissError, match="op f needs a compile"):
            store.fetch(samples.key(0), refuse)


def test_what_is_damaged_is_written_anew(
    redis_server: servers.Server, tmp_path: Path, keys_file: Path
) -> None:
    remote = open_store(redis_server.url)
    name = ENTRIES + samples.key(0).hash()
    for bad in (_flipped(0), _forged(0), _unsigned(0), blobs.blob(1), b""):
        remote.put(name, bad)
        fleet._current.fleet = None
        with (
            warnings.catch_warnings(),
            machine(Fault(redis_server.url), keys_file, "readwrite") as store,
        ):
            warnings.simplefilter("ignore")
            store.fetch(samples.key(0), samples.built)
            assert fleet.current().write_back.flush(10)  # type: ignore[union-attr]
        assert remote.get(name) == blobs.envelope.pack(
            blobs.entry(0), blobs.signer(blobs.hmac_ring()), provenance()
        )


def test_a_server_that_comes_back_is_used_again(
    tmp_path: Path, keys_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tileops.cache.remote.breaker.FIRST_SECONDS", 0.1)
    with (
        servers.redis(tmp_path) as server,
        machine(Fault(server.url), keys_file, "read") as store,
    ):
        server.stop()
        with pytest.warns(RuntimeWarning, match="calls go on without it"):
            store.fetch(samples.key(0), samples.built)
        assert fleet.state() == {"breaker": 1, "queue": 0}
        server.go_on()
        open_store(server.url).put(ENTRIES + samples.key(1).hash(), blobs.blob(1))
        time.sleep(0.15)
        assert store.fetch(samples.key(1), samples.built).files == blobs.entry(1).files
        assert fleet.state() == {"breaker": 0, "queue": 0}


def test_a_queue_that_is_full_drops_and_counts(tmp_path: Path, keys_file: Path) -> None:
    entries = [blobs.entry(number) for number in range(MOST_ENTRIES + 30)]
    with (
        servers.redis(tmp_path) as server,
        machine(Fault(server.url), keys_file, "readwrite") as store,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        store.fetch(samples.key(1000), lambda: samples.built(1000))
        one = fleet.current()
        assert one is not None
        assert one.write_back.flush(10)
        server.stop()
        for entry in entries:
            one.write_back.put(entry, None)
            assert one.write_back.length <= MOST_ENTRIES
        assert counters.stats()["remote_dropped"] >= 29  # one is on its way
        server.go_on()
        assert one.write_back.flush(20)
        dropped = counters.stats()["remote_dropped"]
        one.write_back.put(blobs.entry(0, size=MOST_BYTES + 1), None)
        assert counters.stats()["remote_dropped"] == dropped + 1  # type: ignore[operator]


def test_a_server_that_evicts_is_a_miss(tmp_path: Path, keys_file: Path) -> None:
    with servers.redis(
        tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"
    ) as server:
        remote = open_store(server.url)
        for number in range(60):
            remote.put(ENTRIES + samples.key(number).hash(), blobs.blob(number, size=100_000))
        left = {item.name for item in remote.items(ENTRIES)}
        assert 0 < len(left) < 60
        with machine(Fault(server.url), keys_file, "read") as store:
            for number in range(60):
                store.fetch(samples.key(number), lambda n=number: samples.built(n, 100_000))
        stats = counters.stats()
        # A read may push out more.
        assert 0 < stats["remote_hits"] <= len(left)  # type: ignore[operator]
        assert stats["misses"] == 60 - stats["remote_hits"]  # type: ignore[operator]


def test_a_server_that_is_full_refuses_and_nothing_is_lost(tmp_path: Path, keys_file: Path) -> None:
    with servers.redis(
        tmp_path, "--maxmemory", "1mb", "--maxmemory-policy", "noeviction"
    ) as server:
        with (
            machine(Fault(server.url), keys_file, "readwrite") as store,
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            store.fetch(samples.key(0), lambda: samples.built(0, 3_000_000))
            assert fleet.current().write_back.flush(10)  # type: ignore[union-attr]
        assert any("cannot write" in str(w.message) for w in caught)
        assert not list(open_store(server.url).items(ALIASES))
        assert counters.stats()["remote_dropped"] == 1


def _full(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = folder_store.write_file

    def refuse(path: Path, data: bytes) -> None:
        write(path, data[:1000])  # what fits
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(folder_store, "write_file", refuse)


def _folder_in_place(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20, 40):
        (share / ENTRIES / samples.key(number).hash()).mkdir()


def _no_place_for_parts(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (share / "1/p").rmdir()
    (share / "1/p").touch()


@pytest.mark.parametrize("spoil", [_full, _folder_in_place, _no_place_for_parts])
def test_a_folder_that_takes_nothing_is_read_on(
    tmp_path: Path,
    keys_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    (tmp_path / "share").mkdir()
    url = f"file://{tmp_path}/share"
    remote = open_store(url)
    for number in range(20):
        remote.put(ENTRIES + samples.key(number).hash(), blobs.blob(number))
    spoil(tmp_path / "share", monkeypatch)
    with machine(Fault(url), keys_file, "readwrite") as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(20):  # one that nobody has, one that is there
            missing = store.fetch(samples.key(number + 20), lambda n=number: samples.built(n + 20))
            assert samples.is_right(missing.files, number + 20)
            assert fleet.current().write_back.flush(10)  # type: ignore[union-attr]
            found = store.fetch(samples.key(number), samples.built)
            assert found.files == blobs.entry(number).files
    assert counters.stats()["remote_hits"] == 20
    assert counters.stats()["remote_dropped"] == 20
    assert list((tmp_path / "share/1").glob("p/*")) == []

"""What each kind of remote does: a folder, Redis and S3, by one contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.fleet import servers
from tileops.cache.remote.lease import BucketLease
from tileops.cache.remote.opening import open_store
from tileops.cache.remote.stores import (
    Bounds,
    RefusedError,
    RemoteStore,
    UnavailableError,
    scrubbed,
    shown,
    within,
)
from tileops.errors import CacheError


def test_bytes_come_back_by_name(remote: RemoteStore) -> None:
    data = bytes(range(256)) * 500
    assert remote.get("1/e/a") is None
    remote.put("1/e/a", data)
    assert remote.get("1/e/a") == data
    remote.put("1/e/a", b"new")
    assert remote.get("1/e/a") == b"new"
    remote.delete("1/e/a")
    remote.delete("1/e/a")
    assert remote.get("1/e/a") is None


def test_create_only_creates(remote: RemoteStore) -> None:
    assert remote.create("1/a/x", b"first")
    assert not remote.create("1/a/x", b"second")
    assert remote.get("1/a/x") == b"first"


def test_of_many_that_create_one_wins(remote: RemoteStore) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        if remote.create("1/a/race", str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert remote.get("1/a/race") == str(won[0]).encode()


def test_a_listing_has_name_size_and_time(remote: RemoteStore) -> None:
    for number in range(3):
        remote.put(f"1/e/{number}", bytes(number + 1))
    remote.put("1/a/x", b"")
    found = list(remote.items("1/e/"))
    assert sorted((item.name, item.size) for item in found) == [
        (f"1/e/{n}", n + 1) for n in range(3)
    ]
    assert all(abs(item.used_at - time.time()) < 100 for item in found)
    assert list(remote.items("1/none/")) == []


def test_one_holds_a_lease_until_it_gives_it_back(remote: RemoteStore) -> None:
    first, second = remote.lease("k", 60), remote.lease("k", 60)
    assert first.acquire()
    assert not second.acquire()
    first.renew()
    second.release()  # not its own: nothing happens
    assert not remote.lease("k", 60).acquire()
    assert remote.lease("other", 60).acquire()
    first.release()
    assert remote.lease("k", 60).acquire()


def test_a_lease_ends_when_nobody_renews_it(remote: RemoteStore) -> None:
    began = time.monotonic()
    lease = remote.lease("k", 0.4)
    assert lease.acquire()
    while not remote.lease("k", 0.4).acquire():
        time.sleep(0.02)
    assert time.monotonic() - began >= 0.4
    lease.release()


def test_a_renewal_starts_the_time_of_a_lease_anew(redis_server: servers.Server) -> None:
    store = open_store(redis_server.url)
    lease = store.lease("renewed", 60)
    assert lease.acquire()
    store.command("PEXPIRE", "tileops/1/l/renewed", 5000)  # type: ignore[attr-defined]
    lease.renew()
    assert store.command("PTTL", "tileops/1/l/renewed") > 50_000  # type: ignore[attr-defined]


class Objects:
    """Objects in memory, and a clock for those who create them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.there: set[str] = set()
        patch.setattr("tileops.cache.remote.lease.time.time", lambda: self.now)

    def create(self, name: str, data: bytes) -> bool:
        is_new = name not in self.there
        self.there.add(name)
        return is_new

    def delete(self, name: str) -> None:
        self.there.discard(name)


def test_a_lease_by_buckets_has_no_gap_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects(monkeypatch)
    lease = BucketLease(objects, "k", 10.0)
    assert lease.acquire()
    for _ in range(20):  # renewed each third of its time, across boundaries
        objects.now += 3.3
        lease.renew()
        assert not BucketLease(objects, "k", 10.0).acquire()
    objects.now += 20.0
    assert BucketLease(objects, "k", 10.0).acquire()


def test_two_that_meet_at_a_boundary_do_not_both_win(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects(monkeypatch)
    first, second = BucketLease(objects, "k", 10.0), BucketLease(objects, "k", 10.0)
    assert first._create(100)  # and before it creates the next one, the next one begins
    objects.now = 1010.0
    assert second.acquire()
    objects.now = 1009.9
    assert not first.acquire()
    first.release()
    objects.now = 1010.1
    assert not BucketLease(objects, "k", 10.0).acquire()


@pytest.mark.parametrize("skew", [-10.0, 10.0])
def test_a_clock_that_is_one_bucket_off_still_waits(
    monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    objects = Objects(monkeypatch)
    assert BucketLease(objects, "k", 10.0).acquire()
    objects.now += skew
    assert not BucketLease(objects, "k", 10.0).acquire()


def test_a_folder_that_is_not_mounted_is_not_made(tmp_path: object) -> None:
    store = open_store(f"file://{tmp_path}/none")
    assert store.get("1/e/a") is None
    with pytest.raises(RefusedError, match="is not a folder"):
        store.put("1/e/a", b"x")


# -- what servers do -----------------------------------------------------------------------------
@pytest.fixture
def proxy(redis_server: servers.Server) -> Callable[[str], RemoteStore]:
    passing = servers.Proxy(redis_server.port)

    def faulty(mode: str) -> RemoteStore:
        passing.mode = mode
        return open_store(f"redis://{servers.HOST}:{passing.port}/0", Bounds(0.1, 0.3))

    yield faulty  # type: ignore[misc]
    passing.close()


@pytest.mark.parametrize("mode", ["slow", "truncate", "reset", "hole"])
def test_a_bad_network_is_an_error_in_time(
    redis_server: servers.Server, proxy: Callable[[str], RemoteStore], mode: str
) -> None:
    open_store(redis_server.url).put("1/e/x", bytes(5000))
    store = proxy(mode)
    with pytest.raises(UnavailableError):
        within(1.0, lambda: store.get("1/e/x"))
    assert within(5, lambda: proxy("pass").get("1/e/x")) == bytes(5000)


def test_a_connection_that_the_server_closed_is_made_again(redis_server: servers.Server) -> None:
    store, other = open_store(redis_server.url), open_store(redis_server.url)
    store.put("1/e/x", b"1")
    other.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[attr-defined]
    assert store.get("1/e/x") == b"1"


def test_who_may_only_read_reads(redis_server: servers.Server) -> None:
    admin = open_store(redis_server.url)
    admin.put("1/e/x", b"1")
    admin.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get", "+ping", "+client")  # type: ignore[attr-defined]
    store = open_store(redis_server.url.replace("//", "//reader:secret@"))
    assert store.get("1/e/x") == b"1"
    with pytest.raises(RefusedError, match="no permissions") as caught:
        store.put("1/e/x", b"2")
    assert "secret" not in str(caught.value)
    with pytest.raises(RefusedError):
        open_store(redis_server.url.replace("//", "//reader:wrong@")).get("1/e/x")


def test_redis_forgets_after_a_month_of_no_use(redis_server: servers.Server) -> None:
    store = open_store(redis_server.url)
    store.put("1/e/x", b"1")
    store.command("EXPIRE", "tileops/1/e/x", 1000)  # type: ignore[attr-defined]
    assert 900 < store.command("TTL", "tileops/1/e/x") <= 1000  # type: ignore[attr-defined]
    store.get("1/e/x")
    assert store.command("TTL", "tileops/1/e/x") > 29 * 86400  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "on_get", "on_put", "on_create"),
    [
        (403, RefusedError, RefusedError, RefusedError),
        (409, UnavailableError, UnavailableError, None),
        (412, UnavailableError, UnavailableError, None),
        (500, UnavailableError, UnavailableError, UnavailableError),
    ],
)  # fmt: skip
def test_what_s3_answers(
    status: int,
    on_get: type[Exception],
    on_put: type[Exception],
    on_create: type[Exception] | None,
    monkeypatch: pytest.MonkeyPatch,
    s3_environment: servers.Server,
) -> None:
    refuser = servers.Refuser(status)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{servers.HOST}:{refuser.port}")
    store = open_store("s3://bucket/x", Bounds(5, 30))
    with pytest.raises(on_get):
        store.get("1/e/a")
    with pytest.raises(on_put):
        store.put("1/e/a", b"")
    if on_create is None:
        assert store.create("1/e/a", b"") is False
    else:
        with pytest.raises(on_create):
            store.create("1/e/a", b"")
    refuser.shutdown()
    refuser.server_close()


# -- names and waits -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("redis://user:p@ss@host:1/0?password=x", "redis://host:1/0"),
        ("redis://:secret@host", "redis://host"),
        ("s3://bucket/a?token=x#y", "s3://bucket/a"),
        ("file:///share/a@b", "file:///share/a@b"),
    ],
)
def test_secrets_of_a_url_are_not_shown(text: str, seen: str) -> None:
    assert shown(text) == seen


def test_secrets_are_scrubbed_from_errors() -> None:
    assert scrubbed("redis://u:secret@h/0", "bad secret\n at h") == "bad … at h"


@pytest.mark.parametrize("text", ["http://x", "redis:/x", "s3://"])
def test_a_url_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(CacheError):
        open_store(text)


def test_a_wait_ends_and_hands_errors_on() -> None:
    assert within(5, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    with pytest.raises(UnavailableError, match="no answer in 50 ms"):
        within(0.05, threading.Event().wait)
    with pytest.raises(UnavailableError, match="no time left"):
        within(0, lambda: 3)

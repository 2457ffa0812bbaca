"""Servers of the session, a keys file, and a store in an empty cache that uses a remote."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet import blobs, servers
from tileops import counters, log, option
from tileops.cache import Store
from tileops.cache.remote import fleet
from tileops.cache.remote.opening import open_store
from tileops.cache.remote.stores import COMMAND_BOUNDS, RemoteStore

NO_SERVERS = servers.lacks()
if NO_SERVERS is not None and os.environ.get("TILEOPS_REQUIRE_SERVERS"):
    raise RuntimeError(f"continuous integration must run these tests: {NO_SERVERS}")
needs_servers = pytest.mark.skipif(NO_SERVERS is not None, reason=str(NO_SERVERS))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    if NO_SERVERS is not None:
        pytest.skip(NO_SERVERS)
    with servers.redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    if NO_SERVERS is not None:
        pytest.skip(NO_SERVERS)
    with servers.s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_environment(s3_server: servers.Server, monkeypatch: pytest.MonkeyPatch) -> servers.Server:
    for name, value in servers.S3_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{servers.HOST}:{s3_server.port}")
    return s3_server


@pytest.fixture(params=["file", "redis", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A remote of each kind, empty."""
    if request.param == "file":
        (tmp_path / "share").mkdir()
        return f"file://{tmp_path}/share"
    if request.param == "redis":
        found = request.getfixturevalue("redis_server").url
        open_store(found).command("FLUSHALL")  # type: ignore[attr-defined]
        return str(found)
    return f"{request.getfixturevalue('s3_environment').url}/{os.urandom(4).hex()}"


@pytest.fixture
def remote(url: str) -> RemoteStore:
    return open_store(url, COMMAND_BOUNDS)


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    return blobs.keys_file(tmp_path)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has its own connection, breaker and counters, and gives its warnings anew.

    A busy machine has time: only the tests of failures set the usual limits.
    """
    monkeypatch.setenv("TILEOPS_REMOTE_TIMEOUT_SECONDS", "30")
    fleet._current.fleet = None
    log._warned.clear()
    counters.stats(reset=True)
    yield
    with contextlib.suppress(AttributeError):
        fleet._current.fleet.write_back.flush(5)
    fleet._current.fleet = None
    log._warned.clear()


@pytest.fixture
def node(tmp_path: Path, keys_file: Path) -> Callable[..., Store]:
    """A new machine: ``node(url, mode)`` gives the store of an empty cache that uses the remote."""
    count = 0

    def make(url: str, mode: str = "readwrite", **more: object) -> Store:
        nonlocal count
        count += 1
        stack.enter_context(option.cache_dir(tmp_path / f"node{count}"))
        stack.enter_context(option.remote(url, mode=mode, **{"keys": keys_file, **more}))
        return Store()

    with contextlib.ExitStack() as stack:
        yield make  # type: ignore[misc]

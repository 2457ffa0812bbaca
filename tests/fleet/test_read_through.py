"""A miss asks the remote: what it sends is verified and kept, and everything else is a miss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache import samples
from tests.fleet import blobs
from tests.fleet.conftest import needs_servers
from tileops import counters, option, settings
from tileops.cache import Store
from tileops.cache.remote import fleet
from tileops.errors import ArgumentError, CompileMissError

Node = Callable[..., Store]


def never() -> samples.Built:
    raise AssertionError("nothing should be compiled")


def is_whole(found: object, number: int = 0) -> bool:
    return found == blobs.entry(number) or found.files == blobs.entry(number).files  # type: ignore[attr-defined]


def counts() -> dict[str, int]:
    return {k: v for k, v in counters.stats().items() if k != "ms" and v}  # type: ignore[misc]


@pytest.mark.parametrize(
    "url",
    ["file", pytest.param("redis", marks=needs_servers), pytest.param("s3", marks=needs_servers)],
    indirect=True,
)
def test_one_machine_compiles_and_the_next_one_finds_it(url: str, node: Node) -> None:
    first, built = node(url), []
    first.fetch(samples.key(), lambda: built.append(1) or samples.built())
    assert fleet.current().write_back.flush(20)  # type: ignore[union-attr]
    assert counts() == {"misses": 1, "remote_misses": 1, "remote_puts": 1}
    counters.stats(reset=True)

    second, layers = node(url, "read"), []
    found = second.fetch(samples.key(), never, layers.append)
    assert is_whole(found)
    assert layers == ["remote"]
    assert counts() == {"remote_hits": 1}
    assert found.path is not None
    assert found.path.parent.parent.name == "node2"  # kept on this machine
    assert Store().get(samples.key()).files == found.files  # type: ignore[union-attr]
    assert built == [1]


@pytest.fixture
def share(tmp_path: Path) -> Path:
    folder = tmp_path / "share"
    (folder / "1" / "e").mkdir(parents=True)
    return folder


def place(share: Path, data: bytes, number: int = 0) -> Path:
    path = share / "1" / "e" / samples.key(number).hash()
    path.write_bytes(data)
    return path


def test_it_is_asked_once_a_program(share: Path, node: Node) -> None:
    place(share, blobs.blob())
    store = node(f"file://{share}", "read")
    for _ in range(3):
        assert is_whole(store.fetch(samples.key(), never))
    assert counts() == {"remote_hits": 1, "memory_hits": 2}


def test_a_copy_does_not_wait_for_the_disk(
    share: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(share, blobs.blob())
    synced: list[int] = []
    wait = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(descriptor) or wait(descriptor)
    )
    store = node(f"file://{share}", "read")
    store.fetch(samples.key(1), lambda: samples.built(1))  # nobody else has it
    assert synced
    synced.clear()
    assert store.fetch(samples.key(), never).path is not None
    assert not synced


@pytest.mark.parametrize("size", [0, 1000])
def test_a_copy_that_a_power_failure_tore_is_fetched_again(
    share: Path, node: Node, size: int
) -> None:
    place(share, blobs.blob())
    found = node(f"file://{share}", "read").fetch(samples.key(), never)
    assert found.path is not None
    os.truncate(found.path / "launch0.cubin", size)
    with pytest.warns(RuntimeWarning, match="damaged cache entry, passed over"):
        assert is_whole(Store().fetch(samples.key(), never))
    assert counts() == {"remote_hits": 2}
    assert Store().get(samples.key()) is not None  # in the damaged one's place


def test_get_does_not_ask_it(share: Path, node: Node) -> None:
    place(share, blobs.blob())
    assert node(f"file://{share}").get(samples.key()) is None


def test_a_reader_writes_nothing(share: Path, node: Node) -> None:
    node(f"file://{share}", "read").fetch(samples.key(), samples.built)
    assert fleet.current().write_back.flush(5)  # type: ignore[union-attr]
    assert list(share.rglob("*")) == [share / "1", share / "1" / "e"]


@pytest.mark.parametrize("layer", ["private", "memory"])
def test_what_is_here_needs_no_remote(share: Path, node: Node, layer: str) -> None:
    store = node(f"file://{share}")
    with option.remote(None):
        store.fetch(samples.key(), samples.built)
    share.rename(share.with_name("gone"))
    asked = Store() if layer == "private" else store
    assert asked.fetch(samples.key(), never).hash == samples.key().hash()
    assert "remote_misses" not in counts()


def test_a_file_that_is_a_link_or_a_fifo_is_not_read(
    share: Path, node: Node, tmp_path: Path
) -> None:
    path = place(share, blobs.blob())
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(share / "1" / "e" / samples.key(1).hash())
    store = node(f"file://{share}", "read")
    for number in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store.fetch(samples.key(number), lambda n=number: samples.built(n))
    assert counts()["misses"] == 2


# -- settings --------------------------------------------------------------------------------------
def test_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "": "s3://bucket/x", "_MODE": "readwrite", "_KEYS": str(tmp_path / "k.json"), "_SIGN": "ci",
        "_UNSIGNED": "1", "_LEASE_SECONDS": "3", "_TIMEOUT_SECONDS": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"TILEOPS_REMOTE{name}", value)
    found = fleet.config_of(settings.current())
    assert found == fleet.Config(
        "s3://bucket/x", True, str(tmp_path / "k.json"), "ci", True, 3.0, 2.0, False
    )
    assert {k: v for k, v in settings.as_environment().items() if "REMOTE" in k} == {
        k: v for k, v in os.environ.items() if k.startswith("TILEOPS_REMOTE")
    } | {"TILEOPS_REMOTE_LEASE_SECONDS": "3.0", "TILEOPS_REMOTE_TIMEOUT_SECONDS": "2.0"}
    with option.remote("redis://h", mode="read"):
        assert fleet.config_of(settings.current()).url == "redis://h"  # type: ignore[union-attr]
        assert not fleet.config_of(settings.current()).writes  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("url", "mode", "says"),
    [
        ("http://h", "read", "option.remote: expected a URL with one of the schemes redis, "),
        ("file://share", "read", "option.remote: expected file:// with an absolute path"),
        ("redis://", "read", "option.remote: expected a URL"),
        ("redis://h", "write", "option.remote: expected read or readwrite"),
    ],
)
def test_wrong_settings_are_errors(url: str, mode: str, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        option.remote(url, mode=mode)


def test_a_wrong_variable_does_not_show_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEOPS_REMOTE", "http://user:secret@h")
    with pytest.raises(
        ArgumentError, match="environment variable TILEOPS_REMOTE: expected a URL"
    ) as caught:
        settings.current()
    assert "secret" not in str(caught.value)


IMPORTS = """
import sys
from tests.cache import samples
from tileops import cache
store = cache.Store()
store.fetch(samples.key(0), samples.built)
print([m for m in ("tileops.cache.remote", "redis", "fsspec", "cryptography") if m in sys.modules])
"""


def test_no_client_is_imported_where_nothing_is_missing(tmp_path: Path) -> None:
    seen = []
    for extra in ({}, {"TILEOPS_REMOTE": "redis://127.0.0.1:1", "TILEOPS_REMOTE_UNSIGNED": "1"}):
        env = samples.environment(tmp_path / "cache", **extra)
        done = subprocess.run(
            [sys.executable, "-c", IMPORTS], env=env, capture_output=True, text=True, check=True
        )
        seen.append(json.loads(done.stdout.replace("'", '"')))
    assert seen == [[], []]  # a cold start without a remote, a warm one with it


# -- who is believed -------------------------------------------------------------------------------
def test_without_keys_it_is_not_asked(
    share: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(share, blobs.blob())
    store = node(f"file://{share}", "read", keys=None)
    with pytest.warns(RuntimeWarning, match=r"no keys: name a keys file \(TILEOPS_REMOTE_KEYS\)"):
        store.fetch(samples.key(), samples.built)
    assert counts() == {"misses": 1, "remote_unavailable": 1}
    monkeypatch.setenv("TILEOPS_REMOTE_UNSIGNED", "1")
    assert is_whole(node(f"file://{share}", "read", keys=None).fetch(samples.key(), never))


def test_a_key_that_is_revoked_while_the_process_runs_counts_no_more(
    share: Path, node: Node, keys_file: Path
) -> None:
    for number in (0, 1):
        place(share, blobs.blob(number), number)
    store = node(f"file://{share}", "read")
    assert is_whole(store.fetch(samples.key(0), never))
    blobs.keys_file(keys_file.parent, {**blobs.HMAC_FILE, "revoked": {"kids": ["team"]}})
    with pytest.warns(RuntimeWarning, match="the key team is revoked"):
        store.fetch(samples.key(1), lambda: samples.built(1))
    assert counts() == {"remote_hits": 1, "misses": 1, "remote_untrusted": 1}


def test_who_cannot_sign_writes_nothing_and_says_so(
    share: Path, node: Node, tmp_path: Path
) -> None:
    public = {k: v for k, v in blobs.keys.generate("ci", "ed25519")[0].items() if k != "private"}
    file = blobs.keys_file(tmp_path, {"keys": [public]}, "public.json")
    with pytest.warns(RuntimeWarning, match="nothing is written to it: name the key that signs"):
        node(f"file://{share}", keys=file).fetch(samples.key(), samples.built)
    assert list((share / "1" / "e").iterdir()) == []


def test_strict_mode_says_what_the_remote_said(share: Path, node: Node) -> None:
    store = node(f"file://{share}", "read")

    def strictly() -> samples.Built:
        raise CompileMissError("op f needs a compile")

    with pytest.raises(CompileMissError, match=r"op f needs a compile$"):
        store.fetch(samples.key(), strictly)  # a miss there is not worth a word
    place(share, blobs.blob()[:-1])
    with (
        pytest.raises(CompileMissError, match="op f needs a compile; remote damaged: "),
        pytest.warns(RuntimeWarning),
    ):
        store.fetch(samples.key(), strictly)


def test_pointers_lead_from_an_identity_to_its_entry(share: Path, node: Node) -> None:
    node(f"file://{share}").fetch(samples.key(), samples.built)
    one = fleet.current()
    assert one is not None
    assert one.write_back.flush(10)
    identity = fleet.identity_of(samples.key().fields)
    answer = one.look_up_alike(identity, one.budget())
    assert answer.result == "hit"
    assert is_whole(answer.entry)
    assert one.look_up_alike("0" * 64, one.budget()).result == "miss"
    # A pointer that leads nowhere is mended by the next machine that compiles.
    (share / "1" / "e" / samples.key().hash()).unlink()
    assert one.look_up_alike(identity, one.budget()).result == "miss"
    other = samples.key(toolchain={"triton": "3.8.0"})
    node(f"file://{share}").fetch(other, samples.built)
    assert fleet.current().write_back.flush(10)  # type: ignore[union-attr]
    assert fleet.current().look_up_alike(identity, one.budget()).entry.hash == other.hash()  # type: ignore[union-attr]

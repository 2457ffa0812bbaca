"""A machine without a compiler runs what another one wrote to the remote, found by its pointers."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.test_toolchain_match import call
from tests.fleet.conftest import needs_servers
from tileops import counters, option
from tileops.cache import Store
from tileops.cache.remote import fleet
from tileops.errors import CompileMissError, ToolchainError

Node = Callable[..., Store]


@pytest.fixture
def share(tmp_path: Path) -> Path:
    (tmp_path / "share").mkdir()
    return tmp_path / "share"


def write(node: Node, url: str) -> None:
    """Let a machine with a compiler write the program."""
    node(url)
    call()
    assert counters.stats()["compiles"] == 1
    assert fleet.current().write_back.flush(20)  # type: ignore[union-attr]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setenv("PATH", "/nonexistent")


@pytest.mark.parametrize(
    "url",
    ["file", pytest.param("redis", marks=needs_servers), pytest.param("s3", marks=needs_servers)],
    indirect=True,
)
def test_it_runs_what_another_machine_compiled_and_keeps_it(
    url: str, node: Node, no_compiler: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tileops")
    write(node, url)
    no_compiler()
    node(url, "read")
    with option.strict():
        call()
        assert counters.stats()["compiles"] == 0
        assert counters.stats()["remote_hits"] == 1
        found = r"hit match_relu cpu:\S+ layer=remote \S+ ms [0-9a-f]{12} \(made by g\+\+ "
        assert re.search(found, caplog.text), caplog.text
        # Another process of the machine asks nobody.
        call()
    assert counters.stats()["remote_hits"] == counters.stats()["remote_misses"] == 0
    assert "layer=alias" in caplog.text


def test_exact_asks_for_no_pointer(
    share: Path, node: Node, no_compiler: Callable[[], None]
) -> None:
    write(node, f"file://{share}")
    no_compiler()
    node(f"file://{share}", "read")
    with option.toolchain_match("exact"), pytest.raises(ToolchainError):
        call()
    assert counters.stats()["remote_hits"] == counters.stats()["remote_misses"] == 0


def test_a_remote_without_the_program_is_asked_and_the_compiler_is_what_lacks(
    share: Path, node: Node, no_compiler: Callable[[], None]
) -> None:
    no_compiler()
    node(f"file://{share}", "read")
    with option.strict(), pytest.raises(CompileMissError, match=r"key unknown: g\+\+ was not f"):
        call()
    assert counters.stats()["remote_misses"] >= 1  # also for lower levels of the processor


def test_what_it_cannot_believe_is_a_miss_that_says_why(
    share: Path, node: Node, no_compiler: Callable[[], None]
) -> None:
    write(node, f"file://{share}")
    for entry in (share / "1" / "e").iterdir():
        entry.write_bytes(entry.read_bytes()[:-1])
    no_compiler()
    node(f"file://{share}", "read")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with option.strict(), pytest.raises(CompileMissError, match="; remote damaged: "):
            call()


@needs_servers
def test_of_a_server_that_is_down_the_error_tells_beside_what_lacks(
    node: Node, no_compiler: Callable[[], None]
) -> None:
    no_compiler()
    node("redis://127.0.0.1:1/0", "read")  # nothing listens there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ToolchainError, match=r"g\+\+ was not found.*; remote unavailable: "):
            call()

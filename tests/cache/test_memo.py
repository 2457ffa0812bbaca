"""Facts of the toolchain: recalled while their files stay the same, and only then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileops import option
from tileops.cache import memo

VALUE = {"g++": "12.2.0 abcd"}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    memo.forget()
    yield
    memo.forget()


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "tool"
    path.write_bytes(b"version one")
    return path


def test_recalled_while_the_file_is_the_same(root: Path, tool: Path) -> None:
    assert memo.recall("toolchain", ["g++"]) is None
    memo.remember("toolchain", ["g++"], [tool], VALUE)
    assert memo.recall("toolchain", ["g++"]) == VALUE
    memo.forget()  # as another process
    assert memo.recall("toolchain", ["g++"]) == VALUE
    assert memo.recall("toolchain", ["clang++"]) is None
    assert memo.recall("another", ["g++"]) is None


@pytest.mark.parametrize("process", ["this one", "another"])
@pytest.mark.parametrize("change", ["content", "size", "replaced", "old time", "gone", "touched"])
def test_forgotten_when_the_file_changes(root: Path, tool: Path, change: str, process: str) -> None:
    memo.remember("toolchain", [], [tool], VALUE)
    before = tool.stat()
    match change:
        case "content":
            tool.write_bytes(b"version two")
        case "size":
            tool.write_bytes(b"version three")
        case "replaced":
            other = tool.with_name("other")
            other.write_bytes(b"version one")
            other.rename(tool)
        case "old time":
            tool.write_bytes(b"version two")
            os.utime(tool, ns=(before.st_atime_ns, before.st_mtime_ns))
        case "gone":
            tool.unlink()
        case "touched":
            tool.touch()
    if process == "another":
        memo.forget()
    assert memo.recall("toolchain", []) is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": 1}', b"[" * 100_000])
def test_a_damaged_fact_is_not_known(root: Path, tool: Path, text: bytes) -> None:
    memo.remember("toolchain", [], [tool], VALUE)
    (path,) = (root / ".state" / "facts").iterdir()
    path.write_bytes(text)
    memo.forget()
    assert memo.recall("toolchain", []) is None


def test_without_a_directory_this_process_knows(tool: Path, root: Path) -> None:
    with option.cache_disable():
        memo.remember("toolchain", [], [tool], VALUE)
        assert memo.recall("toolchain", []) == VALUE
        memo.forget()
        assert memo.recall("toolchain", []) is None
    assert not root.exists()


def test_a_link_that_leads_elsewhere_is_another_file(root: Path, tool: Path) -> None:
    link, other = tool.with_name("link"), tool.with_name("other")
    link.symlink_to(tool)
    other.write_bytes(tool.read_bytes())
    memo.remember("toolchain", [], [link], VALUE)
    assert memo.recall("toolchain", []) == VALUE
    link.unlink()
    link.symlink_to(other)
    assert memo.recall("toolchain", []) is None

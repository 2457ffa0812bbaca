"""Facts of the toolchain: recalled while their files stay the same, and only then."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileops import option
from tileops.cache import memo

VALUE = {"g++": "12.2.0 abcd"}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    memo._found.clear()
    yield
    memo._found.clear()


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "tool"
    path.write_bytes(b"version one")
    return path


def _remember(name: str, choice: object, files: list[Path], value: object) -> None:
    memo.remember(name, choice, files, value, began=time.time())


def test_recalled_while_the_file_is_the_same(root: Path, tool: Path) -> None:
    assert memo.recall("toolchain", ["g++"]) is None
    _remember("toolchain", ["g++"], [tool], VALUE)
    assert memo.recall("toolchain", ["g++"]) == VALUE
    memo._found.clear()  # as another process
    assert memo.recall("toolchain", ["g++"]) == VALUE
    assert memo.recall("toolchain", ["clang++"]) is None
    assert memo.recall("another", ["g++"]) is None


@pytest.mark.parametrize("process", ["this one", "another"])
@pytest.mark.parametrize("change", ["content", "size", "replaced", "old time", "gone", "touched"])
def test_forgotten_when_the_file_changes(root: Path, tool: Path, change: str, process: str) -> None:
    _remember("toolchain", [], [tool], VALUE)
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
        memo._found.clear()
    assert memo.recall("toolchain", []) is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": 1}', b"[" * 100_000])
def test_a_damaged_fact_is_not_known(root: Path, tool: Path, text: bytes) -> None:
    _remember("toolchain", [], [tool], VALUE)
    (path,) = (root / ".state" / "facts").iterdir()
    path.write_bytes(text)
    memo._found.clear()
    assert memo.recall("toolchain", []) is None


def test_without_a_directory_this_process_knows(tool: Path, root: Path) -> None:
    with option.cache_disable():
        _remember("toolchain", [], [tool], VALUE)
        assert memo.recall("toolchain", []) == VALUE
        memo._found.clear()
        assert memo.recall("toolchain", []) is None
    assert not root.exists()


def test_a_link_that_leads_elsewhere_is_another_file(root: Path, tool: Path) -> None:
    link, other = tool.with_name("link"), tool.with_name("other")
    link.symlink_to(tool)
    other.write_bytes(tool.read_bytes())
    _remember("toolchain", [], [link], VALUE)
    assert memo.recall("toolchain", []) == VALUE
    link.unlink()
    link.symlink_to(other)
    assert memo.recall("toolchain", []) is None


@pytest.mark.parametrize("change", ["a file appears", "a file goes"])
def test_a_folder_changes_with_the_names_in_it(root: Path, tool: Path, change: str) -> None:
    folder = tool.with_name("folder")  # the cache is in another one
    folder.mkdir()
    tool = tool.rename(folder / "tool")
    _remember("toolchain", [], [folder], VALUE)
    assert memo.recall("toolchain", []) == VALUE
    if change == "a file appears":
        tool.with_name("other").write_bytes(b"")
    else:
        tool.unlink()
    assert memo.recall("toolchain", []) is None


def test_what_changed_while_it_was_read_is_not_kept(root: Path, tool: Path) -> None:
    began = time.time()
    os.utime(tool)  # whether before or after the reading is not known
    while tool.stat().st_ctime < began:  # the file system's clock has ticks
        os.utime(tool)
    memo.remember("toolchain", [], [tool], VALUE, began=began)
    assert memo.recall("toolchain", []) is None

"""Scripts: what a person's program was compiled to, found with ls and cat."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest

from tests.cache import samples
from tileops.cache import Store, catalog, scripts
from tileops.cache.files import remove


def _fetch(number: int) -> object:
    return Store().fetch(samples.key(number), lambda: samples.built(number))


def _record(script: scripts.Script, number: int, **when: object) -> None:
    entry = Store().fetch(samples.key(number), lambda: samples.built(number))
    scripts.record(script, entry, {"target": "cuda:sm_90a", **when})


def test_links_and_table(root: Path) -> None:
    script = scripts.Script("matmul_relu", "ab" * 32)
    _record(script, 0, M=128, fast=True)
    _record(script, 1, M=256, fast=False)
    _record(script, 0, M=512, fast=True)
    _record(script, 0, M=512, fast=True)
    folder = root / "scripts" / "matmul_relu" / script.hash
    links = sorted((folder / "programs").iterdir())
    assert [p.name for p in links] == ["0", "1"]
    for number, link in enumerate(links):
        assert not link.readlink().is_absolute()
        assert link.resolve() == root / "programs" / samples.key(number).hash()
    assert (folder / "dispatch_table.txt").read_text().splitlines() == [
        "M    fast   target       program  hash",
        f"128  true   cuda:sm_90a  0        {samples.key(0).hash()[:12]}",
        f"256  false  cuda:sm_90a  1        {samples.key(1).hash()[:12]}",
        f"512  true   cuda:sm_90a  0        {samples.key(0).hash()[:12]}",
    ]


def test_programs_that_are_gone_leave_the_table(root: Path) -> None:
    script = scripts.Script("f", "cd" * 32)
    _record(script, 0, M=1)
    shutil.rmtree(root / "programs" / samples.key(0).hash())
    _record(script, 1, M=2)
    folder = root / "scripts" / "f" / script.hash
    assert [row["when"]["M"] for row in scripts.dispatch_rows(folder)] == [2]
    assert (folder / "programs" / "0").resolve().name == samples.key(1).hash()
    assert not (folder / "programs" / "1").exists()


def test_a_damaged_table_is_rewritten(root: Path) -> None:
    script = scripts.Script("f", "ef" * 32)
    _record(script, 0, M=1)
    folder = root / "scripts" / "f" / script.hash
    for text in ("", "{", "[]", '{"format": 1, "rows": [3]}', '{"format": 9}', "[" * 100000):
        (folder / "dispatch.json").write_text(text)
        _record(script, 0, M=1)
        assert len(scripts.dispatch_rows(folder)) == 1


@pytest.mark.parametrize(
    "row",
    [
        {"program": 5, "when": {}},
        {"program": ["a"], "when": {}},
        {"program": None, "when": None},
        {"program": "ab" * 32, "when": []},
        {"program": "/etc", "when": {"M": 1}},
        {"program": "../../..", "when": {"M": 1}},
        {"program": "a\0b", "when": {}},
        {"when": {}},
        [],
    ],
)
def test_a_row_that_cannot_be_is_left_out(root: Path, row: object) -> None:
    script = scripts.Script("f", "ef" * 32)
    _record(script, 0, M=1)
    path = root / "scripts" / "f" / script.hash / "dispatch.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "rows": [row, *content["rows"]]}))
    assert catalog.why_missed(samples.key(1), "f").startswith("changed: ir")
    _record(script, 1, M=2)
    assert [row["when"]["M"] for row in scripts.dispatch_rows(path.parent)] == [1, 2]


def _as_folder(path: Path) -> None:
    remove(path)
    (path / "below").mkdir(parents=True)
    (path / "below" / "x").write_text("x")


def _as_link(path: Path) -> None:
    remove(path)
    path.symlink_to("elsewhere")


ODD = {"deleted": remove, "a folder": _as_folder, "a link": _as_link}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["programs/1", "programs", "dispatch_table.txt", "dispatch.json"])
def test_what_is_missing_or_odd_comes_back_at_the_next_look_up(
    root: Path, name: str, odd: str
) -> None:
    """In another process: this one may remember the table. No warning, and once is enough."""
    script = scripts.Script("f", "ab" * 32)
    for number in (0, 1):
        _record(script, number, M=number)
    folder = root / "scripts" / "f" / script.hash
    whole = _look(folder)
    ODD[odd](folder / name)
    scripts._tables.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (0, 1):
            _record(script, number, M=number)
    assert _look(folder) == whole


def _look(folder: Path) -> dict[str, str]:
    """Names below ``folder``, with the texts of files and the targets of links."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_a_folder_in_the_place_of_the_lock(root: Path) -> None:
    script = scripts.Script("f", "ab" * 32)
    (root / "scripts" / "f" / script.hash / ".lock" / "x").mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _record(script, 0, M=0)
    assert len(scripts.dispatch_rows(root / "scripts" / "f" / script.hash)) == 1


def test_nothing_is_written_for_what_is_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = scripts.Script("f", "ab" * 32)
    _record(script, 0, M=0)
    monkeypatch.setattr(scripts, "_record", lambda *arguments: pytest.fail("written again"))
    _record(script, 0, M=0)


def test_a_link_that_cannot_be_put_back_is_no_warning(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = scripts.Script("f", "ab" * 32)
    _record(script, 0, M=0)
    (root / "scripts" / "f" / script.hash / "programs" / "0").unlink()

    def refuse(*arguments: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(scripts, "_record", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _record(script, 0, M=0)


def test_a_name_is_never_a_path(root: Path) -> None:
    script = scripts.Script("../../evil/<lambda>", "01" * 32)
    _record(script, 0)
    assert [p.name for p in (root / "scripts").iterdir()] == [".._.._evil__lambda_"]


def test_a_folder_that_cannot_be_written_is_one_warning(root: Path) -> None:
    _fetch(0)
    (root / "scripts").write_text("a file")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _record(scripts.Script("f", "ab" * 32), 0)
        _record(scripts.Script("g", "ab" * 32), 0)
    assert len(caught) == 1


def test_processes_write_the_table_together(root: Path) -> None:
    child = """
import sys
import pytest

from tests.cache import samples
from tileops.cache import Store, scripts
n = int(sys.argv[1])
entry = Store().fetch(samples.key(n), lambda: samples.built(n))
scripts.record(scripts.Script("f", "ab" * 32), entry, {"M": n})
print("{}")
"""
    env = samples.environment(root)
    for process in [samples.start(child, [n], env=env) for n in range(6)]:
        samples.result(process)
    folder = root / "scripts" / "f" / ("ab" * 32)
    assert sorted(row["when"]["M"] for row in scripts.dispatch_rows(folder)) == list(range(6))
    assert len(list((folder / "programs").iterdir())) == 6

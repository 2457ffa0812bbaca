"""``python -m tileops tune``, each subcommand, and the progress bar of a tuning."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import types
import warnings
from pathlib import Path

import pytest
import torch

import tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
from tileops import settings
from tileops.autotuner.progress import Bar
from tileops.cache.directory import resolve
from tileops.cli.main import main

pytestmark = pytest.mark.usefixtures("tuning_cache")

PROGRAM = """
import sys, torch, tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
timer = FakeTimer({8: 3.0, 16: 2.0, 32: 1.0})
program = tileops.autotune(configs=[{"block": 8}, {"block": 32}], timer=timer)(fresh_const())
program(torch.randn(int(sys.argv[1])))
"""


def tune(size: int = 100, blocks: tuple[int, ...] = (8, 32)) -> FakeTimer:
    timer = FakeTimer({8: 3.0, 16: 2.0, 32: 1.0, 64: 0.5})
    space = [{"block": b} for b in blocks]
    tileops.autotune(configs=space, timer=timer, ref_prog=lambda a: a * 2)(fresh_const())(
        torch.randn(size)
    )
    return timer


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["tune", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_ls_lists_tunings_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no tunings" in run(capsys, "ls")[1]
    assert json.loads(run(capsys, "ls", "--json")[1]) == []
    tune(100)
    tune(200)
    code, out, _ = run(capsys, "ls")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert "N=200" in out
    found = json.loads(run(capsys, "ls", "--json")[1])
    assert [item["op"] for item in found] == ["tuned_double_const"] * 2
    assert {item["best"] for item in found} == {"block=32"}
    assert [(item["configs"], item["failed"]) for item in found] == [(3, 0)] * 2
    assert json.loads(run(capsys, "ls", "another", "--json")[1]) == []


def test_a_damaged_key_is_shown_without_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    tune(100)
    directory = resolve(settings.current()).private
    assert directory is not None
    (path,) = directory.scripts.glob("*/*/tuning/*/key.json")
    for text in ('{"sizes": [1], "static": "x", "bucket": 3, "device": {}}', "[]", "{"):
        path.write_text(text)
        for command in (["ls"], ["ls", "--json"], ["show", "tuned_double_const"]):
            code, out, _ = run(capsys, *command)
            assert code == 0
            assert "tuned_double_const" in out
    tune(100, (8, 32, 64))
    assert "block=64" in run(capsys, "ls")[1]


def test_show_orders_by_time_and_finds_by_op_or_hash(capsys: pytest.CaptureFixture[str]) -> None:
    tune()
    code, out, _ = run(capsys, "show", "tuned_double_const")
    assert code == 0
    assert [n for n in (32, 16, 8) if f"block={n}" in out] == [32, 16, 8]
    assert out.index("block=32") < out.index("block=16") < out.index("block=8 ")
    (summary,) = json.loads(run(capsys, "show", "tuned_double_const", "--json")[1])
    assert {row["config"]["block"]: row["latency"] for row in summary["rows"]} == {
        8: 3.0, 16: 2.0, 32: 1.0,
    }  # fmt: skip
    (same,) = json.loads(run(capsys, "show", summary["hash"][:10], "--json")[1])
    assert same == summary
    assert run(capsys, "show", "nothing")[0] == 1


def test_a_picture_without_matplotlib_names_the_extra(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run(capsys, "show", "tuned_double_const", "--picture", tmp_path / "p.png")
    assert code != 0
    assert "tileops-torch[viz]" in err
    assert not (tmp_path / "p.png").exists()


def test_export_and_import_move_tunings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tune()
    run(capsys, "export", tmp_path / "all.tgz")
    with tileops.option.cache_dir(tmp_path / "other"):
        assert run(capsys, "import", tmp_path / "all.tgz")[0] == 0
        assert len(json.loads(run(capsys, "ls", "--json")[1])) == 1
        assert tune().calls == []
        run(capsys, "import", tmp_path / "all.tgz")  # adds nothing twice
        (shown,) = json.loads(run(capsys, "ls", "--json")[1])
        assert shown["configs"] == 3
        assert tune(blocks=(8, 32, 64)).calls == [64]


def _tuning_folder() -> Path:
    directory = resolve(settings.current()).private
    assert directory is not None
    (folder,) = directory.scripts.glob("*/*/tuning/*/")
    return folder


@pytest.mark.parametrize("name", ["best_config.json", "latency.json", "configs.jsonl", "key.json"])
@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_export_leaves_out_what_is_no_file_and_the_next_tuning_heals_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, kind: str
) -> None:
    tune()
    path = _tuning_folder() / name
    path.unlink()
    match kind:
        case "folder":
            (path / "below").mkdir(parents=True)
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(path)
    code, out, _ = run(capsys, "export", tmp_path / "all.tgz")
    assert code == 1
    assert f"left out: {path} is not a plain file" in out or (kind == "link" and str(path) in out)
    assert "0 tunings in" in out
    with tarfile.open(tmp_path / "all.tgz") as archive:
        assert archive.getnames() == []
    assert kind != "folder" or [p.name for p in path.iterdir()] == ["below"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*tuned_.*")
        tune(blocks=(8, 32, 64))
    assert path.is_file()
    assert run(capsys, "export", tmp_path / "all.tgz")[0] == 0
    assert not (tmp_path / "elsewhere").exists()


def test_an_export_that_fails_leaves_what_was_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune()
    assert run(capsys, "export", tmp_path / "all.tgz")[0] == 0
    before = (tmp_path / "all.tgz").read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    code, _, err = run(capsys, "export", tmp_path / "all.tgz")
    assert code == 2
    assert "No space left" in err
    assert (tmp_path / "all.tgz").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == ["all.tgz"]


_TUNING = f"op/{'ab' * 32}/tuning/{'cd' * 32}"
HOSTILE = {
    "up": ["../../outside"],
    "up inside": [f"op/{'ab' * 32}/tuning/../../../../x/best_config.json"],
    "dots": [f"../{'ab' * 32}/tuning/{'cd' * 32}/best_config.json"],
    "absolute": [f"/{_TUNING}/best_config.json"],
    "another file": [f"{_TUNING}/evil.json"],
    "case": [f"{_TUNING}/Best_config.json"],
    "twice": [f"{_TUNING}/best_config.json"] * 2,
    "unicode": [f"\u00f6p/{'ab' * 32}/tuning/{'cd' * 32}/best_config.json"],
    "a zero byte": [f"o\0p/{'ab' * 32}/tuning/{'cd' * 32}/best_config.json"],
    "no hash": [f"op/short/tuning/{'cd' * 32}/best_config.json"],
}


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_of_tunings_adds_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, bad: list[str]
) -> None:
    with tarfile.open(tmp_path / "bad.tgz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in (f"{_TUNING}/key.json", *bad):
            member = tarfile.TarInfo(name)
            member.size = 2
            if "\0" in name:
                member.name, member.pax_headers = "x", {"path": name}
            archive.addfile(member, io.BytesIO(b"{}"))
    code, _, err = run(capsys, "import", tmp_path / "bad.tgz")
    assert code == 2
    assert "not part of a tuning" in err or "twice" in err
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == ["bad.tgz"]
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_import_refuses_other_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tune()
    run(capsys, "export", tmp_path / "all.tgz")
    whole = (tmp_path / "all.tgz").read_bytes()
    (tmp_path / "text.tgz").write_text("not an archive")
    (tmp_path / "torn.tgz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "damaged.tgz").write_bytes(whole[:60] + bytes(30) + whole[90:])
    (tmp_path / "folder.tgz").mkdir()
    for name in ("text.tgz", "torn.tgz", "damaged.tgz", "folder.tgz", "missing.tgz"):
        code, _, err = run(capsys, "import", tmp_path / name)
        assert code == 2, name
        assert name in err


def test_import_takes_a_winner_where_there_is_none_that_can_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tune()
    run(capsys, "export", tmp_path / "all.tgz")
    folder = _tuning_folder()
    best = (folder / "best_config.json").read_text()
    (folder / "best_config.json").write_text("{")
    (folder.parent / "dispatch_table.txt").unlink()
    assert run(capsys, "import", tmp_path / "all.tgz")[0] == 0
    assert (folder / "best_config.json").read_text() == best
    assert "block=32" in (folder.parent / "dispatch_table.txt").read_text()
    (folder / "best_config.json").write_text(best.replace("1.0", "1.5"))
    assert run(capsys, "import", tmp_path / "all.tgz")[0] == 0
    assert (folder / "best_config.json").read_text() == best.replace("1.0", "1.5")


def test_what_cannot_be_done_is_said_without_a_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tune()
    code, out, err = run(capsys, "show", "nothing", "--json")
    assert (code, json.loads(out)) == (1, [])
    assert "no tuning of 'nothing'" in err
    with pytest.raises(SystemExit):
        run(capsys, "show", "")
    code, _, err = run(capsys, "run", "--module", "no_such_module")
    assert code == 2
    assert "there is no module 'no_such_module'" in err


def test_run_tunes_and_says_so(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with caplog.at_level("INFO"):
        code, _, err = run(capsys, "run", script, 300)
    assert code == 0
    said = err + caplog.text
    assert "tune tuned_double_const: 3 of 3 configs" in said
    (found,) = json.loads(run(capsys, "ls", "--json")[1])
    assert "N=300" in found["sizes"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_moves_on_terminals_only(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    written: list[str] = []
    drawn = threading.Event()

    def write(text: str) -> int:
        written.append(text)
        if len(written) >= 3:
            drawn.set()
        return len(text)

    stream = types.SimpleNamespace(isatty=lambda: is_terminal, write=write, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", stream)
    with Bar("op", 3) as bar:
        bar.tell("a", 2.0, "block=8")
        bar.tell("b", None, "block=16")
        # No config says anything now, and the line goes on.
        assert drawn.wait(20) is is_terminal or not is_terminal
    assert bool(written) is is_terminal
    if is_terminal:
        lines = [text.strip("\r").removesuffix("\x1b[K") for text in written[:-1]]
        assert len({line[0] for line in lines}) > 1  # the wheel turns
        assert all("tune op: 2 of 3 configs" in line for line in lines)
        assert all("left" in line and "best 2 ms: block=8" in line for line in lines)
        assert written[-1] == "\r\x1b[K"


def test_the_line_says_what_is_left() -> None:
    bar = Bar("op", 4)
    assert "0 of 4 configs, 3 s" in bar.text(0, 3.0)
    assert "left" not in bar.text(0, 3.0)
    bar.tell("a", 2.0, "block=8")
    bar.tell("a", 1.5, "block=8")  # a config counts once
    assert "1 of 4 configs, 30 s, 1 min 30 s left; best 1.5 ms: block=8" in bar.text(0, 30.0)
    for name in "abcd":
        bar.tell(name, 1.0, "block=8")
    assert "4 of 4 configs, 30 s, timing the best of them" in bar.text(0, 30.0)


# -- rm, and run --again ---------------------------------------------------------------------------
def test_rm_removes_by_op_by_hash_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    for size in (100, 200, 300):
        tune(size)
    hashes = [item["hash"] for item in json.loads(run(capsys, "ls", "--json")[1])]
    code, out, _ = run(capsys, "rm", "--dry-run", "tuned_double_const")
    assert code == 0
    assert "3 tunings would be removed" in out
    code, out, _ = run(capsys, "rm", hashes[0][:12])
    assert code == 0
    assert hashes[0][:12] in out
    assert "1 tunings removed" in out
    left = [item["hash"] for item in json.loads(run(capsys, "ls", "--json")[1])]
    assert left == hashes[1:]
    code, out, err = run(capsys, "rm", "nothing_of_that", hashes[1])
    assert code == 1
    assert "no tuning of 'nothing_of_that'" in err
    assert "1 tunings removed" in out
    code, out, _ = run(capsys, "rm", "--all")
    assert code == 0
    assert "tuned_double_const" in out
    assert json.loads(run(capsys, "ls", "--json")[1]) == []
    assert tune(300).calls  # tuned anew


def test_rm_asks_for_what(capsys: pytest.CaptureFixture[str]) -> None:
    tune(100)
    code, _, err = run(capsys, "rm")
    assert code == 2
    assert "name ops or hashes, or give --all" in err
    assert run(capsys, "rm", "tuned_double_const", "--all")[0] == 2
    assert len(json.loads(run(capsys, "ls", "--json")[1])) == 1


def test_rm_leaves_the_table_of_what_remains(
    capsys: pytest.CaptureFixture[str], tuning_cache: Path
) -> None:
    tune(100)
    tune(200)
    found = json.loads(run(capsys, "ls", "--json")[1])
    first = next(item["hash"] for item in found if "N=100" in item["sizes"])
    run(capsys, "rm", first)
    (table,) = tuning_cache.glob("scripts/*/*/tuning/dispatch_table.txt")
    assert "N=200" in table.read_text()
    assert "N=100" not in table.read_text()


def test_run_again_measures_although_an_answer_is_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + "print('measured', sorted(timer.calls))\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def calls(*flags: str) -> str:
        command = [sys.executable, "-m", "tileops", "tune", "run", *flags, str(script), "100"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip().splitlines()[-1]

    assert calls() == "measured [8, 16, 32]"
    assert calls("--again") == "measured [8, 16, 32]"
    assert calls() == "measured []"  # and what was measured anew is stored

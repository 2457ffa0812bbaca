"""Odd directories, odd moments and odd commands: a clear answer each, and nobody else's file harmed."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.cache import samples
from tileops import counters, log, option
from tileops.cache import Key, Store, catalog, scripts, staging
from tileops.cli.main import main


@tileops.jit(out_idx=[-1])
def halved(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 0.5

    return main


def _fill(folder: Path, count: int = 3) -> list[str]:
    with option.cache_dir(folder):
        entries = [
            Store().fetch(samples.key(n), lambda n=n: samples.built(n)) for n in range(count)
        ]
    return [entry.hash for entry in entries]


# -- commands --------------------------------------------------------------------------------------
def _directory(kind: str, folder: Path) -> Path:
    path = folder / "cache"
    match kind:
        case "missing":
            pass
        case "empty":
            path.mkdir()
        case "a file":
            path.write_text("x")
        case "foreign":
            for name in ("programs/readme", "programs/..x/y", "scripts/build.sh", "scripts/a/b/c"):
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_text("mine")
        case "odd name":
            path = folder / "a b\nc\u00e9"
            _fill(path)
        case "damaged":
            first, second, third = (path / "programs" / name for name in _fill(path))
            (first / "manifest.json").write_text("{")
            (second / "program.txt").unlink()
            shutil.rmtree(third)
            third.write_text("x")
        case "full":
            _fill(path)
    return path


COMMANDS = (
    "ls", "ls --json", "ls nothing", "show HASH", "show HASH --json", "show zz", "show", "why HASH",
    "why zz", "verify", "verify --json", "prune --limit banana", "prune --limit -1",
    "prune --days -3", "prune --days nan", "prune --days soon", "export OUT", "export OUT",
    "export OUT HASH", "export /nonexistent/x", "import FILE", "import /nonexistent", "import FOLDER",
    "nonsense", "prune --limit 1KiB", "verify --repair", "prune", "clear", "clear --json",
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "a file", "foreign", "odd name", "damaged", "full"]
)
def test_every_command_answers_in_words_and_with_a_status(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _directory(kind, tmp_path)
    (tmp_path / "a file.txt").write_text("not an archive")
    places = {
        "HASH": samples.key(0).hash()[:12], "OUT": str(tmp_path / "out.tar"),
        "FILE": str(tmp_path / "a file.txt"), "FOLDER": str(tmp_path),
    }  # fmt: skip
    with option.cache_dir(path):
        for command in COMMANDS:
            words = [places.get(word, word) for word in command.split()]
            try:
                status = main(["cache", *words])
            except SystemExit as exit:  # argparse refuses an argument
                status = exit.code  # type: ignore[assignment]
            out, err = capsys.readouterr()
            assert status in (0, 1, 2), command
            assert (status == 2) == bool(err), (command, err)
            assert (out + err).strip(), command
    if kind == "foreign":
        left = sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())
        mine = [name for name in left if not name.startswith(".state")]
        assert mine == ["programs/..x/y", "programs/readme", "scripts/a/b/c", "scripts/build.sh"]


@pytest.mark.parametrize("days", ["-3", "nan", "inf", "soon"])
def test_days_that_are_no_age_remove_nothing(
    root: Path, days: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(root)
    with pytest.raises(SystemExit):
        main(["cache", "prune", "--days", days])
    assert "number of days" in capsys.readouterr().err
    assert len(list((root / "programs").iterdir())) == 3


def test_an_export_leaves_damaged_entries_out_and_says_so(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hashes = _fill(root)
    (root / "programs" / hashes[0] / "kernel.py").unlink()
    out = tmp_path / "out.tar"
    assert main(["cache", "export", str(out), hashes[0][:12]]) == 2
    assert not out.exists()
    capsys.readouterr()
    assert main(["cache", "export", str(out)]) == 1
    said = capsys.readouterr().out
    assert hashes[0] in said
    assert "2 entries" in said
    with option.cache_dir(tmp_path / "other"):
        assert main(["cache", "import", str(out)]) == 0
        assert len(catalog.verify()) == 2


def test_verify_says_that_a_directory_was_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(root)
    root.chmod(0o777)
    assert main(["cache", "verify"]) == 1
    assert "refused" in capsys.readouterr().out


ODD_MANIFESTS: list[dict[str, object]] = [
    {},
    {"name": "", "record": []},
    {"record": {"launches": 3}},
    {"record": {"launches": [1, None, {"entry": [], "threads": {}}]}, "resources": [{}]},
    {"record": {"launches": [{}]}, "resources": 7},
    {"record": {"launches": [{}]}, "resources": [None, None]},
    {"name": "\x1b[2J\nf", "record": None, "resources": None},
]


def test_content_that_no_compiler_made_is_listed_and_shown(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole entries by their digests, with anything in them."""
    deep = "[" * 50_000
    for number, (manifest, facts) in enumerate(
        itertools.product(ODD_MANIFESTS, ("{}", "no JSON", "[1, 2]", deep, "\x1b[2J"))
    ):
        key = Key({**samples.key(number).fields, "specialization": facts, "toolchain": facts[:9]})
        Store().put(key, {"kernel.py": b"\xff\x1b[2J", "launch0.cubin": b""}, manifest)
    hashes = [path.name for path in sorted((root / "programs").iterdir())]
    assert len(hashes) == 35
    for words in (["ls"], ["ls", "--json"], ["verify"], ["verify", "--json"], ["env"]):
        assert main([*(["cache"] if words != ["env"] else []), *words]) == 0
    for entry_hash in hashes[::4]:
        for command in ("show", "why"):
            assert main(["cache", command, entry_hash]) == 0
            assert main(["cache", command, entry_hash, "--json"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "\x1b" not in said.out, "what a file holds must not steer the terminal"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_that_a_terminal_cannot_show(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / os.fsdecode(b"\xff \xc3\xbc")
    hashes = _fill(path, 1)
    shown = io.BytesIO()
    for words in (["ls"], ["ls", "--json"], ["show", hashes[0]], ["verify"], ["show", "ffff"]):
        stream = io.TextIOWrapper(shown, encoding=encoding, write_through=True)
        monkeypatch.setattr(sys, "stdout", stream)
        with option.cache_dir(path):
            assert main(["cache", *words]) == (2 if words[-1] == "ffff" else 0), words
        stream.detach()
    assert rb"\udcff" in shown.getvalue()


def test_a_reader_that_has_seen_enough_is_no_error(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(root)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["cache", "ls"]) == 0
    assert capsys.readouterr().err == ""


# -- directories -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["a b", "new\nline", "\u00fcml\u00e4ut \u6f22", "x" * 200, "-rf"])
def test_names_of_directories(tmp_path: Path, name: str) -> None:
    cache = tmp_path / name
    assert samples.ask(cache)["builds"] == 1
    again = samples.ask(cache)
    assert (again["builds"], again["warnings"]) == (0, [])


def test_a_relative_directory_stays_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    x = torch.ones(501)
    with option.cache_dir("cache"):
        kernel = tileops.compile(halved.get_tir(501), target="cpu")
        assert kernel.cache_path is not None
        assert kernel.cache_path.is_absolute()
        monkeypatch.chdir(there)
        assert torch.equal(kernel(x), x * 0.5)
    assert (here / "cache" / "programs").is_dir()
    assert list(there.iterdir()) == []


def test_a_link_to_the_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert samples.ask(tmp_path / "link")["builds"] == 1
    assert samples.ask(tmp_path / "real")["builds"] == 0
    assert samples.ask(tmp_path / "link")["warnings"] == []


def test_layers_twice_missing_and_empty(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    hashes = _fill(layer, 1)
    separator = os.pathsep
    text = separator.join(["", str(layer), str(layer), "", str(tmp_path / "missing"), ""])
    found = samples.ask(tmp_path / "private", TILEOPS_CACHE_PATH=text)
    assert (found["builds"], found["warnings"]) == (0, [])
    assert found["path"] == str(layer / "programs" / hashes[0])
    assert samples.ask(tmp_path / "private", 1, TILEOPS_CACHE_PATH=text)["builds"] == 1
    with option.cache_dir(tmp_path / "private"), option.cache_path(str(layer), str(layer)):
        assert len(catalog.items()) == 2


# -- moments ---------------------------------------------------------------------------------------
def test_times_in_the_future_and_the_far_past(root: Path) -> None:
    hashes = _fill(root)
    for number, when in enumerate((time.time() + 1e8, 0.0, -1e6)):
        os.utime(root / "programs" / hashes[number], (when, when))
    assert main(["cache", "ls"]) == 0
    assert all(samples.ask(root, n)["builds"] == 0 for n in range(3))
    directory = catalog.here().private
    assert directory is not None
    assert staging.sweep(directory) == 0


def test_the_entry_vanishes_while_its_process_runs(root: Path) -> None:
    x = torch.ones(502)
    kernel = tileops.compile(halved.get_tir(502), target="cpu")
    assert torch.equal(kernel(x), x * 0.5)
    shutil.rmtree(root)
    assert torch.equal(kernel(x), x * 0.5)
    assert torch.equal(halved(503)(torch.ones(503)), torch.full((503,), 0.5))


def test_very_long_names(root: Path) -> None:
    log._warned.clear()
    entry = Store().fetch(samples.key(), samples.built)
    directory = catalog.here().private
    assert directory is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("n" * 255, "n" * 256, "n" * 5000, "n" * 5000 + "m", "\u00e9" * 300):
            scripts.record(scripts.Script(name, "0" * 64), entry, {"target": "cpu"})
            assert len(scripts.dispatch_rows(scripts.folder_of(directory, name) / ("0" * 64))) == 1
    assert len(list((root / "scripts").iterdir())) == 5


INTERRUPTED = """
import sys, time
from tests.cache import samples
from tileops import cache
def build():
    print("building", flush=True)
    time.sleep(60)
cache.store().fetch(samples.key(0), build)
"""


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_during_a_compile_leaves_no_lock_and_no_entry(root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], env=samples.environment(root),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    start = time.monotonic()
    answer = samples.ask(root)
    assert (answer["builds"], answer["right"], answer["warnings"]) == (1, True, [])
    assert time.monotonic() - start < 30
    assert list((root / ".state" / "staging").iterdir()) == []


def test_a_compile_event_and_counters_survive_it_all(root: Path) -> None:
    counters.stats(reset=True)
    tileops.compile(halved.get_tir(504), target="cpu")
    assert counters.stats()["compiles"] == 1

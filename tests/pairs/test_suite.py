"""The pairs suite: what becomes of programs that fail, crash and hang, the table and the picture."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks import pair_chart, suite_pairs
from benchmarks.harness import Result, Timing, earlier, report
from benchmarks.suite_pairs import geometric_mean, results, selected, table

# A child that reports what its name, a file beside it, says; see ``pair_child``.
CHILD = """
import argparse, json, os, signal, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--report")
parser.add_argument("--lock")
parser.add_argument("--peers")
parser.add_argument("--without", action="append", default=[])
args = parser.parse_args()
out = open(args.report, "a")
def report(**fields):
    print(json.dumps(fields), file=out, flush=True)
kind, sides = BEHAVIOUR, [s for s in ("tileops", "TileLang") if s not in args.without]
for side in sides:
    report(stage="compile", side=side)
    if side == "TileLang":
        if kind == "fails":
            report(failed=side, error="LayoutError: no")
            continue
        if kind == "hangs":
            time.sleep(600)
        if kind == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
    report(compiled=side, seconds=2.0, processor_seconds=3.0, version="1")
times = {"tileops": 100.0, "TileLang": 150.0, "cuBLAS": 90.0}
if kind == "fails":
    del times["TileLang"]
for side in sides:
    report(side=side, first_call_s=0.5) if side in times else None
one = lambda t: {"median_us": t, "low_us": t, "high_us": t, "samples": 1}
report(timings={n: one(t) for n, t in times.items() if n not in args.without}, bytes=1e6)
report(done=True)
"""
NAME = "matmul fp16 4096"


def run(tmp_path: Path, behaviour: str) -> Result:
    script = tmp_path / "child.py"
    script.write_text(CHILD.replace("BEHAVIOUR", repr(behaviour)))
    (found,) = results(None, [NAME], command=(sys.executable, str(script)))
    return found


def test_a_real_child_checks_and_times_on_the_cpu() -> None:
    (found,) = results(None, ["add fp32 1048576"], command=(*suite_pairs.CHILD, "--small"))
    assert found.extra["errors"] == {}
    assert set(found.timings) == {"tileops", "torch"}
    assert found.ratio > 0
    assert found.extra["bytes"] == 3 * 4 * 1000
    assert found.extra["first_call"]["tileops"]["processor_seconds"] > 0


def test_a_folder_without_the_peer_costs_only_the_peers_figure(tmp_path: Path) -> None:
    command = (*suite_pairs.CHILD, "--small")
    (found,) = results(str(tmp_path), ["add fp32 1048576"], command=command)
    assert found.extra["errors"]["TileLang"].startswith("ModuleNotFoundError")
    assert found.baseline == "torch"


def test_a_pair_that_both_compile_has_both_ratios(tmp_path: Path) -> None:
    found = run(tmp_path, "works")
    assert (found.baseline, found.ratio) == ("TileLang", 1.5)
    assert found.extra["errors"] == {}
    assert found.extra["first_call"]["tileops"] == {"seconds": 2.5, "processor_seconds": 3.0}
    assert found.extra["rates"]["tileops"]["tflops"] == pytest.approx(2 * 4096**3 / 100e-6 / 1e12)
    text = table([found])
    assert "1.500" in text
    assert "0.900" in text


def test_what_one_side_cannot_compile_is_a_row_with_its_reason(tmp_path: Path) -> None:
    found = run(tmp_path, "fails")
    assert (found.baseline, found.ratio) == ("cuBLAS", 0.9)
    assert "TileLang: LayoutError: no" in table([found])


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("crashes", "SIGSEGV in step compile"), ("hangs", "killed in step compile")],
)
def test_a_crash_or_hang_of_one_side_costs_only_its_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, reason: str
) -> None:
    monkeypatch.setattr(suite_pairs, "STEP_SECONDS", 2)
    found = run(tmp_path, behaviour)
    assert found.extra["errors"]["TileLang"].startswith(reason)
    assert (found.baseline, found.ratio) == ("cuBLAS", 0.9)


def test_a_process_that_cannot_start_is_a_row(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text("raise SystemExit('no such module')")
    (found,) = results(None, [NAME], command=(sys.executable, str(script)))
    assert found.ratio is None
    assert "exit status 1 in step start: no such module" in found.extra["errors"]["process"]
    assert NAME in report([found], tmp_path / "results.json")


def test_nothing_is_begun_after_the_time(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert list(results(None, [NAME], seconds=-1.0)) == []
    assert f"not begun within -1 s: {NAME}" in capsys.readouterr().out


def test_pairs_that_are_done_are_left_out(tmp_path: Path) -> None:
    assert list(results(None, [NAME], without=[NAME])) == []


def test_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [
        _row("a", 1.0, 0.5, None),
        Result("b", "", "tileops", {}, None, "", extra={"errors": {}}),
    ]
    report(rows, tmp_path / "results.json")
    assert earlier(tmp_path / "results.json") == rows


def test_only_takes_files_and_names() -> None:
    assert {file for file, _ in selected(["matmul"])} == {"matmul"}
    assert [pair.name for _, pair in selected([NAME])] == [NAME]
    with pytest.raises(ValueError, match="no pair is called nothing"):
        selected(["nothing", "matmul"])


def _row(name: str, mine: float, theirs: float, peer: float | None) -> Result:
    times = {"tileops": mine, "TileLang": theirs} | ({} if peer is None else {"cuDNN": peer})
    timings = {n: Timing(t, t, t, 1) for n, t in times.items()}
    extra = {"file": "attention", "peer": "cuDNN", "errors": {}, "rates": {}, "first_call": {}}
    return Result(name, "TileLang", "tileops", timings, theirs / mine, "", extra=extra)


def test_the_means_are_geometric() -> None:
    assert geometric_mean([0.5, 8.0]) == pytest.approx(2.0)
    text = table([_row("a", 1.0, 0.5, None), _row("b", 1.0, 8.0, 3.0)])
    assert "speed over TileLang: geometric mean 2.000 of 2, 0.500 to 8.000" in text
    assert "speed over torch: geometric mean 3.000 of 1" in text


def test_the_picture_has_a_bar_for_each_ratio_and_names_the_baselines() -> None:
    rows = [_row("a & b", 1.0, 0.5, None), _row("c", 1.0, 1.2, 0.9)]
    root = ElementTree.fromstring(pair_chart.chart(rows, "a card"))
    shapes = root.findall("{*}rect")
    bars = [r for r in shapes if r.find("{*}title") is not None]
    assert len(bars) == 3
    texts = [t.text for t in root.findall("{*}text")]
    assert {"a & b", "0.90 cuDNN", "1.20", "0.50"} <= set(texts)
    # A log scale: twice as slow is as far from 1 as twice as fast, and lies on its other side.
    by_title = {r.find("{*}title").text: r for r in bars}
    half = by_title["0.500 of TileLang"]
    faster = by_title["1.200 of TileLang"]
    assert float(half.get("x")) + float(half.get("width")) == pytest.approx(
        float(faster.get("x")), abs=0.2
    )


def test_a_picture_of_nothing_is_still_one() -> None:
    ElementTree.fromstring(pair_chart.chart([], "a card"))

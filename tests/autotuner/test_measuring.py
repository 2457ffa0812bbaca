"""Measurement in a child: what a bad config does is recorded, and nothing else is disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.autotuner.kernels import loadable
from tests.kit.processes import ends_within
from tileops.autotuner.benches import (
    Bench,
    ChildBench,
    LocalBench,
    NoSecondContextError,
)
from tileops.autotuner.database import Measured
from tileops.autotuner.measuring import Measurement, Progress
from tileops.autotuner.param import TuningOptions
from tileops.autotuner.rounds import Rules
from tileops.autotuner.workshop import Workshop

CPU = torch.device("cpu")
# Quick: the outcome of these tests does not hang on precision.
RULES = Rules(rep=10)


def double(a: torch.Tensor) -> torch.Tensor:
    return 2 * a


@pytest.fixture(scope="module")
def inputs() -> list[object]:
    return [torch.randn(5000)]


@pytest.fixture(scope="module")
def bench(inputs: list[object]) -> Iterator[ChildBench]:
    made = ChildBench(CPU, inputs)
    yield made
    made.close()


def unheard(name: str, measured: Measured) -> None:
    pass


def measurement(bench: Bench, progress: Progress = unheard, **options: Any) -> Measurement:
    exact = {"ref_prog": double, "rtol": 0.0, "atol": 0.0, "max_mismatched_ratio": 0.0}
    asked = TuningOptions(**{"warmup": 2, "timeout": 4.0, **exact, **options})
    return Measurement(bench, asked, progress)


def measure(bench: Bench, loadables: dict[str, Any], **options: Any) -> dict[str, Measured]:
    made = measurement(bench, **options)
    for name, found in loadables.items():
        made.add(name, found)
    made.finish(RULES)
    return made.found


def is_estimate(measured: Measured) -> bool:
    return measured.samples == 3  # the runs of the first look


def test_every_kind_of_failure_is_recorded_and_the_good_one_wins(
    bench: ChildBench, libraries: Path
) -> None:
    names = ["segfault", "slow", "wrong", "good", "loop", "abort"]
    start = time.monotonic()
    found = measure(bench, {n: loadable(n, libraries) for n in names})
    assert time.monotonic() - start < 60
    status = {name: found[name].status for name in names}
    assert status == {
        "segfault": "illegal_access", "slow": "ok", "wrong": "wrong_result", "good": "ok",
        "loop": "timeout", "abort": "error",
    }  # fmt: skip
    assert "SIGSEGV" in found["segfault"].reason
    assert "1 of 5000 elements" in found["wrong"].reason
    assert "4 s" in found["loop"].reason
    assert "killed by" in found["abort"].reason
    good, slow = found["good"].latency, found["slow"].latency
    assert good is not None
    assert slow is not None
    assert good < slow
    assert found["good"].low <= good <= found["good"].high  # type: ignore[operator]
    assert all(found[n].latency is None for n in names if n not in ("good", "slow"))


def test_the_order_is_by_speed_and_progress_hears_of_all(
    bench: ChildBench, libraries: Path
) -> None:
    heard: list[tuple[str, bool]] = []
    session = measurement(bench, lambda name, m: heard.append((name, is_estimate(m))))
    for name in ("slower", "good", "slow"):
        session.add(name, loadable(name, libraries))
        assert is_estimate(session.found[name])
    assert session.finish(RULES) == ["good", "slow", "slower"]
    assert heard[:3] == [("slower", True), ("good", True), ("slow", True)]
    assert {name for name, is_first in heard[3:] if not is_first} == {
        "good",
        "slow",
        "slower",
    }


def test_what_comes_after_the_timing_is_timed_alone(bench: ChildBench, libraries: Path) -> None:
    session = measurement(bench)
    session.add("slow", loadable("slow", libraries))
    assert session.finish(RULES) == ["slow"]
    before = session.found["slow"]
    session.add("good", loadable("good", libraries))
    assert session.finish(RULES) == ["good"]
    assert session.found["slow"] is before
    assert not is_estimate(session.found["good"])


def session_status(bench: ChildBench, name: str, libraries: Path) -> str:
    session = measurement(bench)
    session.add(name, loadable(name, libraries))
    return session.found[name].status


def test_early_stop_leaves_the_estimate_of_what_is_slow(bench: ChildBench, libraries: Path) -> None:
    configs = {n: loadable(n, libraries) for n in ("slower", "good")}
    found = measure(bench, configs, timeout=20.0, early_stop_factor=2.0)
    assert found["slower"].status == "ok"
    assert is_estimate(found["slower"])
    assert not is_estimate(found["good"])
    # What is not timed is not kept loaded, and can be loaded again.
    assert "good" in bench._loaded
    assert "slower" not in bench._loaded
    assert session_status(bench, "slower", libraries) == "ok"


def test_programs_that_write_into_arguments_get_copies(libraries: Path) -> None:
    a, out = torch.randn(3000), torch.full((3000,), 7.0)
    bench = ChildBench(CPU, [a, out])
    try:

        def reference(x: torch.Tensor, y: torch.Tensor) -> None:
            assert bool((y == 7.0).all())
            y.copy_(2 * x)

        configs = {"good": loadable("good", libraries, in_place=True)}
        found = measure(bench, configs, ref_prog=reference)
        assert found["good"].status == "ok", found["good"].reason
    finally:
        bench.close()
    assert bool((out == 7.0).all())


def test_the_local_bench_gives_the_same_results(inputs: list[object], libraries: Path) -> None:
    bench = LocalBench(CPU, inputs)
    found = measure(bench, {n: loadable(n, libraries) for n in ("wrong", "good")})
    bench.close()
    assert {n: m.status for n, m in found.items()} == {"wrong": "wrong_result", "good": "ok"}


def test_where_no_child_can_be_it_measures_here_and_says_so_once(
    inputs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: ChildBench) -> None:
        raise NoSecondContextError("all CUDA-capable devices are busy or unavailable")

    from tileops import log

    log._warned.clear()
    monkeypatch.setattr(ChildBench, "open", refuse)
    with pytest.warns(log.TileopsWarning, match="in this process.*busy or un"):
        assert is_local(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_local(inputs)


def is_local(inputs: list[object]) -> bool:
    with Workshop({}, inputs, TuningOptions(), [CPU]) as shop:
        ((device, bench),) = shop.benches().items()
        return device == "cpu" and isinstance(bench, LocalBench)


def test_a_child_that_cannot_open_its_device_says_why() -> None:
    bench = ChildBench(torch.device("cuda:0"), [torch.zeros(3)])
    try:
        if torch.cuda.is_available():
            bench.open()
        else:
            with pytest.raises(NoSecondContextError, match=r"(?i)cuda|nvidia"):
                bench.open()
    finally:
        bench.close()


def test_a_loop_dies_with_its_parent(libraries: Path, tmp_path: Path) -> None:
    """Nobody is left to kill the child when its parent is killed."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import json, sys, torch\n"
        "from tileops.autotuner.benches import ChildBench\n"
        "bench = ChildBench(torch.device('cpu'), [torch.zeros(5000)])\n"
        "bench.open()\n"
        "print(bench._children[0].pid, flush=True)\n"
        "bench.run('loop', json.loads(sys.argv[1]), 600.0)\n"
    )
    import json

    root = str(Path(__file__).resolve().parents[2])
    parent = subprocess.Popen(
        [sys.executable, str(script), json.dumps(loadable("loop", libraries))],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": root}, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(1.0)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert ends_within(child, 10)


def test_each_timed_run_starts_from_the_callers_values(libraries: Path) -> None:
    """Runs that change their input are timed on what they will get, not on what runs left."""
    a, out = torch.ones(3000), torch.full((3000,), 7.0)
    bench = LocalBench(CPU, [a, out])
    program = loadable("good", libraries, in_place=True)
    assert len(bench.times("good", program, 3, 9.0)) == 3
    (copies,) = bench._copies.values()
    assert copies[0].data_ptr() == a.data_ptr()
    assert bool((copies[1] == 2.0).all())
    assert bool((out == 7.0).all())
    seen: list[float] = []

    class Watching:
        def times(self, fn: object, count: int, before: object = None) -> list[float]:
            for _ in range(count):
                before()  # type: ignore[operator]
                seen.append(float(copies[1][0]))
                fn()  # type: ignore[operator]
            return [1.0] * count

    bench._timer = Watching()  # type: ignore[assignment]
    bench.times("good", program, 2, 9.0)
    assert seen == [7.0, 7.0]

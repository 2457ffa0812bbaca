"""Owns the warm start: whole new processes that find what they need in a cache, beside the peers'."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks import warm_programs as programs
from benchmarks.harness import ROOT, Result, Timing, cost_result, in_turn

_ROUNDS = 7
# What a warm start does of its own work: two traces (one makes the op's schema), the key, reading
# and verifying the entry, loading its code.
STAGES = ("trace", "key", "lookup", "load")


def results(peers: str | None) -> Iterator[Result]:
    """The quickstart matmul from a full cache, then a hundred programs."""
    cuda = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        texts = {"tileops": programs.TILEOPS}
        if cuda:
            texts["triton"] = programs.TRITON
            if peers:
                texts["tilelang"] = programs.TILELANG
        yield from _matmul_results(_Processes(Path(folder), peers), texts, 25 if cuda else 15)
        if not cuda and importlib.util.find_spec("triton") is not None:
            texts = {"tileops": programs.TILEOPS_ARTIFACT, "triton": programs.TRITON_ARTIFACT}
            found = _Processes(Path(folder) / "artifact", peers).samples(texts)
            yield from _against_peers("warm start without loading, for sm_90", found)
        hundred = {"tileops": programs.HUNDRED}
        found = _Processes(Path(folder) / "hundred", peers).samples(hundred, rounds=3)
        timings = {"tileops": Timing.of([s["all"] * 1e6 for s in found["tileops"]])}
        yield _absolute(
            "warm start of 100 programs", timings, timings["tileops"].median_us * 1e-6, "s", 1.0
        )


class _Processes:
    """Runs texts as files of one folder, whose caches the first run of each fills."""

    def __init__(self, folder: Path, peers: str | None) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._environment = dict(
            os.environ,
            TILEOPS_CACHE_DIR=str(folder / "tileops"),
            TRITON_CACHE_DIR=str(folder / "triton"),
            TILELANG_CACHE_DIR=str(folder / "tilelang"),
            PYTHONPYCACHEPREFIX=str(folder / "byte_code"),
            PYTHONPATH=os.pathsep.join(p for p in (str(ROOT), peers) if p),
        )
        # Every system is measured as installed: with byte code.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def samples(
        self, texts: dict[str, str], rounds: int = _ROUNDS
    ) -> dict[str, list[dict[str, float]]]:
        """What each text printed, once a round, in turn, after one run that fills its cache."""
        for name, text in texts.items():
            (self._folder / f"{name}_run.py").write_text(text, encoding="utf-8")
            self._run(name, "cold")
            self._run(name)  # the first process after the compile still writes byte code
        found: dict[str, list[dict[str, float]]] = {name: [] for name in texts}
        for number in range(rounds):
            for name in in_turn(list(texts), number):
                found[name].append(self._run(name))
        return found

    def _run(self, name: str, *arguments: str) -> dict[str, float]:
        command = [sys.executable, f"{name}_run.py", *arguments]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"warm start of {name} failed:\n{done.stderr[-2000:]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))


def _matmul_results(
    processes: _Processes, texts: dict[str, str], limit_ms: float
) -> Iterator[Result]:
    found = processes.samples(texts)
    stages = [sum(sample.get(s, 0.0) for s in STAGES) for sample in found["tileops"]]
    timings = {"tileops": Timing.of([s * 1e6 for s in stages])}
    parts = {
        name: Timing.of([s[name] * 1e9 for s in found["tileops"]]).median_us
        for name in (*STAGES, "import", "define", "first call")
    }
    yield _absolute(
        "warm start of the matmul: trace, key, verify, load", timings,
        timings["tileops"].median_us * 1e-3, "ms", limit_ms, extra={"ns": parts},
    )  # fmt: skip
    calls = {"tileops": Timing.of([s["first call"] * 1e6 for s in found["tileops"]])}
    yield _absolute(
        "warm start of the matmul: first call", calls, calls["tileops"].median_us * 1e-3, "ms",
        limit_ms,
    )  # fmt: skip
    yield from _against_peers("warm start of the matmul", found)


def _against_peers(workload: str, found: dict[str, list[dict[str, float]]]) -> Iterator[Result]:
    for part in ("first call", "all"):
        timings = {name: Timing.of([s[part] * 1e6 for s in got]) for name, got in found.items()}
        title = f"{workload}: {part if part != 'all' else 'import to result'}"
        for peer in list(timings)[1:]:
            two = {name: timings[name] for name in ("tileops", peer)}
            yield cost_result(title, two, "tileops", peer)


def _absolute(
    workload: str, timings: dict[str, Timing], value: float, unit: str, target: float, **kw: object
) -> Result:
    return Result(
        workload, "tileops", "tileops", timings, value, f"time in {unit}", target=target,
        higher_is_better=False, **kw,  # type: ignore[arg-type]
    )  # fmt: skip

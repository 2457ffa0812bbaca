"""The warm start: whole new processes that find what they need in a cache, compared with peers."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from benchmarks import warm_programs as programs
from benchmarks.harness import ROOT, Result, Timing, cost_result, in_turn
from benchmarks.suite_host import NoPeerError, no_peer, reason_of

_ROUNDS = 4
# A process that takes longer hangs: a cold compile of the slowest peer takes a third of it.
_PROCESS_SECONDS = 60
# What a warm start does of its own work: two traces (one makes the op's schema), the key, reading
# and verifying the entry, loading its code.
STAGES = ("trace", "key", "lookup", "load")


def results(peers: str | None) -> Iterator[Result]:
    """The quickstart matmul from a full cache, then a hundred programs.

    All caches are filled first, side by side where there are processors for it; then the processes
    that are measured run alone, in turn.
    """
    cuda = torch.cuda.is_available()
    matmul, artifact = {"tileops": programs.TILEOPS}, {}
    if cuda:
        matmul["triton"] = programs.TRITON
        if peers:
            matmul["tilelang"] = programs.TILELANG
    elif importlib.util.find_spec("triton") is not None:
        artifact = {"tileops": programs.TILEOPS_ARTIFACT, "triton": programs.TRITON_ARTIFACT}
    with tempfile.TemporaryDirectory() as folder:
        groups = [
            _Processes(Path(folder) / name, peers, texts)
            for name, texts in (
                ("matmul", matmul),
                ("artifact", artifact),
                ("hundred", {"tileops": programs.HUNDRED}),
            )
        ]
        _fill(groups)
        yield from _matmul_results(groups[0].samples(_ROUNDS), 25 if cuda else 15)
        if artifact:
            found = groups[1].samples(_ROUNDS - 2)
            yield from _against_peers("warm start without loading, for sm_90", found)
        found = groups[2].samples(_ROUNDS - 1)
        timings = {"tileops": Timing.of([s["all"] * 1e6 for s in found["tileops"]])}
        yield _absolute(
            "warm start of 100 programs", timings, timings["tileops"].median_us * 1e-6, "s", 1.0
        )


class _Processes:
    """Runs texts as files of one folder, whose caches the first run of each fills."""

    def __init__(self, folder: Path, peers: str | None, texts: Mapping[str, str]) -> None:
        folder.mkdir()
        self.names = list(texts)
        self._folder = folder
        for name, text in texts.items():
            (folder / f"{name}_run.py").write_text(text, encoding="utf-8")
        self._environment = dict(
            os.environ,
            TILEOPS_CACHE_DIR=str(folder / "tileops"),
            TRITON_CACHE_DIR=str(folder / "triton"),
            TILELANG_CACHE_DIR=str(folder / "tilelang"),
            PYTHONPYCACHEPREFIX=str(folder.parent / "byte_code"),
            PYTHONPATH=os.pathsep.join(p for p in (str(ROOT), peers) if p),
        )
        # Every system is measured as installed: with byte code.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def samples(self, rounds: int) -> dict[str, list[dict[str, float]]]:
        """What each text printed, once a round, in turn."""
        found: dict[str, list[dict[str, float]]] = {name: [] for name in self.names}
        for number in range(rounds):
            for name in in_turn(self.names, number):
                found[name].append(self._run(name))
        return found

    def fill(self, name: str) -> None:
        """One run with an empty cache and one after it, which still writes byte code.

        A peer that fails is left out, and stderr says why.
        """
        try:
            self._run(name, "cold")
            self._run(name)
        except NoPeerError as error:
            if name == "tileops":
                raise
            no_peer(name, error)
            self.names.remove(name)

    def _run(self, name: str, *arguments: str) -> dict[str, float]:
        command = [sys.executable, f"{name}_run.py", *arguments]
        try:
            done = subprocess.run(
                command, cwd=self._folder, env=self._environment, capture_output=True, text=True,
                check=False, timeout=_PROCESS_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoPeerError(f"no end after {_PROCESS_SECONDS} s") from None
        if done.returncode != 0:
            raise NoPeerError(reason_of(done.stderr, done.returncode))
        return dict(json.loads(done.stdout.splitlines()[-1]))


def _fill(groups: Sequence[_Processes]) -> None:
    jobs = [functools.partial(group.fill, name) for group in groups for name in tuple(group.names)]
    at_once = max(1, (os.cpu_count() or 1) // 3)
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def _matmul_results(found: dict[str, list[dict[str, float]]], limit_ms: float) -> Iterator[Result]:
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

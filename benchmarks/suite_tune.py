"""The tuning workload: the matmul at 4096^3 over 24 configs, against TileLang's tuner.

Also how good what is found is, several times over, and what a second process pays. Every process has
a time limit, so has the whole: what does not fit is left out and said on stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import tileops
from benchmarks.harness import ROOT, Flusher, Result, Timing, cost_result
from benchmarks.judging import Judge, Verdict
from benchmarks.programs import bench_matmul
from benchmarks.suite_gpu import close, label

SIZE = 4096
REPETITIONS, THOROUGH = 3, 10  # tunings that are judged: by default, and when asked
LIMIT_SECONDS, THOROUGH_SECONDS = 230.0, 380.0  # of the whole suite
ONE_SECONDS = 150.0  # of one process
KEPT_SECONDS = 60.0  # for judging, and for second processes
STARTS = 3  # second processes of each kind
# Inputs that winners are judged on, and rounds on each: of all configs, and of the best.
SESSIONS, LOOKS, RACES = 4, 20, 100
CONFIGS: tuple[dict[str, int], ...] = tuple(
    {
        "block_M": m, "block_N": n, "block_K": k, "num_stages": s,
        "threads": 256 if m * n > 128 * 128 else 128,
    }
    for m in (64, 128) for n in (64, 128, 256) for k in (32, 64) for s in (3, 4)
)  # fmt: skip

# Both write one line of JSON: seconds of the tuning call, and the config that it chose.
_INPUTS = f"""
a, b = (torch.randn({SIZE}, {SIZE}, device="cuda", dtype=torch.float16) for _ in range(2))
torch.cuda.synchronize(); start = time.perf_counter()
"""
TILEOPS_TUNE = f"""
import json, time, torch, tileops
from benchmarks.programs import bench_matmul
from benchmarks.suite_tune import CONFIGS
tuned = tileops.autotune(configs=list(CONFIGS))(bench_matmul)
{_INPUTS}
tuned(a, b); torch.cuda.synchronize(); seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "config": tuned.compile(a, b).config}}))
"""
TILELANG_TUNE = f"""
import json, time, torch, tilelang
import tilelang.language as T
CONFIGS = json.loads({json.dumps(json.dumps(CONFIGS))})
@tilelang.autotune(configs=CONFIGS)
@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M=128, block_N=128, block_K=32, num_stages=3, threads=128):
    @T.prim_func
    def main(A: T.Tensor((M, K), T.float16), B: T.Tensor((K, N), T.float16), C: T.Tensor((M, N), T.float16)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), T.float16)
            B_s = T.alloc_shared((block_K, block_N), T.float16)
            acc = T.alloc_fragment((block_M, block_N), T.float32)
            T.use_swizzle(panel_size=8)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(B[k * block_K, bx * block_N], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * block_M, bx * block_N])
    return main
{_INPUTS}
kernel = matmul({SIZE}, {SIZE}, {SIZE})
kernel(a, b); torch.cuda.synchronize(); seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "config": kernel.config}}))
"""


TILEOPS_UNTUNED = f"""
import json, time, torch, tileops
from benchmarks.programs import bench_matmul
CONFIG = json.loads(CONFIG_TEXT)
{_INPUTS}
bench_matmul(a, b, **CONFIG); torch.cuda.synchronize(); seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds}}))
"""


class Clock:
    """Seconds left for the suite."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until the suite has to end."""
        return self._end - time.monotonic()


def in_fresh_process(
    code: str, folder: Path, clock: Clock, peers: str | None = None
) -> dict[str, Any]:
    """What ``code`` prints, run from a file in a new process whose caches are under ``folder``.

    RuntimeError where it fails, or takes longer than one process may.
    """
    path = folder / "tune.py"
    path.write_text(code, encoding="utf-8")
    env = dict(
        os.environ,
        TILEOPS_CACHE_DIR=f"{folder}/t",
        TILELANG_CACHE_DIR=f"{folder}/l",
        HOME=str(folder),
        # Packages installed for the user lie under the real home.
        PYTHONUSERBASE=site.getuserbase(),
        PYTHONPATH=os.pathsep.join(p for p in (str(ROOT), peers) if p),
    )
    limit = min(ONE_SECONDS, clock.left())
    if limit <= 0:
        raise RuntimeError("no time is left for it")
    # TileLang writes a log into the working directory. The output goes to files: a process that
    # outlives its parent would keep a pipe open.
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        process = subprocess.Popen(
            [sys.executable, path], stdout=out, stderr=err, env=env, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        try:
            code_of_exit: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code_of_exit = None
        finally:
            _end_group(process)
    errors = (folder / "err").read_text(encoding="utf-8", errors="replace")[-2000:]
    if code_of_exit is None:
        raise RuntimeError(f"no result after {limit:.0f} s:\n{errors}")
    lines = (folder / "out").read_text(encoding="utf-8", errors="replace").splitlines()
    found = next((line for line in reversed(lines) if line.startswith("{")), None)
    if code_of_exit or found is None:
        raise RuntimeError(f"exit code {code_of_exit}:\n{errors}")
    return dict(json.loads(found))


def _end_group(process: subprocess.Popen[Any]) -> None:
    """End a process with all that it started."""
    with contextlib.suppress(ProcessLookupError):  # usually nothing is left of the group
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def say(text: str) -> None:
    """Progress, for who waits."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _tried(what: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """What ``run`` gives, None and a line on stderr where it fails."""
    try:
        return run()
    except RuntimeError as error:
        say(f"{what}: {error}")
        return None


def tuning_time_results(folder: Path, peers: str | None, clock: Clock) -> Iterator[Result]:
    """Tunings with empty caches: two of ours, and between them one of the peer's, which takes long."""
    samples: dict[str, list[float]] = {"tileops": [], "tilelang": []}
    chosen: dict[str, Any] = {}
    ours, theirs = ("tileops", TILEOPS_TUNE, None), ("tilelang", TILELANG_TUNE, peers)
    for number, (name, code, path) in enumerate([ours, *([theirs] if peers else []), ours]):
        place = folder / f"{name}{number}"
        place.mkdir()
        found = _tried(
            f"tuning by {name}",
            lambda code=code, place=place, path=path: in_fresh_process(code, place, clock, path),
        )
        if found is not None:
            samples[name].append(found["seconds"] * 1e6)
            chosen[name] = found["config"]
            say(f"tuning by {name}: {found['seconds']:.1f} s")
    timings = {name: Timing.of(got) for name, got in samples.items() if got}
    if "tileops" not in timings:
        return
    has_peer = "tilelang" in timings
    yield cost_result(
        f"tuning the matmul {SIZE}^3 over {len(CONFIGS)} configs" + ("" if has_peer else " (no peer)"),
        timings, "tileops", "tilelang" if has_peer else "tileops",
        target=0.4 if has_peer else None, extra={"chosen": chosen, "samples_us": samples},
    )  # fmt: skip


def right_configs(
    a: torch.Tensor, b: torch.Tensor, chosen: Sequence[Mapping[str, int]]
) -> dict[str, Callable[[], Any]]:
    """A call for each config, and for what was chosen beside them, that runs and is right."""
    check = close(a @ b, 2.0**-10)
    runs: dict[str, Callable[[], Any]] = {}
    for config in {label(c): c for c in [*CONFIGS, *chosen]}.values():
        try:
            check(bench_matmul(a, b, **config))
        except (tileops.TileopsError, AssertionError) as error:
            say(f"{label(config)} cannot run: {error}")
            continue
        runs[label(config)] = lambda config=config: bench_matmul(a, b, **config)
    return runs


def judged(winners: Sequence[dict[str, int]]) -> Verdict:
    """The winners, by their labels, against the best of all configs, over several sets of inputs."""
    judge: Judge | None = None
    flush = Flusher()
    for _ in range(SESSIONS):
        a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
        runs = right_configs(a, b, winners)

        def sample(
            names: Sequence[str], runs: Mapping[str, Callable[[], Any]] = runs
        ) -> list[float]:
            pairs = []
            for name in names:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                flush()
                begin.record()
                runs[name]()
                end.record()
                pairs.append((begin, end))
            torch.cuda.synchronize()
            return [begin.elapsed_time(end) * 1e3 for begin, end in pairs]

        if judge is None:
            judge = Judge(list(runs), [label(winner) for winner in winners])
        for _ in range(5):
            sample(list(runs))  # clocks and caches as in the middle of work
        judge.look(sample, LOOKS)
        judge.race(sample, RACES)
    assert judge is not None
    return judge.verdict()


def tunings(cache: Path, clock: Clock, repetitions: int) -> list[dict[str, Any]]:
    """Tunings one after the other, each without records but with compiled configs."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    found: list[dict[str, Any]] = []
    for number in range(repetitions):
        if clock.left() < KEPT_SECONDS:
            say(f"no time for more than {number} repeated tunings")
            break
        for tuning in list(cache.rglob("tuning")):
            shutil.rmtree(tuning)
        start = time.perf_counter()
        try:
            with tileops.option.cache_dir(cache):
                tuned = tileops.autotune(configs=list(CONFIGS))(bench_matmul)
                config = dict(tuned.compile(a, b).config)
        except tileops.TileopsError as error:
            say(f"repeated tuning {number + 1}: {error}")
            continue
        found.append({"seconds": time.perf_counter() - start, "config": config})
        say(f"repeated tuning {number + 1}: {found[-1]['seconds']:.1f} s, {label(config)}")
    return found


def quality_results(folder: Path, clock: Clock, repetitions: int) -> Iterator[Result]:
    """Tunings from a cache of compiled configs, their winners judged by a careful measurement."""
    place = folder / "tileops0"
    if not (place / "t").is_dir():
        return
    found = tunings(place / "t", clock, repetitions)
    if not found:
        return
    chosen = [{name: one["config"][name] for name in CONFIGS[0]} for one in found]
    winners = [label(config) for config in chosen]
    with tileops.option.cache_dir(place / "t"):
        verdict = judged(chosen)
    ratios = [verdict.ratios[winner] for winner in winners]
    best = verdict.medians[verdict.best]
    timings = {
        "found": Timing.of([ratio * best for ratio in ratios]),
        "best": Timing(best, best, best, 1),
    }
    yield Result(
        f"slowest of {len(found)} tuned matmuls {SIZE}^3", "best", "found", timings, max(ratios),
        "time of the slowest found / best of all configs", target=1.02, higher_is_better=False,
        extra={
            "winners": winners, "medians_us": verdict.medians, "ratios": ratios,
            "best": verdict.best, "intervals_99": verdict.intervals,
            "seconds": [one["seconds"] for one in found],
        },
    )  # fmt: skip
    yield from second_process_results(place, clock, dict(found[-1]["config"]))


def second_process_results(place: Path, clock: Clock, config: dict[str, Any]) -> Iterator[Result]:
    """The first call in a process that finds the answer on disk, beside one that needs none."""
    plain = TILEOPS_UNTUNED.replace("CONFIG_TEXT", repr(json.dumps(config)))
    codes = {"tileops": TILEOPS_TUNE, "config given": plain}
    samples: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(STARTS):
        for name, code in codes.items():
            one = _tried(
                f"second process, {name}", lambda code=code: in_fresh_process(code, place, clock)
            )
            if one is not None:
                samples[name].append(one["seconds"] * 1e6)
                say(f"second process, {name}: {one['seconds'] * 1e3:.1f} ms")
    timings = {name: Timing.of(got) for name, got in samples.items() if got}
    if "tileops" in timings:
        yield Result(
            "first call of a tuned matmul in a second process", "limit", "tileops",
            {**timings, "limit": Timing(5e4, 5e4, 5e4, 1)}, timings["tileops"].median_us / 1e6,
            "seconds", target=0.05, higher_is_better=False, extra={"samples_us": samples},
        )  # fmt: skip


def results(peers: str | None, thorough: bool = False) -> Iterator[Result]:
    """All results as they come; ``thorough`` judges more tunings and may take longer."""
    clock = Clock(THOROUGH_SECONDS if thorough else LIMIT_SECONDS)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        yield from tuning_time_results(folder, peers, clock)
        yield from quality_results(folder, clock, THOROUGH if thorough else REPETITIONS)
        say(f"{clock.left():.0f} s of the suite's time are left")

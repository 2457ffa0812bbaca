"""Interleaved timing of candidates in one process, with medians, spreads and ratios."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Timing:
    """Times of one candidate in microseconds: median, and the quartiles as its spread."""

    median_us: float
    low_us: float
    high_us: float
    samples: int

    @classmethod
    def of(cls, samples_us: list[float]) -> Timing:
        """Median and quartiles of samples in microseconds."""
        if len(samples_us) < 2:
            return cls(samples_us[0], samples_us[0], samples_us[0], 1)
        low, median, high = statistics.quantiles(samples_us, n=4)
        return cls(median, low, high, len(samples_us))


@dataclass
class Result:
    """One workload: every candidate's timing, the baseline's name, and what was asked of the ratio.

    Where there is nothing to compare, ``ratio`` is None and ``extra["errors"]`` says why.
    """

    workload: str
    baseline: str
    candidate: str
    timings: dict[str, Timing]
    ratio: float | None  # see ``ratio_of``
    ratio_of: str
    target: float | None = None
    higher_is_better: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target if self.higher_is_better else self.ratio <= self.target


class Flusher:
    """Overwrites the L2 cache between GPU samples, as a caller with other work in between would."""

    def __init__(self) -> None:
        self._buffer = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def __call__(self) -> None:
        """Overwrite the cache, on the current stream."""
        self._buffer.zero_()


def in_turn(names: list[str], number: int) -> list[str]:
    """The candidates of one round, starting one further each round.

    The first after a pause runs at other clocks than the rest (seen: 20 % on an H200), so no
    candidate may always be first.
    """
    at = number % len(names)
    return names[at:] + names[:at]


def time_gpu(
    candidates: Mapping[str, Callable[[], Any]], *, rounds: int = 30, warmup: int = 5
) -> dict[str, Timing]:
    """Device time of each candidate by CUDA events, one sample a round, candidates in turn, L2 flushed."""
    flush = Flusher()
    for run in candidates.values():
        for _ in range(warmup):
            run()
    torch.cuda.synchronize()
    pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {
        name: [] for name in candidates
    }
    for number in range(rounds):
        for name in in_turn(list(candidates), number):
            run = candidates[name]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush()
            begin.record()
            run()
            end.record()
            pairs[name].append((begin, end))
        torch.cuda.synchronize()
    return {
        name: Timing.of([b.elapsed_time(e) * 1e3 for b, e in got]) for name, got in pairs.items()
    }


def time_batches(
    candidates: Mapping[str, Sequence[Callable[[], Any]]],
    *,
    seconds: float = 1.5,
    batch_us: float = 1000.0,
) -> dict[str, Timing]:
    """Device time of one call of each candidate, by CUDA events around batches, candidates in turn.

    The calls of a candidate are the same work on different memory, used one after the other, so
    that a batch does not find its inputs in the cache. All batches have as many calls as the
    fastest candidate makes in ``batch_us``. Before each the L2 cache is overwritten, and the
    device is held until the host has queued the batch. Rounds go on for about ``seconds``, and are
    at least ten.
    """
    flush = Flusher()
    costs = {name: _cost_us(calls, flush) for name, calls in candidates.items()}
    number = max(1, min(50, int(batch_us / min(device for device, _ in costs.values()))))
    # An SM's clock is at most 2 GHz.
    holds = {name: int(1.5 * number * host * 2000) for name, (_, host) in costs.items()}
    one_round_us = sum(number * (device + 1.5 * host) + 150 for device, host in costs.values())
    rounds = max(10, min(100, int(seconds * 1e6 / one_round_us)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        brackets = {}
        for name in in_turn(list(candidates), turn):
            calls = candidates[name]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush()
            torch.cuda._sleep(holds[name])
            begin.record()
            for at in range(number):
                calls[at % len(calls)]()
            end.record()
            brackets[name] = (begin, end)
        torch.cuda.synchronize()
        for name, (begin, end) in brackets.items():
            samples[name].append(begin.elapsed_time(end) * 1e3 / number)
    return {name: Timing.of(found) for name, found in samples.items()}


def _cost_us(calls: Sequence[Callable[[], Any]], flush: Flusher) -> tuple[float, float]:
    """The time of a call on the device and on the host in microseconds, after a warm-up."""
    device, host = [], []
    for at in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush()
        begin.record()
        start = time.perf_counter()
        calls[at % len(calls)]()
        host.append((time.perf_counter() - start) * 1e6)
        end.record()
        torch.cuda.synchronize()
        device.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(device[3:]), statistics.median(host[3:])


def time_wall(
    candidates: Mapping[str, Callable[[], Any]], *, rounds: int = 15, warmup: int = 2
) -> dict[str, Timing]:
    """Wall time of each candidate on the CPU, candidates in turn."""
    for run in candidates.values():
        for _ in range(warmup):
            run()
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in in_turn(list(candidates), number):
            run = candidates[name]
            begin = time.perf_counter()
            run()
            samples[name].append((time.perf_counter() - begin) * 1e6)
    return {name: Timing.of(got) for name, got in samples.items()}


def time_host(
    candidates: Mapping[str, Callable[[], Any]],
    *,
    contexts: Mapping[str, Callable[[], AbstractContextManager[Any]]] | None = None,
    rounds: int = 201,
    calls: int = 100,
) -> dict[str, Timing]:
    """Host time of one call: ``calls`` calls without waiting for the device, candidates in turn.

    A round is short beside a time slice of the operating system (4 ms), so that other processes
    spoil few rounds and not the median. A candidate with a context is called inside it.
    """
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    inside = {name: (contexts or {}).get(name, nullcontext) for name in candidates}
    for name, run in candidates.items():
        with inside[name]():
            for _ in range(200):
                run()
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in in_turn(list(candidates), number):
            run = candidates[name]
            synchronize()
            with inside[name]():
                begin = time.perf_counter()
                for _ in range(calls):
                    run()
                samples[name].append((time.perf_counter() - begin) / calls * 1e6)
            synchronize()
    return {name: Timing.of(got) for name, got in samples.items()}


def speed_result(
    workload: str, timings: dict[str, Timing], candidate: str, baseline: str, **kw: Any
) -> Result:
    """A result whose ratio is the candidate's speed over the baseline's (above 1: faster)."""
    ratio = timings[baseline].median_us / timings[candidate].median_us
    return Result(
        workload, baseline, candidate, timings, ratio, f"speed of {candidate} / {baseline}", **kw
    )


def cost_result(
    workload: str, timings: dict[str, Timing], candidate: str, baseline: str, **kw: Any
) -> Result:
    """A result whose ratio is the candidate's time over the baseline's (below 1: faster)."""
    ratio = timings[candidate].median_us / timings[baseline].median_us
    kw.setdefault("higher_is_better", False)
    return Result(
        workload, baseline, candidate, timings, ratio, f"time of {candidate} / {baseline}", **kw
    )


def environment() -> dict[str, str]:
    """Card, versions and commit: what a figure is worth nothing without."""
    import triton

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "card": card,
        "commit": commit_of_tree(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "processor": platform.processor() or platform.machine(),
    }


def commit_of_tree() -> str:
    """The commit that this tree is, with ``+changes`` where files differ from it.

    A file COMMIT says it where the tree was carried here without its git directory, or with one
    that is not its own; ``unknown`` where neither is there.
    """
    path = ROOT / "COMMIT"
    if path.is_file():
        return path.read_text(encoding="ascii").strip()
    described = subprocess.run(
        [
            "git",
            "-C",
            str(ROOT),
            "describe",
            "--always",
            "--dirty=+changes",
            "--exclude=*",
            "--abbrev=10",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def earlier(out: Path) -> list[Result]:
    """The results in a file that ``report`` wrote."""
    rows = json.loads(out.read_text(encoding="utf-8"))["results"]
    for row in rows:
        del row["met"]
        row["timings"] = {name: Timing(**t) for name, t in row["timings"].items()}
    return [Result(**row) for row in rows]


def report(results: list[Result], out: Path | None) -> str:
    """A table for people; JSON with everything under ``out``."""
    lines = [f"{'workload':44} {'candidate':>12} {'baseline':>12} {'ratio':>7} {'target':>7}"]
    for r in results:
        if r.ratio is None:
            lines.append(f"{r.workload:44} {r.extra.get('errors') or 'nothing to compare'}")
            continue
        mark = {True: "met", False: "MISSED", None: ""}[r.met]
        target = "" if r.target is None else f"{r.target:.2f}"
        mine, theirs = r.timings[r.candidate].median_us, r.timings[r.baseline].median_us
        lines.append(
            f"{r.workload:44} {mine:12.2f} {theirs:12.2f} {r.ratio:7.3f} {target:>7} {mark}"
        )
        for name, t in r.timings.items():
            if name not in (r.candidate, r.baseline):
                lines.append(f"    {name:40} {t.median_us:12.2f} us")
        for name, ns in r.extra.get("ns", {}).items():
            lines.append(f"    {name:64} {ns:8.0f} ns")
    text = "\n".join(lines)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        payload = {
            "environment": environment(),
            "method": "medians in microseconds, candidates interleaved in one process; low and high are quartiles",
            "results": [{**asdict(r), "met": r.met} for r in results],
        }
        out.write_text(json.dumps(payload, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return text

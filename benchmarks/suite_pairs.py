"""The same programs through tileops and TileLang: results as each program is done.

Each program has a process of its own, which may crash or hang without harm to the others. Several
compile at once; one at a time uses the GPU.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Result, Timing
from benchmarks.pair import Pair, all_pairs

STEP_SECONDS = 120  # a step of a program that takes longer hangs; waiting for the GPU is not one
SIDES = ("tileops", "TileLang")
CHILD = (sys.executable, "-m", "benchmarks.pair_child")


def selected(only: Sequence[str]) -> list[tuple[str, Pair]]:
    """The pairs of these files or names, in the order of ``all_pairs``; ValueError for unknown ones."""
    pairs = list(all_pairs())
    unknown = [n for n in only if not any(n in (file, pair.name) for file, pair in pairs)]
    if unknown:
        raise ValueError(f"no pair is called {', '.join(unknown)}")
    return [(f, p) for f, p in pairs if not only or f in only or p.name in only]


def check(only: Sequence[str]) -> int:
    """Every pair at its small sizes on the CPU path: prints what is wrong, gives how many are."""
    failures = 0
    for file, pair in selected(only):
        found = check_on_cpu(pair)
        failures += found is not None
        print(f"{pair.name:48} {file:32} {found or 'ok'}", flush=True)
    return failures


def check_on_cpu(pair: Pair) -> str | None:
    """How the results on the CPU path at the small sizes are wrong; None if they are right."""
    import tileops
    import tileops.language

    kernel = tileops.compile(pair.build(tileops.language, small=True), target="cpu")
    arguments = pair.arguments("cpu", small=True)
    expected = pair.expected(arguments, small=True)
    kernel(*arguments)
    return pair.wrong(arguments, expected)


@dataclass
class Child:
    """A pair in a running process."""

    file: str
    pair: Pair
    folder: Path
    process: subprocess.Popen[bytes]
    without: dict[str, str]  # sides that are left out, each with the reason
    seen: int = 0
    since: float = field(default_factory=time.monotonic)

    @classmethod
    def start(
        cls, file: str, pair: Pair, root: Path, command: Sequence[str], without: dict[str, str]
    ) -> Child:
        """Start ``command`` for the pair, with empty caches; ``root`` holds the folders of all."""
        folder = Path(tempfile.mkdtemp(dir=root))
        environment = dict(
            os.environ,
            TILEOPS_CACHE_DIR=str(folder / "tileops"),
            TRITON_CACHE_DIR=str(folder / "triton"),
            TILELANG_CACHE_DIR=str(folder / "tilelang"),
        )
        options = ["--report", str(folder / "report"), "--lock", str(root / "lock")]
        options += [f"--without={name}" for name in without]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [*command, pair.name, *options],
                cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        return cls(file, pair, folder, process, without)

    def events(self) -> list[dict[str, Any]]:
        """What the child reported so far; a line that is not whole is left out."""
        path = self.folder / "report"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def stage(self) -> tuple[str, str]:
        """The step it is in, and whose."""
        stages = [(e["stage"], e["side"]) for e in self.events() if "stage" in e]
        return stages[-1] if stages else ("start", "")

    def has_ended(self) -> bool:
        """Whether the process ended; one that hangs is killed."""
        if self.process.poll() is not None:
            return True
        number = len(self.events())
        now = time.monotonic()
        if number != self.seen or self.stage[0] == "waiting":
            self.seen, self.since = number, now
        if now - self.since > STEP_SECONDS:
            self.kill()
            return True
        return False

    def kill(self) -> None:
        """End it and the compilers that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def reason(self) -> str:
        """Why it ended early."""
        stage, _ = self.stage
        code = self.process.returncode
        if code == -signal.SIGKILL:
            return f"killed in step {stage} (limit {STEP_SECONDS} s)"
        if code < 0:
            return f"{signal.Signals(-code).name} in step {stage}"
        lines = (self.folder / "output").read_text(errors="replace").splitlines()
        said = next((line for line in reversed(lines) if line.strip()), "")
        return f"exit status {code} in step {stage}: {said[:200]}"


def results(
    peers: str | None,
    only: Sequence[str] = (),
    seconds: float | None = None,
    jobs: int = 0,
    command: Sequence[str] = CHILD,
    without: Sequence[str] = (),
) -> Iterator[Result]:
    """A result for each pair as it is done, and printed; after ``seconds`` no other is begun.

    ``jobs`` processes run at once; by default one for four processors, at most four. ``command``
    is what runs a pair. The pairs ``without`` are left out.
    """
    begin = time.monotonic()
    jobs = jobs or max(1, min(4, (os.cpu_count() or 1) // 4))
    if peers:
        command = [*command, f"--peers={Path(peers).resolve()}"]
    pending: list[tuple[str, Pair, dict[str, str]]] = [
        (file, pair, {}) for file, pair in selected(only) if pair.name not in without
    ]
    print(HEAD, flush=True)
    running: list[Child] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        try:
            while pending or running:
                late = seconds is not None and time.monotonic() - begin > seconds
                while pending and len(running) < jobs and not late:
                    file, pair, without = pending.pop(0)
                    running.append(Child.start(file, pair, root, command, without))
                if late and not running:
                    break
                for child in [c for c in running if c.has_ended()]:
                    running.remove(child)
                    again = retry(child)
                    if again is None:
                        result = result_of(child)
                        print("\n".join(_lines(result)), flush=True)
                        yield result
                    else:
                        pending.insert(0, again)
                    shutil.rmtree(child.folder)
                time.sleep(0.05)
        finally:
            for child in running:
                child.kill()
    if pending:
        print(f"not begun within {seconds:.0f} s: {', '.join(p.name for _, p, _ in pending)}")


def retry(child: Child) -> tuple[str, Pair, dict[str, str]] | None:
    """The same pair without the side in whose step the process ended early; None if it ran through.

    A side is a compiler or the peer.
    """
    if any("done" in e for e in child.events()):
        return None
    _, side = child.stage
    if not side or side in child.without:
        return None
    failed = {e["failed"]: e["error"] for e in child.events() if "failed" in e}
    return child.file, child.pair, {**child.without, side: failed.get(side, child.reason())}


def result_of(child: Child) -> Result:
    """The row of a pair whose process ended."""
    pair, events = child.pair, child.events()
    errors = dict(child.without)
    extra: dict[str, Any] = {"file": child.file, "errors": errors, "peer": pair.peer_name}
    compiles: dict[str, dict[str, float]] = {}
    timings: dict[str, Timing] = {}
    for event in events:
        if "failed" in event:
            errors[event["failed"]] = event["error"]
        elif "compiled" in event:
            compiles[event["compiled"]] = {
                "seconds": event["seconds"], "processor_seconds": event["processor_seconds"],
            }  # fmt: skip
            extra.setdefault("versions", {})[event["compiled"]] = event["version"]
        elif "first_call_s" in event:
            # From the source to the first result; the wait for the GPU in between is not counted.
            compiles[event["side"]]["seconds"] += event["first_call_s"]
        elif "timings" in event:
            timings = {name: Timing(**t) for name, t in event["timings"].items()}
            extra["bytes"] = event["bytes"]
    if not any("done" in e for e in events):
        errors.setdefault("process", child.reason())
    extra["first_call"] = compiles
    extra["rates"] = rates(pair, timings, extra.get("bytes", 0.0))
    baseline = next((n for n in ("TileLang", pair.peer_name) if n in timings), "")
    if "tileops" not in timings or not baseline:
        return Result(pair.name, baseline, "tileops", timings, None, "", extra=extra)
    ratio = timings[baseline].median_us / timings["tileops"].median_us
    return Result(
        pair.name, baseline, "tileops", timings, ratio, f"speed of tileops / {baseline}",
        extra=extra,
    )  # fmt: skip


def rates(pair: Pair, timings: dict[str, Timing], moved: float) -> dict[str, dict[str, float]]:
    """TFLOP/s, if the pair counts any, and TB/s of each candidate."""
    found: dict[str, dict[str, float]] = {}
    for name, timing in timings.items():
        found[name] = {"tb_per_s": moved / timing.median_us * 1e-6}
        if pair.flops is not None:
            found[name]["tflops"] = pair.flops(**pair.sizes) / timing.median_us * 1e-6
    return found


def speed_over(result: Result, name: str) -> float | None:
    """The speed of tileops over that of another candidate; None if either was not timed."""
    if name not in result.timings or "tileops" not in result.timings:
        return None
    return result.timings[name].median_us / result.timings["tileops"].median_us


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


HEAD = (
    f"{'program':48} {'tileops us':>11} {'rate':>11} {'/ TileLang':>10} {'/ torch':>8} "
    f"{'first call, s':>13} {'TileLang':>8}"
)


def by_file(found: Sequence[Result]) -> list[Result]:
    """Results in the order of the files, and of the pairs in each."""
    place = {pair.name: at for at, (_, pair) in enumerate(all_pairs())}
    return sorted(found, key=lambda r: (r.extra["file"], place.get(r.workload, len(place))))


def table(found: Sequence[Result]) -> str:
    """A row for each pair, its ratios, their geometric means, and what went wrong."""
    lines = [HEAD, *(line for r in by_file(found) for line in _lines(r))]
    for name in ("TileLang", "torch"):
        over = [speed_over(r, r.extra["peer"] if name == "torch" else name) for r in found]
        ratios = [ratio for ratio in over if ratio is not None]
        if ratios:
            lines.append(
                f"speed over {name}: geometric mean {geometric_mean(ratios):.3f} of {len(ratios)}, "
                f"{min(ratios):.3f} to {max(ratios):.3f}"
            )
    return "\n".join(lines)


def _lines(r: Result) -> list[str]:
    """The row of a pair, and its errors beneath."""
    mine = r.timings.get("tileops")
    over = [speed_over(r, name) for name in ("TileLang", r.extra["peer"])]
    ratios = ["-" if ratio is None else f"{ratio:.3f}" for ratio in over]
    firsts = [_seconds(r, side) for side in SIDES]
    row = (
        f"{r.workload:48} {f'{mine.median_us:.1f}' if mine else '-':>11} {_rate(r):>11} "
        f"{ratios[0]:>10} {ratios[1]:>8} {firsts[0]:>13} {firsts[1]:>8}"
    )
    return [row, *(f"    {side}: {error}" for side, error in r.extra["errors"].items())]


def _rate(r: Result) -> str:
    mine = r.extra["rates"].get("tileops", {})
    if "tflops" in mine:
        return f"{mine['tflops']:.0f} TFLOP/s"
    return f"{mine['tb_per_s']:.2f} TB/s" if mine else "-"


def _seconds(r: Result, side: str) -> str:
    found = r.extra["first_call"].get(side)
    return f"{found['seconds']:.2f}" if found else "-"

"""One pair in a process of its own: compile by both, check, time; reports each step as it is done.

``suite_pairs`` starts it and may kill it. Each line of the report is a JSON object, see ``Report``.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.harness import Timing, time_batches, time_wall
from benchmarks.pair import Pair, Tensors, all_pairs

ROTATED_BYTES = 256 << 20  # several times the L2 cache


class Report:
    """Lines appended to a file: ``stage`` names the step that begins, and whose it is.

    ``failed`` says why a side has no time, ``compiled`` and ``first_call_s`` what its first call
    took, ``timings`` the result, ``done`` that all went well.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def __call__(self, **fields: object) -> None:
        """Append one line."""
        self._file.write(json.dumps(fields) + "\n")
        self._file.flush()


@dataclass
class Side:
    """One of the two compilers."""

    name: str
    language: ModuleType
    compile: Callable[[Any], Callable[..., Any]]
    version: str
    kernel: Callable[..., Any] | None = field(default=None)


def sides(peers: str | None, without: list[str], report: Report) -> list[Side]:
    """The compilers that are here, imported: what their import takes is not a compile's."""
    found = []
    for name in ("tileops", "TileLang"):
        if name in without or (name == "TileLang" and peers is None):
            continue
        report(stage="import", side=name)
        if name == "TileLang" and peers not in sys.path:
            sys.path.append(str(peers))
        try:
            module = importlib.import_module(name.lower())
            language = importlib.import_module(f"{name.lower()}.language")
            importlib.import_module("triton")
        except Exception as error:  # a peer that is not whole must not cost our figures
            report(failed=name, error=first_line(error))
            continue
        found.append(Side(name, language, module.compile, getattr(module, "__version__", "")))
    return found


def first_line(error: BaseException) -> str:
    """The class of an error and the first line of its message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def compile_side(side: Side, pair: Pair, small: bool, report: Report) -> None:
    """Compile the pair; the side has no kernel if that fails."""
    report(stage="compile", side=side.name)
    begin, spent = time.perf_counter(), _processor_s()
    try:
        side.kernel = side.compile(pair.build(side.language, small))
    except Exception as error:  # what one side cannot compile is a row of the table
        report(failed=side.name, error=first_line(error))
        return
    report(
        compiled=side.name,
        seconds=time.perf_counter() - begin,
        processor_seconds=_processor_s() - spent,
        version=side.version,
    )


def _processor_s() -> float:
    """Seconds of all processors for this process and the children that ended, such as ptxas."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Measurement:
    """A pair on the GPU; or, for tests, at its small sizes on the CPU."""

    def __init__(self, pair: Pair, small: bool, seconds: float, report: Report) -> None:
        self.pair, self.small, self.seconds, self.report = pair, small, seconds, report

    def run(self, compilers: Sequence[Side], without: Sequence[str]) -> None:
        """Check all sides and the peer, and time those that are right."""
        given = self.pair.arguments("cpu" if self.small else "cuda", self.small)
        expected = self.pair.expected(given, self.small)
        self._synchronize()
        for side in compilers:
            self._check(side, given, expected)
        del expected
        sets = self._rotated(given)
        calls: dict[str, list[Callable[[], Any]]] = {
            side.name: [_bound(side.kernel, arguments) for arguments in sets]
            for side in compilers
            if side.kernel is not None
        }
        if self.pair.peer is not None and self.pair.peer_name not in without:
            others = self._peer_calls(self.pair.peer, sets)
            if others:
                calls[self.pair.peer_name] = others
        if calls:
            self.report(stage="timing", side="")
            timings = {name: asdict(timing) for name, timing in self._times(calls).items()}
            self.report(timings=timings, bytes=self._moved(given))

    def _synchronize(self) -> None:
        if not self.small:
            torch.cuda.synchronize()

    def _check(self, side: Side, given: Tensors, expected: Tensors) -> None:
        """Run the kernel once on copies; drop it if it fails or its results are wrong."""
        assert side.kernel is not None
        self.report(stage="check", side=side.name)
        arguments = tuple(x.clone() for x in given)
        begin = time.perf_counter()
        try:
            side.kernel(*arguments)
            self._synchronize()
            seconds = time.perf_counter() - begin
            wrong = self.pair.wrong(arguments, expected)
        except Exception as error:  # likewise
            self._fail(side.name, error)
            side.kernel = None
            return
        if wrong:
            self.report(failed=side.name, error=f"wrong result: {wrong}")
            side.kernel = None
            return
        self.report(side=side.name, first_call_s=seconds)

    def _fail(self, name: str, error: Exception) -> None:
        self.report(failed=name, error=first_line(error))
        if "CUDA error" in str(error):
            # The device does nothing more in this process: the parent starts one without this side.
            sys.exit(1)

    def _rotated(self, given: Tensors) -> list[Tensors]:
        """Copies of the arguments, enough that no call finds its own in the L2 cache."""
        size = sum(x.numel() * x.element_size() for x in given)
        copies = 0 if self.small else min(50, -(-ROTATED_BYTES // size)) - 1
        return [given, *(tuple(x.clone() for x in given) for _ in range(copies))]

    def _peer_calls(
        self, peer: Callable[..., Any], sets: Sequence[Tensors]
    ) -> list[Callable[[], Any]]:
        """The calls of the peer, one for each set of arguments; none if it fails."""
        self.report(stage="peer", side=self.pair.peer_name)
        try:
            calls = [peer(*arguments, **self.pair.sizes_of(self.small)) for arguments in sets]
            calls[0]()
            self._synchronize()
        except Exception as error:  # the peer is a baseline, not what is measured
            self._fail(self.pair.peer_name, error)
            return []
        return calls

    def _times(self, calls: Mapping[str, Sequence[Callable[[], Any]]]) -> dict[str, Timing]:
        if self.small:
            return time_wall({name: found[0] for name, found in calls.items()}, rounds=3)
        return time_batches(calls, seconds=self.seconds)

    def _moved(self, given: Tensors) -> float:
        """The bytes that the work reads and writes at least."""
        if self.pair.moved_bytes is not None:
            return self.pair.moved_bytes(**self.pair.sizes_of(self.small))
        return float(sum(x.numel() * x.element_size() for x in given))


def _bound(kernel: Callable[..., Any], arguments: Tensors) -> Callable[[], Any]:
    return lambda: kernel(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True, help="held while the GPU is used")
    parser.add_argument("--peers")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=1.5, help="of timing")
    parser.add_argument(
        "--small", action="store_true", help="small sizes on the CPU: tests this file"
    )
    args = parser.parse_args()
    report = Report(args.report)
    pair = next(p for _, p in all_pairs() if p.name == args.name)
    compilers = sides(args.peers, args.without, report)
    for side in compilers:
        compile_side(side, pair, args.small, report)
    compilers = [side for side in compilers if side.kernel is not None]
    if compilers:
        report(stage="waiting", side="")
        with args.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends
            report(stage="reference", side="")
            measurement = Measurement(pair, args.small, args.seconds, report)
            measurement.run(compilers, args.without)
    report(done=True)


if __name__ == "__main__":
    main()

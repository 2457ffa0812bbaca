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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.harness import time_batches
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


def is_fatal(error: BaseException) -> bool:
    """Whether the device can do nothing more in this process."""
    return "CUDA error" in str(error) and "out of memory" not in str(error)


def compile_side(side: Side, pair: Pair, report: Report) -> None:
    """Compile the pair; the side has no kernel if that fails."""
    report(stage="compile", side=side.name)
    begin, spent = time.perf_counter(), _processor_s()
    try:
        side.kernel = side.compile(pair.build(side.language))
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


def check_side(side: Side, pair: Pair, given: Tensors, expected: Tensors, report: Report) -> None:
    """Run the kernel once on copies; drop it if it fails or its results are wrong."""
    assert side.kernel is not None
    report(stage="check", side=side.name)
    arguments = tuple(x.clone() for x in given)
    begin = time.perf_counter()
    try:
        side.kernel(*arguments)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        wrong = pair.wrong(arguments, expected)
    except Exception as error:  # likewise
        report(failed=side.name, error=first_line(error))
        side.kernel = None
        if is_fatal(error):
            sys.exit(1)  # the parent starts another process without this side
        return
    if wrong:
        report(failed=side.name, error=f"wrong result: {wrong}")
        side.kernel = None
        return
    report(side=side.name, first_call_s=seconds)


def rotated(given: Tensors) -> list[Tensors]:
    """Copies of the arguments, enough that no call finds its own in the L2 cache."""
    size = sum(x.numel() * x.element_size() for x in given)
    copies = min(50, -(-ROTATED_BYTES // size)) - 1
    return [given, *(tuple(x.clone() for x in given) for _ in range(copies))]


def peer_calls(pair: Pair, sets: list[Tensors], report: Report) -> list[Callable[[], Any]]:
    """The calls of the peer, one for each set of arguments; none if it fails."""
    assert pair.peer is not None
    report(stage="peer", side=pair.peer_name)
    try:
        calls = [pair.peer(*arguments, **pair.sizes) for arguments in sets]
        calls[0]()
        torch.cuda.synchronize()
    except Exception as error:  # the peer is a baseline, not what is measured
        report(failed=pair.peer_name, error=first_line(error))
        if is_fatal(error):
            sys.exit(1)
        return []
    return calls


def measure(
    pair: Pair, compilers: list[Side], without: list[str], seconds: float, report: Report
) -> None:
    """Check all sides and the peer, and time those that are right."""
    given = pair.arguments("cuda")
    expected = pair.expected(given)
    torch.cuda.synchronize()
    for side in compilers:
        check_side(side, pair, given, expected, report)
    del expected
    torch.cuda.empty_cache()
    sets = rotated(given)
    calls: dict[str, list[Callable[[], Any]]] = {
        side.name: [_bound(side.kernel, arguments) for arguments in sets]
        for side in compilers
        if side.kernel is not None
    }
    if pair.peer is not None and pair.peer_name not in without:
        others = peer_calls(pair, sets, report)
        if others:
            calls[pair.peer_name] = others
    if calls:
        report(stage="timing", side="")
        timings = time_batches(calls, seconds=seconds)
        report(timings={name: asdict(t) for name, t in timings.items()}, bytes=moved(pair, given))


def _bound(kernel: Callable[..., Any], arguments: Tensors) -> Callable[[], Any]:
    return lambda: kernel(*arguments)


def moved(pair: Pair, given: Tensors) -> float:
    """The bytes that the work reads and writes at least."""
    if pair.moved_bytes is not None:
        return pair.moved_bytes(**pair.sizes)
    return float(sum(x.numel() * x.element_size() for x in given))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True, help="held while the GPU is used")
    parser.add_argument("--peers")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=1.5, help="of timing")
    args = parser.parse_args()
    report = Report(args.report)
    pair = next(p for _, p in all_pairs() if p.name == args.name)
    compilers = sides(args.peers, args.without, report)
    for side in compilers:
        compile_side(side, pair, report)
    compilers = [side for side in compilers if side.kernel is not None]
    if compilers:
        report(stage="waiting", side="")
        with args.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends
            report(stage="reference", side="")
            measure(pair, compilers, args.without, args.seconds, report)
    report(done=True)


if __name__ == "__main__":
    main()

"""``python -m benchmarks.run``: runs the suites that this machine can run and writes their results."""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from benchmarks.harness import ROOT, Result, earlier, environment, report


def suite_results(
    suite: str, args: argparse.Namespace, done: Sequence[str] = ()
) -> Iterable[Result]:
    """The results of one suite, those that come one by one as they come.

    ``done`` names the pairs that need not run.
    """
    peers: str | None = args.peers
    if suite == "pairs":
        from benchmarks import suite_pairs

        return suite_pairs.results(peers, args.only, args.seconds, args.jobs, without=done)
    if suite == "ops":
        from benchmarks import suite_ops

        return suite_ops.results(peers, args.only)
    if suite == "foreign":
        from benchmarks import suite_foreign

        return suite_foreign.results()
    if suite == "gpu":
        from benchmarks import suite_gpu

        return suite_gpu.results()
    if suite == "host":
        from benchmarks import suite_host

        return suite_host.results(peers)
    if suite == "tune":
        from benchmarks import suite_tune

        return suite_tune.results(peers, args.thorough)
    if suite == "compile":
        from benchmarks import suite_compile

        return suite_compile.results()
    if suite == "warm":
        from benchmarks import suite_warm

        return suite_warm.results(peers)
    from benchmarks import suite_cpu

    return suite_cpu.results()


def write_pairs(results: list[Result], out: Path, title: str) -> None:
    """Print the table of the pairs, and draw them beside the results."""
    from benchmarks import pair_chart, suite_pairs

    picture = out.with_suffix(".svg")
    picture.write_text(pair_chart.chart(results, title), encoding="utf-8")
    sys.stdout.write(f"{suite_pairs.table(results)}\ndrawn in {picture}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suite",
        action="append",
        choices=("gpu", "host", "cpu", "warm", "tune", "compile", "pairs", "ops", "foreign"),
        help="default: gpu, host and warm; without a GPU host, cpu and warm",
    )
    parser.add_argument(
        "--peers",
        help="folder that holds an installed TileLang, for the pairs and the baselines of first compile, warm start and tuning",
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the result file (default benchmarks/results)"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="repeat tunings ten times instead of three"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target is missed")
    group = parser.add_argument_group("the suites pairs and ops")
    group.add_argument(
        "--only", type=lambda text: text.split(","), default=[], metavar="NAME,...",
        help="files of benchmarks/pairs without .py, or names of programs or operators",
    )  # fmt: skip
    group.add_argument("--seconds", type=float, help="begin no other program after this time")
    group.add_argument(
        "--missing", action="store_true", help="only programs that the file of results lacks"
    )
    group.add_argument("--jobs", type=int, default=0, help="processes that compile at once")
    group.add_argument(
        "--check",
        action="store_true",
        help="only check the programs, on the CPU path at small sizes",
    )
    args = parser.parse_args()
    if args.check:
        from benchmarks import suite_pairs

        return int(suite_pairs.check(args.only) > 0)
    suites = args.suite or (
        ["gpu", "host", "warm"] if torch.cuda.is_available() else ["host", "cpu", "warm"]
    )
    info = environment()
    card = re.sub(r"[^A-Za-z0-9]+", "-", info["card"]).strip("-").lower()
    kind = "-pairs" if suites == ["pairs"] else ""
    out = (args.out or ROOT / "benchmarks" / "results") / f"{card}-{info['commit']}{kind}.json"
    if kind and not torch.cuda.is_available():
        parser.error("the pairs are timed on a GPU; --check runs them on the CPU path")
    # The pairs of one commit may be measured in several runs.
    results = earlier(out) if kind and out.exists() else []
    done = [r.workload for r in results] if args.missing else []
    failed = False
    for suite in suites:
        try:
            for result in suite_results(suite, args, done):
                results = [r for r in results if not kind or r.workload != result.workload]
                results.append(result)
                report(results, out)  # what was obtained stays, whatever ends the rest
        except Exception:
            traceback.print_exc()
            failed = True
    sys.stdout.write(report(results, out) + f"\nwritten to {out}\n")
    if "ops" in suites:
        from benchmarks import suite_ops

        sys.stdout.write(suite_ops.table(results) + "\n")
    if kind:
        write_pairs(results, out, f"{info['card']}, {info['commit']}")
    if failed:
        return 1
    return int(args.strict and any(r.met is False for r in results))


if __name__ == "__main__":
    sys.exit(main())

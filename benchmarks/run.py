"""``python -m benchmarks.run``: runs the suites that this machine can run and writes their results."""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

import torch

from benchmarks.harness import ROOT, Result, environment, report


def suite_results(suite: str, peers: str | None, thorough: bool) -> Iterable[Result]:
    """The results of one suite, those that come one by one as they come."""
    if suite == "gpu":
        from benchmarks import suite_gpu

        return suite_gpu.results()
    if suite == "host":
        from benchmarks import suite_host

        return suite_host.results(peers)
    if suite == "tune":
        from benchmarks import suite_tune

        return suite_tune.results(peers, thorough)
    if suite == "compile":
        from benchmarks import suite_compile

        return suite_compile.results()
    if suite == "warm":
        from benchmarks import suite_warm

        return suite_warm.results(peers)
    from benchmarks import suite_cpu

    return suite_cpu.results()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suite",
        action="append",
        choices=("gpu", "host", "cpu", "warm", "tune", "compile"),
        help="default: all but tune and compile",
    )
    parser.add_argument(
        "--peers",
        help="folder that holds an installed TileLang, for the baselines of first compile, warm start and tuning",
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the result file (default benchmarks/results)"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="repeat tunings ten times instead of three"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target is missed")
    args = parser.parse_args()
    suites = args.suite or (
        ["gpu", "host", "warm"] if torch.cuda.is_available() else ["host", "cpu", "warm"]
    )
    results: list[Result] = []
    info = environment()
    card = re.sub(r"[^A-Za-z0-9]+", "-", info["card"]).strip("-").lower()
    out = (args.out or ROOT / "benchmarks" / "results") / f"{card}-{info['commit']}.json"
    failed = False
    for suite in suites:
        try:
            for result in suite_results(suite, args.peers, args.thorough):
                results.append(result)
                report(results, out)  # what was obtained stays, whatever ends the rest
        except Exception:
            traceback.print_exc()
            failed = True
    sys.stdout.write(report(results, out) + f"\nwritten to {out}\n")
    if failed:
        return 1
    return int(args.strict and any(r.met is False for r in results))


if __name__ == "__main__":
    sys.exit(main())

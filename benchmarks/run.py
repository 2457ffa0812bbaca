"""``python -m benchmarks.run``: runs the suites that this machine can run and writes their results."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import torch

from benchmarks.harness import ROOT, Result, environment, report


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
    for suite in suites:
        if suite == "gpu":
            from benchmarks import suite_gpu

            results += suite_gpu.results()
        elif suite == "host":
            from benchmarks import suite_host

            results += suite_host.results(args.peers)
        elif suite == "tune":
            from benchmarks import suite_tune

            results += suite_tune.results(args.peers, args.thorough)
        elif suite == "compile":
            from benchmarks import suite_compile

            results += suite_compile.results()
        elif suite == "warm":
            from benchmarks import suite_warm

            results += suite_warm.results(args.peers)
        else:
            from benchmarks import suite_cpu

            results += suite_cpu.results()
    sys.stdout.write(report(results, out) + f"\nwritten to {out}\n")
    return int(args.strict and any(r.met is False for r in results))


if __name__ == "__main__":
    sys.exit(main())

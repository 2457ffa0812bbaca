"""Owns ``python -m tileops check``: prints what in a file of tile programs is not supported."""

from __future__ import annotations

import argparse
import dataclasses
import json
import tokenize
from pathlib import Path
from typing import Any

from tileops.cli.check_analysis import Report, analyze
from tileops.errors import TileopsError


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``check``."""
    parser = commands.add_parser("check", help="what in a file of tile programs is not supported")
    parser.add_argument("file", nargs="+", type=Path, help="a Python file; it is not run")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.set_defaults(run=check_files)


def check_files(options: argparse.Namespace) -> int:
    """Print one line a finding; 1 if there is one, else 0."""
    reports = [(path, _report(path)) for path in options.file]
    if options.json:
        print(json.dumps([_as_json(path, report) for path, report in reports], indent=1))
    else:
        for path, report in reports:
            _print(path, report)
    return 1 if any(report.findings for _, report in reports) else 0


def _report(path: Path) -> Report:
    try:
        with tokenize.open(path) as file:
            source = file.read()
        return analyze(source, str(path))
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise TileopsError(f"{path} is not Python: {error}") from None


def _print(path: Path, report: Report) -> None:
    for found in report.findings:
        print(f"{path}:{found.line}:{found.column}: {found.construct}: {found.reason}")
    if not report.has_language:
        print(f"{path}: does not import the tile language")
    elif not report.findings:
        print(f"{path}: everything that can be told without running it is supported")
    else:
        count = len(report.findings)
        print(f"{path}: {count} {'thing is' if count == 1 else 'things are'} not supported")


def _as_json(path: Path, report: Report) -> dict[str, object]:
    return {
        "file": str(path),
        "supported": not report.findings,
        "has_language": report.has_language,
        "findings": [dataclasses.asdict(found) for found in report.findings],
    }

"""The commands of ``python -m tileops``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def subcommands(commands: Any, name: str, text: str) -> Callable[..., argparse.ArgumentParser]:  # noqa: ANN401
    """Add a command; returns what adds a subcommand: its name, its function, its help."""
    inner = commands.add_parser(name, help=text).add_subparsers(dest="action", required=True)

    def add(name: str, run: object, text: str, *, json: bool = False) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = inner.add_parser(name, help=text)
        parser.set_defaults(run=run)
        if json:
            parser.add_argument("--json", action="store_true", help="print JSON for programs")
        return parser

    return add

"""The program ``python -m tileops``: its commands, and how errors leave it."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from tileops.cli import (
    analyze,
    build_command,
    cache_commands,
    check,
    environment,
    health,
    prewarm_commands,
    remote_commands,
    tune_commands,
)
from tileops.errors import TileopsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for a finding, 2 for an error or a failure."""
    parser = argparse.ArgumentParser(
        prog="tileops",
        description="Tile programs: what this machine has, the cache, what files use and take.",
    )
    parser.add_argument("--version", action="version", version=f"tileops {environment.version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    environment.add_parser(commands)
    health.add_parser(commands)
    cache_commands.add_parser(commands)
    analyze.add_parser(commands)
    check.add_parser(commands)
    build_command.add_parser(commands)
    tune_commands.add_parser(commands)
    prewarm_commands.add_parser(commands)
    remote_commands.add_parser(commands)
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        # Names of folders are bytes of any kind, and a terminal may know ASCII alone.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has seen enough; the interpreter's own flush at the end must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (TileopsError, OSError) as error:
        print(f"tileops: {error}", file=sys.stderr)
        return 2

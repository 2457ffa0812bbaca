"""The commands ``python -m tileops record`` and ``prewarm``: compile ahead what a run needed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tileops import forks, option, settings
from tileops.cache.entry import Entry
from tileops.cli import remote_commands
from tileops.errors import CacheError, TileopsError
from tileops.jit import recording
from tileops.jit.compiling import Request, obtain, run_all
from tileops.target import parse_target


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the commands ``record`` and ``prewarm``."""
    recorded = commands.add_parser("record", help="run a command, and note what it compiles")
    recorded.add_argument("lock", type=Path, help="file to add to")
    recorded.add_argument("program", nargs=argparse.REMAINDER, help="such as: python train.py")
    recorded.set_defaults(run=record)
    warmed = commands.add_parser("prewarm", help="compile what record noted, for other targets too")
    warmed.add_argument("lock", type=Path)
    warmed.add_argument("--targets", help="such as cuda:sm_90,cpu (default: those recorded)")
    warmed.add_argument("--workers", type=int, help="compiles at a time (default: processors)")
    remote_commands.add_remote_options(warmed)
    warmed.set_defaults(run=prewarm)


def record(options: argparse.Namespace) -> int:
    """Run the command; its exit status, and in the file what it and its children looked up."""
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise CacheError("record: expected a command, such as: record tileops.lock python train.py")
    lock = options.lock.absolute()
    env = settings.child_environment({"TILEOPS_RECORD": str(lock)})
    status = forks.run_process(program, env=env).returncode
    count = recording.tidy(lock) if lock.exists() else 0
    print(f"{count} programs in {options.lock}")
    return status


def prewarm(options: argparse.Namespace) -> int:
    """Compile each recorded program for each target, and write it to the remote if one is named.

    1 if one could not be compiled or written; what went wrong is printed.
    """
    try:
        requests = [Request.from_json(found) for found in recording.read(options.lock)]
    except (LookupError, TypeError, ValueError) as error:
        raise CacheError(f"{options.lock} is not of this release: {error!s:.200}") from None
    targets = [parse_target(text) for text in (options.targets or "").split(",") if text]
    wanted: dict[str, Request] = {}
    for request in requests:
        for target in targets or [request.target]:
            one = replace(request, target=target, why="prewarm")
            wanted.setdefault(repr((one.program, str(target), one.spec)), one)
    problems: list[str] = []
    with option.remote(None):  # what is written is written below, and not in the background
        jobs = [partial(_attempt, one, problems) for one in wanted.values()]
        entries = [e for e in run_all(jobs, options.workers, False) if e is not None]
    made = {entry.hash: entry for entry in entries}
    print(f"{len(requests)} recorded, {len(made)} compiled for {_names(wanted)}")
    if remote_commands.is_named(options):
        with remote_commands.named(options, writes=True) as remote:
            written = remote_commands.push_entries(remote, made.values(), problems)
            print(f"{written} written to {remote.shown}, {len(made) - written} there already")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def _names(wanted: dict[str, Request]) -> str:
    return ", ".join(sorted({str(one.target) for one in wanted.values()})) or "no target"


def _attempt(request: Request, problems: list[str]) -> Entry | None:
    try:
        return obtain(request)
    except TileopsError as error:
        problems.append(f"{request.op} for {request.target}: {str(error).splitlines()[0]}")
        return None

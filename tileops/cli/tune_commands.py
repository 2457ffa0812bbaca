"""Owns ``python -m tileops tune``: run, ls, show, rm, export, import."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tileops import option, settings
from tileops.autotuner import database
from tileops.autotuner.spaces import describe
from tileops.cache.directory import Directory, resolve
from tileops.cache.scripts import aligned
from tileops.cli import tune_archive
from tileops.cli.tune_picture import Drawn, draw
from tileops.errors import CacheError


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``tune`` with its subcommands."""
    tune = commands.add_parser("tune", help="look at, move and make the results of tunings")
    inner = tune.add_subparsers(dest="action", required=True)

    def add(name: str, run: Any, text: str) -> argparse.ArgumentParser:  # noqa: ANN401
        parser: argparse.ArgumentParser = inner.add_parser(name, help=text)
        parser.set_defaults(run=run)
        return parser

    running = add("run", run_script, "run a Python file or module; its first calls tune")
    running.add_argument(
        "--again", action="store_true", help="tune anew, although an answer is stored"
    )
    running.add_argument("program", help="a file, or -m's module with --module")
    running.add_argument("arguments", nargs=argparse.REMAINDER)
    running.add_argument("--module", action="store_true", help="program names a module")
    listing = add("ls", list_tunings, "one line a tuning")
    listing.add_argument("op", nargs="?", help="only tunings of this op")
    listing.add_argument("--json", action="store_true", help="print JSON for programs")
    showing = add("show", show_tunings, "every measurement of a tuning or of an op, and a picture")
    showing.add_argument("what", type=_named, help="an op, or first digits of a tuning's hash")
    showing.add_argument(
        "--picture", type=Path, help="write a picture here (needs tileops-torch[viz])"
    )
    showing.add_argument("--json", action="store_true", help="print JSON for programs")
    removing = add("rm", remove_tunings, "remove stored tunings")
    removing.add_argument("what", nargs="*", type=_named, help="ops, or first digits of hashes")
    removing.add_argument("--all", action="store_true", help="remove every tuning")
    removing.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    saved = add("export", export_tunings, "write tunings into one file")
    saved.add_argument("file", type=Path)
    saved.add_argument("op", nargs="?", help="only tunings of this op")
    add("import", import_tunings, "add the tunings of a file").add_argument("file", type=Path)


def _named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected an op or digits of a hash, got nothing")
    return text


def _directory() -> Directory:
    directory = resolve(settings.current()).private
    if directory is None:
        raise CacheError("there is no cache directory; set TILEOPS_CACHE_DIR")
    return directory


def run_script(options: argparse.Namespace) -> int:
    """Run a program with progress lines on stderr."""
    before = sys.argv
    sys.argv = [options.program, *options.arguments]
    try:
        with option.log("tune"), option.Override(tune_again=options.again):
            if options.module:
                if find_spec(options.program) is None:
                    raise CacheError(f"there is no module {options.program!r}")
                runpy.run_module(options.program, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(options.program).resolve().parent))
                runpy.run_path(options.program, run_name="__main__")
    finally:
        sys.argv = before
    return 0


def list_tunings(options: argparse.Namespace) -> int:
    """Print one line a tuning."""
    found = [_summary(folder) for folder in database.folders(_directory(), options.op)]
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    if not found:
        print(f"no tunings in {_directory().root}")
        return 0
    lines = [["hash", "op", "device", "sizes", "configs", "failed", "milliseconds", "best"]]
    for item in found:
        time = item["milliseconds"]
        time = "-" if time is None else database.milliseconds(time, item["noisy"])
        shown = {**item, "hash": item["hash"][:12], "milliseconds": time}
        lines.append([str(shown[name]) for name in lines[0]])
    print(aligned(lines), end="")
    return 0


def _summary(folder: Path) -> dict[str, Any]:
    key = database.read_key(folder)
    best, rows = database.read_best(folder), latest(database.read_rows(folder))
    sizes = {**(key.get("static") or {}), **(key.get("sizes") or {}), **(key.get("bucket") or {})}
    return {
        "hash": folder.name,
        "op": folder.parent.parent.parent.name,
        "device": key.get("device", "?"),
        "sizes": database.words(sizes),
        "configs": len(rows),
        "failed": sum(not row.is_right for row in rows),
        "milliseconds": None if best is None else best.latency,
        "noisy": best is not None and best.noisy,
        "best": "-" if best is None else database.words(best.config),
    }


def latest(rows: list[database.Row]) -> list[database.Row]:
    """The last measurement of each config, in order of the first."""
    found: dict[str, database.Row] = {}
    for row in rows:
        found[json.dumps(row.config, sort_keys=True)] = row
    return list(found.values())


def show_tunings(options: argparse.Namespace) -> int:
    """Print every config's last measurement, fastest first; 1 where nothing matches."""
    every = database.folders(_directory())
    found = [f for f in every if f.parent.parent.parent.name == options.what]
    found = found or [f for f in every if f.name.startswith(options.what)]
    if not found:
        if options.json:
            print("[]")
        print(f"no tuning of {options.what!r} in {_directory().root}", file=sys.stderr)
        return 1
    tunings = [(_summary(folder), latest(database.read_rows(folder))) for folder in found]
    if options.json:
        content = [{**s, "rows": [vars(row) for row in rows]} for s, rows in tunings]
        print(json.dumps(content, indent=1))
    else:
        for summary, rows in tunings:
            _print(summary, rows)
    if options.picture is not None:
        keys = [database.read_key(folder) for folder in found]
        draw(
            [Drawn(s["op"], key, rows) for (s, rows), key in zip(tunings, keys, strict=True)],
            options.picture,
        )
    return 0


def _print(summary: Mapping[str, Any], rows: list[database.Row]) -> None:
    print(f"{summary['op']} {summary['hash'][:12]} on {summary['device']}: {summary['sizes']}")
    ordered = sorted(rows, key=lambda row: (not row.is_right, row.latency or 0.0))
    fastest = next((row.latency for row in ordered if row.is_right), None)
    if summary["noisy"]:
        print(f"  the choice {summary['best']} is noisy: measure again (tune run --again)")
    lines = [["  milliseconds", "times best", "runs", "config", "status"]]
    for row in ordered:
        time = f"  {row.latency:.5g}" if row.is_right else "  -"
        ratio = f"{row.latency / fastest:.3f}" if row.latency and fastest else "-"
        reason = row.reason.strip().splitlines()[0][:100] if row.reason.strip() else ""
        status = f"{row.status}: {reason}" if reason else row.status
        if row.noisy and row.low is not None and row.high is not None:
            status += f", noisy: quartiles {row.low:.4g} and {row.high:.4g} ms"
        lines.append([time, ratio, str(row.samples), describe(row.config), status])
    print(aligned(lines))


def remove_tunings(options: argparse.Namespace) -> int:
    """Remove tunings by op or hash and say which; 1 where something named is not there."""
    if options.all == bool(options.what):
        raise CacheError("tune rm: name ops or hashes, or give --all")
    directory = _directory()
    every = database.folders(directory)
    named = [(what, _matching(every, what)) for what in options.what]
    for what, found in named:
        if not found:
            print(f"no tuning of {what!r} in {directory.root}", file=sys.stderr)
    wanted = every if options.all else [f for _, found in named for f in found]
    removed = 0
    for folder in dict.fromkeys(wanted):
        item = _summary(folder)
        line = f"{item['op']} {item['hash'][:12]} on {item['device']}: {item['sizes']}"
        is_gone = options.dry_run or database.forget(directory, folder)
        removed += is_gone
        print(f"{'' if is_gone else 'cannot be removed: '}{line}, {item['configs']} configs")
    print(f"{removed} tunings {'would be ' if options.dry_run else ''}removed")
    return int(removed < len(set(wanted)) or not all(found for _, found in named))


def _matching(every: list[Path], what: str) -> list[Path]:
    """The tunings of an op, or the one whose hash begins so; CacheError where several do."""
    found = [f for f in every if f.parent.parent.parent.name == what]
    found = found or [f for f in every if f.name.startswith(what)]
    if len({f.name for f in found}) > 1 and all(f.name.startswith(what) for f in found):
        hashes = ", ".join(f.name[:12] for f in found)
        raise CacheError(f"tune rm: several hashes begin with {what!r}: {hashes}")
    return found


def export_tunings(options: argparse.Namespace) -> int:
    """Write the tunings' JSON files into a tar file; 1 if a damaged tuning was left out."""
    folders = database.folders(_directory(), options.op)
    left_out = tune_archive.export(folders, _directory().scripts, options.file)
    for problem in left_out:
        print(f"left out: {problem}")
    print(f"{len(folders) - len(left_out)} tunings in {options.file}")
    return 1 if left_out else 0


def import_tunings(options: argparse.Namespace) -> int:
    """Add tunings from a file that ``export`` wrote: data alone, no code."""
    count = tune_archive.load(_directory(), options.file)
    print(f"{count} tunings from {options.file}")
    return 0

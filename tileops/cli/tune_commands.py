"""``python -m tileops tune``: run, ls, show, rm, export, import."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tileops import option, settings
from tileops.autotuner import database
from tileops.autotuner.spaces import describe
from tileops.cache.directory import Directory, resolve
from tileops.cache.scripts import aligned
from tileops.cli import subcommands, tune_archive
from tileops.cli.stored_tuning import StoredTuning, folders, forget, op_of
from tileops.cli.tune_picture import draw
from tileops.errors import CacheError


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``tune`` with its subcommands."""
    add = subcommands(commands, "tune", "look at, move and make the results of tunings")
    running = add("run", run_script, "run a Python file or module; its first calls tune")
    running.add_argument(
        "--again", action="store_true", help="tune anew, although an answer is stored"
    )
    running.add_argument("program", help="a file, or -m's module with --module")
    running.add_argument("arguments", nargs=argparse.REMAINDER)
    running.add_argument("--module", action="store_true", help="program names a module")
    listing = add("ls", list_tunings, "one line a tuning", json=True)
    listing.add_argument("op", nargs="?", help="only tunings of this op")
    about = "every measurement of a tuning or of an op, and a picture"
    showing = add("show", show_tunings, about, json=True)
    showing.add_argument("what", type=_named, help="an op, or first digits of a tuning's hash")
    showing.add_argument(
        "--picture", type=Path, help="write a picture here (needs tileops-torch[viz])"
    )
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
    found = [_summary(StoredTuning.read(folder)) for folder in folders(_directory(), options.op)]
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    if not found:
        print(f"no tunings in {_directory().root}")
        return 0
    lines = [["hash", "op", "device", "sizes", "configs", "failed", "milliseconds", "best"]]
    for item in found:
        time = database.milliseconds(item["milliseconds"], item["noisy"])
        shown = {**item, "hash": item["hash"][:12], "milliseconds": time}
        lines.append([str(shown[name]) for name in lines[0]])
    print(aligned(lines), end="")
    return 0


def _summary(tuning: StoredTuning) -> dict[str, Any]:
    best = tuning.best
    return {
        "hash": tuning.hash,
        "op": tuning.op,
        "device": tuning.device,
        "sizes": _sizes(tuning),
        "configs": len(tuning.rows),
        "failed": len(tuning.failed),
        "milliseconds": None if best is None else best.latency,
        "noisy": best is not None and best.noisy,
        "best": "-" if best is None else database.words(best.config),
    }


def _sizes(tuning: StoredTuning) -> str:
    return database.words({**(tuning.key.get("static") or {}), **tuning.sizes})


def _title(tuning: StoredTuning) -> str:
    return f"{tuning.op} {tuning.hash[:12]} on {tuning.device}: {_sizes(tuning)}"


def show_tunings(options: argparse.Namespace) -> int:
    """Print every config's last measurement, fastest first; 1 where nothing matches."""
    named = _named_tunings(folders(_directory()), options.what)
    tunings = [StoredTuning.read(folder) for folder in named]
    if options.json:
        content = [{**_summary(t), "rows": [vars(row) for row in t.rows]} for t in tunings]
        print(json.dumps(content, indent=1))
    if not tunings:
        print(f"no tuning of {options.what!r} in {_directory().root}", file=sys.stderr)
        return 1
    if not options.json:
        for tuning in tunings:
            _print(tuning)
    if options.picture is not None:
        draw(tunings, options.picture)
    return 0


def _print(tuning: StoredTuning) -> None:
    print(_title(tuning))
    fastest = next((row.latency for row in tuning.right), None)
    if tuning.best is not None and tuning.best.noisy:
        best = database.words(tuning.best.config)
        print(f"  the choice {best} is noisy: measure again (tune run --again)")
    lines = [["  milliseconds", "times best", "runs", "config", "status"]]
    for row in (*tuning.right, *tuning.failed):
        time = f"  {row.latency:.5g}" if row.is_right else "  -"
        ratio = f"{row.latency / fastest:.3f}" if row.latency and fastest else "-"
        status = row.summary(100)
        if row.noisy and row.low is not None and row.high is not None:
            status += f", noisy: quartiles {row.low:.4g} and {row.high:.4g} ms"
        lines.append([time, ratio, str(row.samples), describe(row.config), status])
    print(aligned(lines))


def remove_tunings(options: argparse.Namespace) -> int:
    """Remove tunings by op or hash and say which; 1 where something named is not there."""
    if options.all == bool(options.what):
        raise CacheError("tune rm: name ops or hashes, or give --all")
    directory = _directory()
    every = folders(directory)
    named = [(what, _matching(every, what)) for what in options.what]
    for what, found in named:
        if not found:
            print(f"no tuning of {what!r} in {directory.root}", file=sys.stderr)
    wanted = every if options.all else [f for _, found in named for f in found]
    removed = 0
    for folder in dict.fromkeys(wanted):
        tuning = StoredTuning.read(folder)
        is_gone = options.dry_run or forget(directory, folder)
        removed += is_gone
        problem = "" if is_gone else "cannot be removed: "
        print(f"{problem}{_title(tuning)}, {len(tuning.rows)} configs")
    print(f"{removed} tunings {'would be ' if options.dry_run else ''}removed")
    return int(removed < len(set(wanted)) or not all(found for _, found in named))


def _named_tunings(every: list[Path], what: str) -> list[Path]:
    """The tunings of an op, or those whose hashes begin so."""
    of_op = [f for f in every if op_of(f) == what]
    return of_op or [f for f in every if f.name.startswith(what)]


def _matching(every: list[Path], what: str) -> list[Path]:
    """The tunings of an op, or the one whose hash begins so; CacheError where several do."""
    found = _named_tunings(every, what)
    if len({f.name for f in found}) > 1 and all(f.name.startswith(what) for f in found):
        hashes = ", ".join(f.name[:12] for f in found)
        raise CacheError(f"tune rm: several hashes begin with {what!r}: {hashes}")
    return found


def export_tunings(options: argparse.Namespace) -> int:
    """Write the tunings' JSON files into a tar file; 1 if a damaged tuning was left out."""
    chosen = folders(_directory(), options.op)
    left_out = tune_archive.export(chosen, _directory().scripts, options.file)
    for problem in left_out:
        print(f"left out: {problem}")
    print(f"{len(chosen) - len(left_out)} tunings in {options.file}")
    return 1 if left_out else 0


def import_tunings(options: argparse.Namespace) -> int:
    """Add tunings from a file that ``export`` wrote: data alone, no code."""
    count = tune_archive.load(_directory(), options.file)
    print(f"{count} tunings from {options.file}")
    return 0

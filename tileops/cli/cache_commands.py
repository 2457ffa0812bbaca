"""The command ``python -m tileops cache``: ls, show, why, verify, prune, clear, export, import."""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileops import settings
from tileops.cache import aliases, archive, catalog, scripts, staging, usage
from tileops.cache.directory import Directory, here
from tileops.cli import subcommands
from tileops.errors import CacheError

_SOURCES = ("kernel.py", "device_kernel.cpp")
# Texts of files and names must not steer the terminal; lines and tabs are their own.
_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)
}


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``cache`` with its subcommands."""
    add = subcommands(commands, "cache", "look at, check and trim the cache")
    listing = add("ls", list_entries, "one line per entry, most recently used first", json=True)
    listing.add_argument("op", nargs="?", help="only entries of this op")
    shown = add("show", show_entry, "program, options, source and resources of an entry", json=True)
    shown.add_argument("hash", help="first digits of the entry's hash")
    explained = add("why", explain_entry, "how an entry's key differs from its nearest", json=True)
    explained.add_argument("hash")
    verify = add("verify", verify_entries, "check every file of every entry", json=True)
    verify.add_argument("--repair", action="store_true", help="remove damaged entries")
    prune = add("prune", prune_entries, "remove least recently used entries", json=True)
    prune.add_argument("--limit", help="such as 2GiB (default: the limit in the settings)")
    prune.add_argument("--days", type=_days, help="and entries unused for so many days")
    add("clear", clear_entries, "remove every entry", json=True)
    saved = add("export", export_entries, "write entries into one file")
    saved.add_argument("file", type=Path)
    saved.add_argument("hash", nargs="*", help="entries (default: all)")
    add("import", import_entries, "add the entries of a file").add_argument(
        "file", type=Path, help="made by export, by someone you trust: it holds code"
    )


def _say(text: str, *, end: str = "\n") -> None:
    print(text.translate(_CONTROLS), end=end)


def _days(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


_days.__name__ = "number of days"  # what argparse calls it in its error


def list_entries(options: argparse.Namespace) -> int:
    """Print one line per entry."""
    found = [item for item in catalog.items() if options.op in (None, item.name)]
    if options.json:
        _say(json.dumps([_as_json(item) for item in found], indent=1))
        return 0
    if not found:
        _say(f"no entries in {_where()}")
        return 0
    lines = [["hash", "op", "target", "facts", "size", "used"]]
    lines += [
        [
            item.hash[:12],
            _cell(item.name or "?"),
            _cell(item.target or "?"),
            _cell(_facts(item)),
            _size(item.bytes),
            _age(item.used_at) + ("" if item.writable else "  (layer)"),
        ]
        for item in found
    ]
    _say(scripts.aligned(lines), end="")
    total = sum(item.bytes for item in found)
    _say(f"{len(found)} entries, {_size(total)}, in {_where()}")
    return 0


def show_entry(options: argparse.Namespace) -> int:
    """Print one entry whole."""
    entry = catalog.find(options.hash)
    if options.json:
        found = {
            "hash": entry.hash,
            "identity": entry.identity,
            "path": str(entry.path),
            "key": dict(entry.key.fields),
            "manifest": dict(entry.manifest),
            "files": {name: len(data) for name, data in sorted(entry.files.items())},
        }
        _say(json.dumps(found, indent=1))
        return 0
    _say(f"{entry.hash}\n{entry.path}\nidentity: {entry.identity}\n")
    for name, text in entry.key.fields.items():
        if name != "ir":
            _say(f"{name}: {text}")
    _say(f"\n{scripts.aligned(_launch_table(entry.manifest))}")
    for line in _launch_lines(entry.manifest):
        _say(line)
    texts = [n for n in sorted(entry.files) if n in _SOURCES or re.fullmatch(r"launch\d+\.cu", n)]
    for name in ("program.txt", *texts):
        _say(f"--- {name}\n{entry.files[name].decode('utf-8', errors='replace')}")
    sizes = [[name, _size(len(data))] for name, data in sorted(entry.files.items())]
    _say("--- files\n" + scripts.aligned(sizes), end="")
    return 0


def _launch_table(manifest: Mapping[str, Any]) -> list[list[str]]:
    # What the compiler measured stands beside how the runtime launches it, launch by launch.
    columns = (
        "entry",
        "language",
        "threads",
        "shared_bytes",
        "scratch_bytes",
        "registers",
        "spills",
    )
    measured = _objects(manifest.get("resources"))
    lines = [["launch", *columns]]
    for number, launch in enumerate(_launches(manifest)):
        row = {**launch, **(measured[number] if number < len(measured) else {})}
        lines.append([str(number), *(str(row.get(column, "-")) for column in columns)])
    return lines


def _launch_lines(manifest: Mapping[str, Any]) -> list[str]:
    """The tensor maps of each launch, and what the compiler noted about it."""
    lines = []
    for number, launch in enumerate(_launches(manifest)):
        for param in _objects(launch.get("params")):
            if param.get("kind") == "tensormap":
                lines.append(
                    f"launch {number}: map of tensor {param.get('index')}, box {param.get('box')}, "
                    f"swizzle {param.get('swizzle')}, element type {param.get('elem_type')}"
                )
    for number, measured in enumerate(_objects(manifest.get("resources"))):
        notes = measured.get("notes")
        lines += [f"launch {number}: {note}" for note in (notes if isinstance(notes, list) else ())]
    return lines


def _launches(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    record = manifest.get("record")
    return _objects(record.get("launches") if isinstance(record, dict) else None)


def _objects(value: object) -> list[dict[str, Any]]:
    # Whoever made the entry may have put anything in it.
    return [i if isinstance(i, dict) else {} for i in value] if isinstance(value, list) else []


def explain_entry(options: argparse.Namespace) -> int:
    """Print what differs from the nearest entry."""
    entry = catalog.find(options.hash)
    same_op = [item for item in catalog.items() if item.name == entry.manifest.get("name", "")]
    nearest = catalog.nearest(entry.key, same_op) or catalog.nearest(entry.key, catalog.items())
    if nearest is None or nearest.key is None:
        nothing = {"identity": entry.identity, "nearest": None}
        _say(json.dumps(nothing) if options.json else "there is no other entry")
        return 0
    fields = entry.key.differences(nearest.key)
    parts = catalog.changed_parts(entry.key, nearest.key)
    if options.json:
        found = {
            "identity": entry.identity,
            "nearest": nearest.hash,
            "fields": fields,
            "parts": parts,
        }
        _say(json.dumps(found))
        return 0
    same = "the same" if fields == ("toolchain",) else "another one"
    _say(f"nearest: {nearest.hash[:12]} {nearest.name} {nearest.target}")
    _say(f"identity: {entry.identity[:12]}, the nearest has {same}")
    if parts:
        _say(f"changed: {', '.join(parts)}")
    _say(f"differs in: {', '.join(fields)}\n{entry.key.describe_difference(nearest.key)}")
    return 0


def verify_entries(options: argparse.Namespace) -> int:
    """Check every entry and alias; 1 if one is damaged or a directory was refused."""
    results = catalog.verify()
    faults = [fault for directory in here() for fault in aliases.faults(directory)]
    refused = here().problem
    damaged = [(path, problem) for path, problem in results if problem is not None]
    removed = 0
    if options.repair and damaged:
        directory = _private()
        removed = sum(
            usage.discard(directory, path)
            for path, _ in damaged
            if path.parent == directory.programs
        )
        aliases.sweep(directory)
    mended = {
        fault for fault in faults if options.repair and fault.directory.writable and fault.repair()
    }
    # An alias that leads nowhere or is missing costs a compile at most.
    is_wrong = any(fault.kind == "wrong" and fault not in mended for fault in faults)
    if options.json:
        rows = [{"path": str(path), "problem": problem} for path, problem in damaged]
        found = {
            "entries": len(results), "damaged": rows, "removed": removed, "refused": refused,
            "aliases": [str(fault) for fault in faults], "mended": len(mended),
        }  # fmt: skip
        _say(json.dumps(found, indent=1))
    else:
        for fault in faults:
            _say(f"alias {fault}")
        if refused is not None:
            _say(f"refused: {refused}")
        for _, problem in damaged:
            _say(f"damaged: {problem}")
        _say(f"{len(results)} entries, {len(damaged)} damaged, {removed} removed")
        if faults:
            _say(f"{len(faults)} aliases to mend, {len(mended)} mended")
    return 1 if len(damaged) > removed or is_wrong or refused is not None else 0


def prune_entries(options: argparse.Namespace) -> int:
    """Remove what is past the limit or the age."""
    directory = _private()
    limit = settings.current().cache_limit
    if options.limit is not None:
        try:
            limit = settings.parse_bytes(options.limit)
        except ValueError as error:
            raise CacheError(f"--limit {options.limit}: expected {error}") from None
    removed = []
    if options.days is not None:
        oldest = time.time() - options.days * 86400
        used = usage.used_hashes(directory)
        removed = [
            stored.path
            for stored in usage.stored_entries(directory)
            if stored.used_at < oldest
            and stored.path.name not in used
            and usage.discard(directory, stored.path)
        ]
    if limit is not None:
        removed += usage.make_room(directory, limit)
    aliases.sweep(directory)
    scripts.sweep(directory)
    staging.sweep(directory)
    _report_removed(removed, options.json)
    return 0


def clear_entries(options: argparse.Namespace) -> int:
    """Remove every entry."""
    directory = _private()
    removed = [
        stored.path
        for stored in usage.stored_entries(directory)
        if usage.discard(directory, stored.path)
    ]
    aliases.sweep(directory)
    staging.sweep(directory, older_than=0.0)
    scripts.clear(directory)
    usage.restart_size(directory, 0)
    _report_removed(removed, options.json)
    return 0


def export_entries(options: argparse.Namespace) -> int:
    """Write entries into one file; 1 if a damaged one was left out."""
    directory = _private()
    named = [path for prefix in options.hash if (path := catalog.find(prefix).path) is not None]
    every = [stored.path for stored in usage.stored_entries(directory)]
    count, left_out = archive.export(
        named or every, directory.trust, options.file, skip_damaged=not named
    )
    for problem in left_out:
        _say(f"left out: {problem}")
    _say(f"{count} entries in {options.file}")
    return 1 if left_out else 0


def import_entries(options: argparse.Namespace) -> int:
    """Add the entries of a file; 1 if something in it was refused."""
    added, refused = archive.load(_private(), options.file, settings.current().cache_limit)
    for problem in refused:
        _say(f"refused: {problem}")
    _say(f"{added} new entries in {_where()}")
    return 1 if refused else 0


def _private() -> Directory:
    where = here()
    if where.private is None:
        raise CacheError(f"no cache directory: {where.problem or 'the cache is disabled'}")
    return where.private


def _where() -> str:
    where = here()
    roots = [str(layer.root) for layer in where.layers]
    if where.private is not None:
        roots.append(str(where.private.root))
    return ", ".join(roots) or f"memory only ({where.problem or 'disabled'})"


def _report_removed(removed: list[Path], as_json: bool) -> None:
    if as_json:
        _say(json.dumps({"removed": [path.name for path in removed]}))
    else:
        _say(f"{len(removed)} entries removed")


def _cell(text: str) -> str:
    return " ".join(text.split())[:60]


def _facts(item: catalog.Item) -> str:
    if item.key is None:
        return "damaged"
    text = item.key.fields["specialization"]
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = text
    if not isinstance(facts, dict):
        return str(facts)
    return " ".join(name for name, value in facts.items() if value is True) or "general"


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _age(used_at: float) -> str:
    seconds = max(0.0, time.time() - used_at)
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"


def _as_json(item: catalog.Item) -> dict[str, object]:
    return {
        "hash": item.hash,
        "path": str(item.path),
        "name": item.name,
        "target": item.target,
        "bytes": item.bytes,
        "used_at": item.used_at,
        "layer": not item.writable,
        "problem": item.problem,
    }

"""Owns ``scripts/``: for each program a person wrote, links to what it was compiled to."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops import log, settings
from tileops.cache.directory import Directory, resolve
from tileops.cache.entry import Entry
from tileops.cache.files import make_directories, remove, replace_file
from tileops.cache.key import canonical

FORMAT = 1
DISPATCH = "dispatch.json"
TABLE = "dispatch_table.txt"
_LOCK_SECONDS = 10.0
_NAME_LIMIT = 160
_HASH = re.compile(r"[0-9a-f]{8,64}")
_PROGRAM = re.compile(r"[0-9a-f]{64}")
_tables: dict[Path, tuple[tuple[int, int, int], list[dict[str, Any]]]] = {}


@dataclass(frozen=True)
class Script:
    """A program as its author wrote it: the op's name, and the hash of its unspecialised text."""

    name: str
    hash: str

    def folder(self, directory: Directory) -> Path:
        """Where its links and its dispatch table lie."""
        return folder_of(directory, self.name) / self.hash


def folder_of(directory: Directory, name: str) -> Path:
    """Where the scripts of op ``name`` lie."""
    # A name comes from the user's code; a path must not, and a file system takes 255 bytes.
    safe = re.sub(r"[^A-Za-z0-9_.\-]", "_", name) or "_"
    if len(safe) > _NAME_LIMIT:
        safe = f"{safe[:_NAME_LIMIT]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return directory.scripts / safe


def record(script: Script, entry: Entry, when: Mapping[str, object]) -> None:
    """Note that ``script`` runs ``entry`` where ``when`` holds (target, sizes, fast, tunables).

    Does nothing for an entry that is not in the private directory, and only warns where that
    cannot be written.
    """
    directory = resolve(settings.current()).private
    if directory is None or entry.path is None or entry.path.parent != directory.programs:
        return
    folder = script.folder(directory)
    try:
        row = {"program": entry.hash, "when": json.loads(canonical(dict(when)))}
        if row in _read_rows(folder):
            return
        make_directories(folder / "programs")
        _record(folder, entry.path, row, script)
    except OSError as error:
        log.warn_once("cache", f"tileops cache: cannot write {folder}: {error}")


def _record(folder: Path, program: Path, row: dict[str, Any], script: Script) -> None:
    # Imported where something is written: a warm start has no use for it, and it costs 15 ms.
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / ".lock", mode=0o644).acquire(timeout=_LOCK_SECONDS):
            _add_row(folder, program, row, script)
    except (Timeout, NotImplementedError) as error:
        raise OSError(str(error)) from None


def dispatch_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the script in ``folder``: ``{"program": hash, "when": {...}}``; empty if none."""
    return _read_rows(folder)


def _read_rows(folder: Path) -> list[dict[str, Any]]:
    try:
        status = os.stat(folder / DISPATCH)  # noqa: PTH116
    except OSError:
        return []  # rewritten whole by the next compile
    # Each program of a script asks for the table, and a script can have hundreds. It is replaced as
    # a whole, so it has another inode when it has changed.
    stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
    known = _tables.get(folder)
    if known is None or known[0] != stamp:
        known = _tables[folder] = (stamp, _parsed_rows(folder))
    return list(known[1])


def _parsed_rows(folder: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads((folder / DISPATCH).read_text(encoding="utf-8"))
        rows = content["rows"] if content["format"] == FORMAT else []
        return [row for row in rows if _is_row(row)]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("when"), dict):
        return False
    program = row.get("program")
    return isinstance(program, str) and _PROGRAM.fullmatch(program) is not None


def _add_row(folder: Path, program: Path, row: dict[str, Any], script: Script) -> None:
    rows = [old for old in _read_rows(folder) if old != row]
    # Evicted programs leave the table with the next compile.
    rows = [old for old in rows if (program.parent / old["program"]).is_dir()] + [row]
    hashes = list(dict.fromkeys(old["program"] for old in rows))
    _link(folder / "programs", program.parent, hashes)
    content = {"format": FORMAT, "name": script.name, "rows": rows}
    _replace(folder / DISPATCH, json.dumps(content, indent=1, sort_keys=True) + "\n")
    _replace(folder / TABLE, render_table(rows, hashes))


def _replace(path: Path, text: str) -> None:
    staging = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    replace_file(path, text.encode(), staging)


def _link(links: Path, programs: Path, hashes: Sequence[str]) -> None:
    wanted = {str(n): os.path.relpath(programs / h, links) for n, h in enumerate(hashes)}
    for path in links.iterdir():
        if not path.is_symlink() or os.readlink(path) != wanted.get(path.name):  # noqa: PTH115
            path.unlink()
    for name, target in wanted.items():
        if not (links / name).is_symlink():
            os.symlink(target, links / name)  # noqa: PTH211


def render_table(rows: Sequence[Mapping[str, Any]], hashes: Sequence[str]) -> str:
    """The dispatch table as text: a column for each condition, then the program's number."""
    names = list(dict.fromkeys(name for row in rows for name in row["when"]))
    lines = [[*names, "program", "hash"]]
    for row in rows:
        cells = [_cell(row["when"].get(name)) for name in names]
        lines.append([*cells, str(hashes.index(row["program"])), row["program"][:12]])
    return aligned(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text in columns, two spaces apart, no blanks at the ends of lines."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def clear(directory: Directory) -> None:
    """Remove all scripts, their links, tables and tunings, and nothing that is not one."""
    # The directory may be one that holds other things under the name ``scripts``.
    for folder in directory.scripts.glob("*/*"):
        if _HASH.fullmatch(folder.name) and not folder.is_symlink() and _is_script(folder):
            remove(folder)
            with suppress(OSError):
                folder.parent.rmdir()
    with suppress(OSError):
        directory.scripts.rmdir()


def _is_script(folder: Path) -> bool:
    return any((folder / name).exists() for name in (DISPATCH, "programs", "tuning"))

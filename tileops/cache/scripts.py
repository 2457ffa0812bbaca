"""The folder ``scripts/``: for each program as written, links to what it was compiled to."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops import log
from tileops.cache import staging
from tileops.cache.directory import Directory, here
from tileops.cache.entry import Entry
from tileops.cache.files import children, make_directories, remove
from tileops.cache.key import canonical
from tileops.cache.locks import file_lock

FORMAT = 1
DISPATCH = "dispatch.json"
TABLE = "dispatch_table.txt"
_LOCK_SECONDS = 10.0
_NAME_LIMIT = 160
_HASH = re.compile(r"[0-9a-f]{8,64}")
_PROGRAM = re.compile(r"[0-9a-f]{64}")
# From scripts/<op>/<hash>/programs to the directory's programs.
_UP = "../../../../programs"


@dataclass(frozen=True)
class _Table:
    """A dispatch table as read: its rows, and the number of each program's link."""

    stamp: tuple[int, int, int]
    rows: list[dict[str, Any]]
    numbers: dict[str, int]


_NO_TABLE = _Table((0, 0, 0), [], {})
_tables: dict[Path, _Table] = {}


@dataclass(frozen=True)
class Script:
    """A program as its author wrote it: the op's name, and the hash of its unspecialised text."""

    name: str
    hash: str

    def folder(self, directory: Directory) -> Path:
        """The folder of its links and its dispatch table."""
        return folder_of(directory, self.name) / self.hash


def folder_of(directory: Directory, name: str) -> Path:
    """The folder of the scripts of op ``name``."""
    # A name comes from the user's code; a path must not, and a file system takes 255 bytes.
    safe = re.sub(r"[^A-Za-z0-9_.\-]", "_", name) or "_"
    if len(safe) > _NAME_LIMIT:
        safe = f"{safe[:_NAME_LIMIT]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return directory.scripts / safe


def record(script: Script, entry: Entry, when: Mapping[str, object]) -> None:
    """Note that ``script`` runs ``entry``, if it is on disk, where ``when`` holds, or warn."""
    directory = here().private
    if directory is None or entry.path is None or entry.path.parent != directory.programs:
        return
    folder = script.folder(directory)
    row: dict[str, Any] = {"program": entry.hash, "when": json.loads(canonical(dict(when)))}
    table = _read_table(folder)
    is_known = row in table.rows
    if is_known and _is_shown(folder, table, entry.hash):
        return
    try:
        try:
            _record(directory, script, row)
        except FileNotFoundError:  # cleared or swept meanwhile; not again at once
            _record(directory, script, row)
    except OSError as error:
        # A link that cannot be restored does no harm: the table decides.
        if not is_known:
            log.warn_once("cache", f"tileops cache: cannot write {folder}: {error}")


def _is_shown(folder: Path, table: _Table, program: str) -> bool:
    """True if the program's link and the table for people are there; two calls of the system."""
    try:
        link = os.readlink(folder / "programs" / str(table.numbers[program]))  # noqa: PTH115
    except OSError:
        return False
    return link == f"{_UP}/{program}" and os.path.isfile(folder / TABLE)  # noqa: PTH113


def _record(directory: Directory, script: Script, row: dict[str, Any]) -> None:
    folder = script.folder(directory)
    lock, links = folder / ".lock", folder / "programs"
    # Other things may have the names of the lock and of the links' folder.
    if lock.is_dir():
        shutil.rmtree(lock, ignore_errors=True)
    if links.is_symlink() or links.is_file():
        remove(links)
    make_directories(links)
    with file_lock(lock, _LOCK_SECONDS):
        # Evicted programs leave the table with the next compile.
        rows = [old for old in dispatch_rows(folder) if _is_there(directory, old)]
        if row not in rows:
            rows.append(row)
        hashes = _programs(rows)
        _link(links, hashes)
        content = {"format": FORMAT, "name": script.name, "rows": rows}
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        staging.place(directory, folder / DISPATCH, text.encode())
        staging.place(directory, folder / TABLE, render_table(rows, hashes).encode())


def rows_of(directory: Directory, name: str) -> list[dict[str, Any]]:
    """The rows of all scripts of op ``name``; what cannot be read is left out."""
    folders = children(folder_of(directory, name))
    return [row for folder in folders for row in _read_table(folder).rows]


def dispatch_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the script in ``folder``: ``{"program": hash, "when": {...}}``; empty if none."""
    return list(_read_table(folder).rows)


def _read_table(folder: Path) -> _Table:
    try:
        status = os.stat(folder / DISPATCH)  # noqa: PTH116
    except OSError:
        return _NO_TABLE  # rewritten whole by the next compile
    if not stat.S_ISREG(status.st_mode):
        return _NO_TABLE
    # Each program of a script asks for the table, and a script can have hundreds. It is replaced as
    # a whole, so it has another inode when it has changed.
    stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
    known = _tables.get(folder)
    if known is None or known.stamp != stamp:
        try:
            rows = _rows_in((folder / DISPATCH).read_bytes())
        except OSError:
            return _NO_TABLE
        known = _tables[folder] = _Table(stamp, rows, {h: n for n, h in enumerate(_programs(rows))})
    return known


def _programs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["program"] for row in rows))


def _rows_in(text: bytes) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
        rows = content["rows"] if content["format"] == FORMAT else []
        return [row for row in rows if _is_row(row)]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []


def _is_row(row: object) -> bool:
    match row:
        case {"program": str(program), "when": dict()}:
            return _PROGRAM.fullmatch(program) is not None
        case _:
            return False


def _is_there(directory: Directory, row: Mapping[str, Any]) -> bool:
    return os.path.isdir(directory.programs / row["program"])  # noqa: PTH112  (raises nothing)


def _link(links: Path, hashes: Sequence[str]) -> None:
    wanted = {str(n): f"{_UP}/{program}" for n, program in enumerate(hashes)}
    for path in children(links):
        if not path.is_symlink() or os.readlink(path) != wanted.get(path.name):  # noqa: PTH115
            remove(path)
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
    """Remove all scripts, their links, tables and tunings, and no file that is not one's."""
    # The directory may be one that holds other things under the name ``scripts``.
    for folder in _folders(directory):
        if any((folder / name).exists() for name in (DISPATCH, "programs", "tuning", ".lock")):
            remove(folder)
    for folder in (*children(directory.scripts), directory.scripts):
        with suppress(OSError):  # one that is not empty holds what is not ours
            folder.rmdir()


def sweep(directory: Directory) -> int:
    """Remove scripts of which no program is left and that nobody tuned; returns their number."""
    count = 0
    for folder in _folders(directory):
        try:
            if not _is_dead(directory, folder):
                continue
            aside = staging.fresh(directory, "script.gone")
            # Rows are added under the lock: the folder is taken out between two of them, or not.
            with file_lock(folder / ".lock", 0.0):
                if not _is_dead(directory, folder):
                    continue
                os.rename(folder, aside)  # noqa: PTH104
        except OSError:
            continue
        remove(aside)
        with suppress(OSError):
            folder.parent.rmdir()
        count += 1
    return count


def _folders(directory: Directory) -> list[Path]:
    found = [folder for op in children(directory.scripts) for folder in children(op)]
    return [f for f in found if _HASH.fullmatch(f.name) and not os.path.islink(f)]  # noqa: PTH114


def _is_dead(directory: Directory, folder: Path) -> bool:
    """True if it is known that no program is left; what cannot be read is not."""
    try:
        text = (folder / DISPATCH).read_bytes()
    except OSError:
        return False
    if os.path.lexists(folder / "tuning"):
        return False
    return not any(_is_there(directory, row) for row in _rows_in(text))

"""Owns what tunings leave on disk: every measurement, the best config, and the choice by sizes."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tileops import log, settings
from tileops.autotuner.spaces import Config, canonical, plain
from tileops.cache import scripts, staging
from tileops.cache.directory import Directory, resolve
from tileops.cache.files import (
    UntrustedError,
    children,
    make_directories,
    read_file,
    remove,
    replace_file,
)
from tileops.cache.flight import Flights

FORMAT = 1
BEST, LATENCY, ROWS, KEY = "best_config.json", "latency.json", "configs.jsonl", "key.json"
TABLE = "dispatch_table.txt"
FILES = (BEST, LATENCY, ROWS, KEY)


@dataclass(frozen=True)
class TuningKey:
    """What a tuning's result is good for. ``facts`` are all conditions, as plain JSON values."""

    op: str
    script: str
    facts: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """The name of the tuning: sha256 of its facts."""
        return hashlib.sha256(canonical(self.facts).encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """One measurement of one config.

    ``digest`` is that of the program traced under it, ``check`` tells what its results were
    compared with (see ``Reference.identity``). ``noisy``: its rounds were disturbed; ``sure``:
    those with the default config show that it is faster.
    """

    config: Config
    digest: str
    status: str
    latency: float | None = None  # milliseconds
    low: float | None = None
    high: float | None = None
    samples: int = 0
    reason: str = ""
    where: str = ""
    check: str = ""
    time: float = field(default_factory=time.time)
    noisy: bool = False
    sure: bool = False

    @property
    def is_right(self) -> bool:
        """Whether the config gave the right result and has a time."""
        return self.status == "ok" and self.latency is not None


@dataclass(frozen=True)
class Best:
    """The winner of a tuning, with digests of the space that it won in and of its program.

    ``check`` and ``noisy`` as in ``Row``.
    """

    config: Config
    latency: float
    digest: str
    space: str
    ref_latency: float | None = None
    check: str = ""
    noisy: bool = False


_flights = Flights()
_holding = threading.local()
# What is older was not measured by this process, and its own choices: what tuning anew goes by.
_STARTED_S = time.time()
_chosen: set[tuple[str, str, str, str]] = set()
_memory: dict[tuple[str, str, str, str], tuple[list[Row], Best | None]] = {}


class Record:
    """The files of one tuning; what cannot be written is kept in memory."""

    def __init__(self, key: TuningKey) -> None:
        self.key = key
        now = settings.current()
        self.directory = None if now.tune_cache_disable else resolve(now).private
        self.folder = None if self.directory is None else folder_of(key, self.directory)
        self._is_anew = now.tune_again

    @property
    def _place(self) -> tuple[str, str, str, str]:
        return (str(self.folder or ""), self.key.op, self.key.script, self.key.hash)

    @contextmanager
    def alone(self, seconds: float) -> Iterator[None]:
        """One tuning of the key at a time, among threads and processes."""
        # A timer may call another tuned program: two keys may share a lock file, which a process
        # that holds it would wait for in vain.
        is_inner = getattr(_holding, "depth", 0) > 0
        locks = None if self.directory is None or is_inner else self.directory.locks
        facts = [self.key.op, self.key.script, self.key.hash]
        name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        with _flights.alone(name, locks, seconds) as problem:
            if problem is not None:
                log.warn_once("cache", f"tuning without its lock: {problem}")
            _holding.depth = getattr(_holding, "depth", 0) + 1
            try:
                yield
            finally:
                _holding.depth -= 1

    def rows(self) -> list[Row]:
        """Every measurement, oldest first; lines that are torn or not understood are left out."""
        kept = _memory.get(self._place, ([], None))[0]
        rows = [*([] if self.folder is None else read_rows(self.folder)), *kept]
        return [row for row in rows if row.time >= _STARTED_S] if self._is_anew else rows

    def best(self) -> Best | None:
        """The winner so far, None where there is none that can be read."""
        if self._is_anew and self._place not in _chosen:
            return None
        kept = _memory.get(self._place, ([], None))[1]
        return kept if kept is not None or self.folder is None else read_best(self.folder)

    def append(self, rows: Sequence[Row]) -> None:
        """Keep measurements: one write, one line each. Only warns where that cannot be written."""
        if not rows:
            return
        if not self._append(rows):
            kept, best = _memory.get(self._place, ([], None))
            _memory[self._place] = ([*kept, *rows], best)

    def _append(self, rows: Sequence[Row]) -> bool:
        folder = self.folder
        if folder is None or self.directory is None:
            return False
        text = "".join(json.dumps(plain(asdict(row)), sort_keys=True) + "\n" for row in rows)
        try:
            make_directories(folder)
            _replace(self.directory, folder / KEY, {"op": self.key.op, **self.key.facts})
            _append_lines(folder / ROWS, text.encode())
        except OSError as error:
            return self._unwritten(folder, error)
        return True

    def choose(self, best: Best) -> None:
        """Make ``best`` the winner."""
        is_kept = self._choose(best)
        _chosen.add(self._place)
        rows = _memory.get(self._place, ([], None))[0]
        if rows or not is_kept:
            _memory[self._place] = (rows, None if is_kept else best)

    def _choose(self, best: Best) -> bool:
        folder = self.folder
        if folder is None or self.directory is None:
            return False
        try:
            make_directories(folder)
            times = {
                "latency": best.latency,
                "ref_latency": best.ref_latency,
                "noisy": best.noisy,
            }
            _replace(self.directory, folder / BEST, {"format": FORMAT, **plain(asdict(best))})
            _replace(self.directory, folder / LATENCY, times)
            write_table(self.directory, folder.parent.parent)
        except OSError as error:
            return self._unwritten(folder, error)
        return True

    def _unwritten(self, folder: Path, error: OSError) -> bool:
        log.warn_once(
            "cache",  # with the cache's own troubles: a broken disk is one warning
            f"tuning results cannot be kept in {folder}, only in this process: {error}",
        )
        return False


def _append_lines(path: Path, lines: bytes) -> None:
    if os.path.lexists(path) and not _is_plain(path):
        remove(path)  # a folder or a pipe in its place would be in the way for ever
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    data = b"\n" * torn + lines
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o644)
    try:
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, "the line was not written whole")
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_plain(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def merge_rows(folder: Path, lines: bytes) -> None:
    """Add the lines of another machine's measurements that are not there yet. Raises OSError."""
    path = folder / ROWS
    known = set(_content(path).splitlines())
    fresh = [line + b"\n" for line in lines.splitlines() if line and line not in known]
    if fresh:
        _append_lines(path, b"".join(fresh))


def folder_of(key: TuningKey, directory: Directory) -> Path:
    """Where the tuning of ``key`` lies."""
    script = scripts.Script(key.op, key.script).folder(directory)
    return script / "tuning" / key.hash


def folders(directory: Directory | None, op: str | None = None) -> list[Path]:
    """The folders of all tunings, or of those of one op."""
    if directory is None:
        return []
    ops = [path for path in children(directory.scripts) if op in (None, path.name)]
    tunings = [script / "tuning" for path in ops for script in children(path)]
    return [path for tuning in tunings for path in children(tuning) if os.path.isdir(path)]  # noqa: PTH112


def forget(directory: Directory, folder: Path) -> bool:
    """Remove a tuning, also from its script's table; False where it cannot be removed."""
    if not remove(folder):
        return False
    try:
        write_table(directory, folder.parent.parent)
    except OSError as error:
        log.warn_once("tune.write", f"the table beside {folder} cannot be written: {error}")
    return True


def read_rows(folder: Path) -> list[Row]:
    """The measurements in a tuning's folder, oldest first."""
    lines = _content(folder / ROWS).decode("utf-8", errors="replace").splitlines()
    return [row for line in lines if (row := _row(line)) is not None]


def _content(path: Path) -> bytes:
    """The bytes of a plain file, none of anything else."""
    try:
        return read_file(path)
    except (OSError, UntrustedError):
        return b""


def _row(line: str) -> Row | None:
    try:
        row = Row(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    times = (row.latency, row.low, row.high)
    texts = (row.digest, row.status, row.reason, row.where, row.check)
    is_sound = (
        isinstance(row.config, dict)
        and all(isinstance(text, str) for text in texts)
        and all(value is None or _is_time(value) for value in times)
        and type(row.samples) is int
        and _is_time(row.time)
        and type(row.noisy) is type(row.sure) is bool
    )
    return row if is_sound else None


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def read_best(folder: Path) -> Best | None:
    """The winner in a tuning's folder; None where it is missing or damaged."""
    content = read_json(folder / BEST)
    if content is None or content.pop("format", None) != FORMAT:
        return None
    try:
        best = Best(**content)
    except TypeError:
        return None
    texts = (best.digest, best.space, best.check)
    is_sound = (
        isinstance(best.config, dict)
        and all(isinstance(text, str) for text in texts)
        and _is_time(best.latency)
        and (best.ref_latency is None or _is_time(best.ref_latency))
        and type(best.noisy) is bool
    )
    return best if is_sound else None


def read_key(folder: Path) -> dict[str, Any]:
    """The facts of a tuning's key, for people; what is damaged is left out."""
    content = read_json(folder / KEY) or {}
    parts = ("static", "sizes", "bucket")
    return {n: v for n, v in content.items() if n not in parts or isinstance(v, dict)}


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file, None where there is none."""
    try:
        content = json.loads(_content(path))
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def table_of(script: Path) -> str:
    """The choices of one script as a table: what holds, the config, milliseconds."""
    lines = [["device", "sizes", "bucket", "arguments", "milliseconds", "config"]]
    for folder in children(script / "tuning"):
        best, key = read_best(folder), read_key(folder)
        if best is not None:
            lines.append(
                [
                    str(key.get("device", "?")),
                    words(key.get("sizes")),
                    words(key.get("bucket")),
                    words(key.get("static")),
                    milliseconds(best.latency, best.noisy),
                    words(best.config),
                ]
            )
    return scripts.aligned(lines)


def milliseconds(latency: float, noisy: bool) -> str:
    """A time for people, with what is to be thought of it."""
    return f"{latency:.5g}" + (" (noisy)" if noisy else "")


def words(values: object) -> str:
    """A mapping in one line for people, ``-`` for an empty one."""
    if not isinstance(values, Mapping) or not values:
        return "-"
    return " ".join(f"{name}={value}" for name, value in values.items())


def write_table(directory: Directory, script: Path) -> None:
    """Write the choices of one script for people. Raises OSError."""
    place(directory, script / "tuning" / TABLE, table_of(script).encode())


def place(directory: Directory, path: Path, data: bytes) -> None:
    """Put a file of ``directory`` in its place in one step. Raises OSError."""
    replace_file(path, data, staging.fresh(directory, path.name))


def _replace(directory: Directory, path: Path, content: Mapping[str, Any]) -> None:
    place(directory, path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())

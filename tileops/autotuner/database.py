"""The records of tunings: every measurement, the best config, and the choice by sizes, on disk."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tileops import log, settings
from tileops.autotuner.spaces import Config, canonical, plain
from tileops.cache import scripts, staging
from tileops.cache.directory import Directory, resolve
from tileops.cache.files import UntrustedError, children, make_directories, read_file, remove
from tileops.cache.locks import alone

FORMAT = 1
BEST, LATENCY, ROWS, KEY = "best_config.json", "latency.json", "configs.jsonl", "key.json"
TABLE = "dispatch_table.txt"
FILES = (BEST, LATENCY, ROWS, KEY)
# The facts of a key that are mappings: compile-time arguments, exact sizes, and sizes in buckets.
VALUES = ("static", "sizes", "bucket")


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

    @property
    def parts(self) -> list[str]:
        """What tells it from the keys of all programs."""
        return [self.op, self.script, self.hash]


@dataclass(frozen=True)
class Measured:
    """One config's outcome: ok with times in milliseconds, or another status with a reason.

    ``low`` and ``high`` are quartiles. ``where`` names the device or rank. ``noisy``: the rounds
    were disturbed, also when they were measured again; ``sure``: rounds with the default show that
    it is faster. Statuses: ok, compile_error, shared_memory, wrong_result, illegal_access, timeout,
    error.
    """

    status: str
    latency: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    reason: str = ""
    where: str = ""
    noisy: bool = False
    sure: bool = False

    @property
    def is_right(self) -> bool:
        """Whether the config gave the right result and has a time."""
        return self.status == "ok" and self.latency is not None

    def summary(self, most: int | None = None) -> str:
        """The status, and ``most`` characters of the first line of its reason."""
        reason = self.reason.strip().partition("\n")[0][:most]
        return f"{self.status}: {reason}" if reason else self.status


@dataclass(frozen=True)
class Row(Measured):
    """A recorded measurement.

    ``digest`` is that of the program traced under ``config``; ``check`` tells what its results were
    compared with (see ``TuningOptions.check_identity``).
    """

    config: Config = field(default_factory=dict)
    digest: str = ""
    check: str = ""
    time: float = field(default_factory=time.time, compare=False)

    @property
    def measured(self) -> Measured:
        """The measurement without what it is a measurement of."""
        return Measured(**{f.name: getattr(self, f.name) for f in fields(Measured)})


@dataclass(frozen=True)
class TuningResult:
    """The config to run; ``latency`` in milliseconds, None where it was not tuned.

    ``digest`` is that of its program and ``space`` that of the configs that it was chosen from;
    ``check`` and ``noisy`` as in ``Row``. It is not ``complete`` if a budget ended before all of
    the space was measured.
    """

    config: Config
    latency: float | None = None
    digest: str = ""
    space: str = ""
    ref_latency: float | None = None
    check: str = ""
    noisy: bool = False
    complete: bool = True


@dataclass(frozen=True)
class Answer:
    """What measuring some configs gave: outcomes by name, and the right ones, fastest first."""

    outcomes: Mapping[str, Measured]
    ranking: Sequence[str]

    @classmethod
    def of(cls, found: Mapping[str, Measured]) -> Answer:
        """``found``, ranked by time."""
        times = {name: m.latency for name, m in found.items() if m.latency is not None}
        return cls(dict(found), sorted(times, key=lambda name: times[name]))


@dataclass
class _Kept:
    """What this process keeps of a tuning: what cannot be written, and whether it chose."""

    rows: list[Row] = field(default_factory=list)
    best: TuningResult | None = None
    has_chosen: bool = False


class _Holding(threading.local):
    """How many tunings this thread is alone in."""

    depth = 0


_Recorded = TypeVar("_Recorded", Row, TuningResult)

_kept: dict[tuple[str, ...], _Kept] = {}
_holding = _Holding()
# Tuning anew ignores what is older than this process, and choices that are not its own.
_STARTED_S = time.time()


class Record:
    """The files of one tuning; what cannot be written is kept in memory."""

    def __init__(self, key: TuningKey) -> None:
        self.key = key
        now = settings.current()
        self.directory = None if now.tune_cache_disable else resolve(now).private
        self.folder: Path | None = None
        if self.directory is not None:
            script = scripts.Script(key.op, key.script).folder(self.directory)
            self.folder = script / "tuning" / key.hash
        self._kept = _kept.setdefault((str(self.folder or ""), *key.parts), _Kept())
        self._is_anew = now.tune_again

    @contextmanager
    def alone(self, seconds: float) -> Iterator[None]:
        """One tuning of the key at a time, among threads and processes."""
        # A timer may call another tuned program. Two keys may share a lock file, and a process that
        # holds it would wait for itself.
        locks = None if self.directory is None or _holding.depth else self.directory.locks
        # Its lock file is not that of a program, whose name begins with a digit of a hash: a tuning
        # waits for processes that compile programs.
        name = "t" + hashlib.sha256(json.dumps(self.key.parts).encode()).hexdigest()
        with alone(name, locks, seconds) as problem:
            if problem is not None:
                log.warn_once("cache", f"tuning without its lock: {problem}")
            _holding.depth += 1
            try:
                yield
            finally:
                _holding.depth -= 1

    def rows(self) -> list[Row]:
        """Every measurement, oldest first; lines that are torn or not understood are left out."""
        rows = [*([] if self.folder is None else read_rows(self.folder)), *self._kept.rows]
        return [row for row in rows if row.time >= _STARTED_S] if self._is_anew else rows

    def best(self) -> TuningResult | None:
        """The winner so far, None where there is none that can be read."""
        if self._is_anew and not self._kept.has_chosen:
            return None
        return self._kept.best or (None if self.folder is None else read_best(self.folder))

    def append(self, rows: Sequence[Row]) -> None:
        """Keep measurements: one write, one line each. Only warns where that cannot be written."""
        text = "".join(json.dumps(plain(asdict(row)), sort_keys=True) + "\n" for row in rows)

        def write(folder: Path, directory: Directory) -> None:
            _replace(directory, folder / KEY, {"op": self.key.op, **self.key.facts})
            _append_lines(folder / ROWS, text.encode())

        if rows and not self._written(write):
            self._kept.rows.extend(rows)

    def choose(self, best: TuningResult) -> None:
        """Make ``best`` the winner."""
        times = {"latency": best.latency, "ref_latency": best.ref_latency, "noisy": best.noisy}

        def write(folder: Path, directory: Directory) -> None:
            _replace(directory, folder / BEST, {"format": FORMAT, **plain(asdict(best))})
            _replace(directory, folder / LATENCY, times)
            write_table(directory, folder.parent.parent)

        self._kept.best = None if self._written(write) else best
        self._kept.has_chosen = True

    def _written(self, write: Callable[[Path, Directory], None]) -> bool:
        if self.folder is None or self.directory is None:
            return False
        try:
            make_directories(self.folder)
            write(self.folder, self.directory)
        except OSError as error:
            log.warn_once(
                "cache",  # with the cache's own troubles: a broken disk is one warning
                f"tuning results cannot be kept in {self.folder}, only in this process: {error}",
            )
            return False
        return True


def _append_lines(path: Path, lines: bytes) -> None:
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
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


def merge_rows(folder: Path, lines: bytes) -> None:
    """Add the lines of another machine's measurements that are not there yet. Raises OSError."""
    path = folder / ROWS
    known = set(_content(path).splitlines())
    fresh = [line + b"\n" for line in lines.splitlines() if line and line not in known]
    if fresh:
        _append_lines(path, b"".join(fresh))


def read_rows(folder: Path) -> list[Row]:
    """The measurements in a tuning's folder, oldest first."""
    lines = _content(folder / ROWS).decode("utf-8", errors="replace").splitlines()
    return [row for line in lines if (row := _sound(Row, _parsed(line))) is not None]


def _content(path: Path) -> bytes:
    """The bytes of a plain file, none of anything else."""
    try:
        return read_file(path)
    except (OSError, UntrustedError):
        return b""


def _parsed(text: str | bytes) -> dict[str, Any] | None:
    """A JSON object from a text that may be anyone's."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _sound(kind: type[_Recorded], content: dict[str, Any] | None) -> _Recorded | None:
    """The record with these fields, if each holds what its annotation says."""
    try:
        record = kind(**content or {})
    except TypeError:
        return None
    is_sound = all(_CHECKS[str(f.type)](getattr(record, f.name)) for f in fields(kind))
    return record if is_sound else None


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def _depth_fits(value: object, depth: int) -> bool:
    """Whether a value has at most ``depth`` levels: what reads it is recursive."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_depth_fits(v, depth - 1) for v in inside)


_CHECKS: dict[str, Callable[[object], bool]] = {
    "Config": lambda value: isinstance(value, dict) and _depth_fits(value, 64),
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int,
    "float": _is_time,
    "float | None": lambda value: value is None or _is_time(value),
}


def read_best(folder: Path) -> TuningResult | None:
    """The winner in a tuning's folder; None where it is missing or damaged."""
    content = read_json(folder / BEST)
    if content is None or content.pop("format", None) != FORMAT:
        return None
    found = _sound(TuningResult, content)
    return None if found is None or found.latency is None else found


def read_key(folder: Path) -> dict[str, Any]:
    """The facts of a tuning's key, for people; what is damaged is left out."""
    content = read_json(folder / KEY) or {}
    return {n: v for n, v in content.items() if n not in VALUES or isinstance(v, dict)}


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file, None where there is none."""
    return _parsed(_content(path))


def write_table(directory: Directory, script: Path) -> None:
    """Write the choices of one script as a table for people. Raises OSError."""
    lines = [["device", "sizes", "bucket", "arguments", "milliseconds", "config"]]
    for folder in children(script / "tuning"):
        best, key = read_best(folder), read_key(folder)
        if best is not None:
            static, sizes, bucket = (words(key.get(name)) for name in VALUES)
            time = milliseconds(best.latency, best.noisy)
            lines.append(
                [str(key.get("device", "?")), sizes, bucket, static, time, words(best.config)]
            )
    staging.place(directory, script / "tuning" / TABLE, scripts.aligned(lines).encode())


def milliseconds(latency: float | None, noisy: bool) -> str:
    """A time for people, with what is to be thought of it; ``-`` for none."""
    return "-" if latency is None else f"{latency:.5g}" + (" (noisy)" if noisy else "")


def words(values: object) -> str:
    """A mapping in one line for people, ``-`` for an empty one."""
    if not isinstance(values, Mapping) or not values:
        return "-"
    return " ".join(f"{name}={value}" for name, value in values.items())


def _replace(directory: Directory, path: Path, content: Mapping[str, Any]) -> None:
    staging.place(directory, path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())

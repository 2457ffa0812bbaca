"""``tools.cuda.iket``: markers in programs. They are listed and put nothing into a kernel.

A session is an NVTX range on a machine with a GPU, so that profilers show what ran in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tileops.errors import ArgumentError

__all__ = [
    "PayloadSpec", "disable", "disable_runtime_payloads", "enable", "enable_runtime_payloads",
    "event_table", "is_enabled", "mark", "output_dir", "output_path", "payload", "range",
    "range_end", "range_pop", "range_push", "range_start", "reset", "runtime_payloads_enabled",
    "session", "set_output_dir", "trace_files",
]  # fmt: skip


@dataclass(frozen=True)
class PayloadSpec:
    """A value of the program that goes with a marker; it is not recorded."""

    expr: object
    dtype: str | None = None


@dataclass
class _State:
    events: dict[tuple[str, str], int] = field(default_factory=dict)
    open_ranges: list[str] = field(default_factory=list)
    folder: Path | None = None
    is_on: bool = False
    has_payloads: bool = False


_state: ContextVar[_State] = ContextVar("_state")


def _current() -> _State:
    try:
        return _state.get()
    except LookupError:
        _state.set(made := _State())
        return made


def _note(name: str, kind: str) -> None:
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"a marker: expected a name, got {name!r}")
    events = _current().events
    events.setdefault((name, kind), len(events) + 1)


def reset() -> None:
    """Forget all markers and open ranges."""
    state = _current()
    state.events.clear()
    state.open_ranges.clear()


def event_table() -> list[dict[str, int | str]]:
    """The markers that programs were traced with since the last ``reset``."""
    return [{"id": n, "name": name, "kind": kind} for (name, kind), n in _current().events.items()]


def payload(expr: object, dtype: str | None = None) -> PayloadSpec:
    """A value to go with a marker. It is accepted and not recorded."""
    return PayloadSpec(expr, dtype)


def mark(name: str, payload: object = None) -> None:
    """A point of the program by name."""
    _note(name, "mark")


def range_push(name: str, payload: object = None) -> None:
    """Begin a named part of the program; ``range_pop`` ends it."""
    _note(name, "range")
    _current().open_ranges.append(name)


def range_pop(name: str | None = None) -> None:
    """End the part that began last; ArgumentError for another name, or where none is open."""
    ranges = _current().open_ranges
    if not ranges or name not in (None, ranges[-1]):
        raise ArgumentError(f"range_pop({name!r}): open ranges are {ranges}")
    ranges.pop()


range_start, range_end = range_push, range_pop


@contextlib.contextmanager
def range(name: str, payload: object = None) -> Iterator[None]:
    """A named part of the program, as a ``with`` block."""
    range_push(name, payload)
    try:
        yield
    finally:
        range_pop(name)


def enable(*, override: bool = True) -> None:
    """Accepted; markers are always listed."""
    _current().is_on = True


def disable(*, restore: bool = True) -> None:
    """The reverse of ``enable``."""
    _current().is_on = False


def is_enabled() -> bool:
    """True between ``enable`` and ``disable``, and within a session."""
    return _current().is_on


def enable_runtime_payloads() -> None:
    """Accepted; values are not recorded."""
    _current().has_payloads = True


def disable_runtime_payloads() -> None:
    """The reverse of ``enable_runtime_payloads``."""
    _current().has_payloads = False


def runtime_payloads_enabled() -> bool:
    """What was asked for last."""
    return _current().has_payloads


def set_output_dir(path: str | os.PathLike[str] | None) -> Path | None:
    """The folder that ``output_path`` and ``trace_files`` use."""
    _current().folder = None if path is None else Path(path)
    return _current().folder


def output_dir(default: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder that was set, else ``default``."""
    return _current().folder or (None if default is None else Path(default))


def output_path(name: str, *, directory: str | os.PathLike[str] | None = None) -> Path:
    """A file in the folder, which is made. ArgumentError without a folder."""
    folder = Path(directory) if directory is not None else output_dir()
    if folder is None:
        raise ArgumentError("output_path: give directory=..., or set_output_dir(...) before")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def trace_files(*, directory: str | os.PathLike[str] | None = None) -> list[Path]:
    """The traces that another profiler wrote into the folder (``*.json``)."""
    folder = Path(directory) if directory is not None else output_dir()
    return sorted(folder.rglob("*.json")) if folder is not None and folder.is_dir() else []


@contextlib.contextmanager
def session(
    *,
    output_dir: str | os.PathLike[str] | None = None,
    runtime_payloads: bool = False,
    **options: Any,  # noqa: ANN401
) -> Iterator[None]:
    """Markers of their own within a ``with`` block, which is an NVTX range on a GPU machine."""
    folder = None if output_dir is None else Path(output_dir)
    token = _state.set(_State(folder=folder, is_on=True, has_payloads=runtime_payloads))
    try:
        with torch.cuda.nvtx.range("iket.session") if _has_gpu() else contextlib.nullcontext():
            yield
    finally:
        _state.reset(token)


def _has_gpu() -> bool:
    return torch.version.hip is None and torch.cuda.is_available()

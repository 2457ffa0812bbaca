"""The line that a person sees while a tuning runs: the count, the best, and the time left."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

from tileops import log

_TICK_S = 0.2
_WHEEL = "|/-\\"


class Bar:
    """A moving line where stderr is a terminal, and one log line at the end.

    It also moves while a config runs: a thread draws it several times a second.
    """

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._seen: set[str] = set()
        self._best: tuple[float, str] | None = None
        self._guard = threading.Lock()
        self._start_s = time.monotonic()
        self._ended = threading.Event()
        self._stream = _terminal()
        self._drawer: threading.Thread | None = None

    def tell(self, name: str, latency: float | None, config: str) -> None:
        """Something is known of a config: its milliseconds, None for one that failed."""
        with self._guard:
            if latency is not None and (self._best is None or latency < self._best[0]):
                self._best = (latency, config)
            self._seen.add(name)

    def text(self, tick: int, seconds: float) -> str:
        """The line after ``seconds``."""
        with self._guard:
            count, best = len(self._seen), self._best
        parts = [f"{_WHEEL[tick % len(_WHEEL)]} tune {self._title}: {count} of {self._total}"]
        if count < self._total:
            left = "" if count == 0 else f", {_clock(seconds / count * (self._total - count))} left"
            parts.append(f"configs, {_clock(seconds)}{left}")
        else:
            parts.append(f"configs, {_clock(seconds)}, timing the best of them")
        if best is not None:
            parts.append(f"best {best[0]:.4g} ms: {best[1]}")
        return "; ".join([" ".join(parts[:2]), *parts[2:]])

    def _draw(self, stream: TextIO) -> None:
        tick = 0
        while not self._ended.wait(_TICK_S):
            width = shutil.get_terminal_size().columns - 1
            line = self.text(tick, time.monotonic() - self._start_s)
            if not _written(stream, f"\r{line[:width]}\x1b[K"):
                return
            tick += 1

    def __enter__(self) -> Bar:
        if self._stream is not None:
            self._drawer = threading.Thread(
                target=self._draw, args=(self._stream,), name="tileops-tune-line", daemon=True
            )
            self._drawer.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._ended.set()
        if self._drawer is not None and self._stream is not None:
            self._drawer.join()
            _written(self._stream, "\r\x1b[K")
        found = "none is right" if self._best is None else f"{self._best[0]:.4g} ms {self._best[1]}"
        log.emit("tune", f"tune {self._title}: {len(self._seen)} of {self._total} configs; {found}")


def _written(stream: TextIO, text: str) -> bool:
    """Whether the terminal is still there and took the text."""
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def _terminal() -> TextIO | None:
    """Stderr where it is a terminal."""
    try:
        return sys.stderr if sys.stderr.isatty() else None
    except (AttributeError, ValueError):  # None, or closed
        return None

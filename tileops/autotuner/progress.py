"""The line that a person sees while a tuning runs: the count, the best, and the time left."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import suppress
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
        text = f"{_WHEEL[tick % len(_WHEEL)]} tune {self._title}: {count} of {self._total} configs"
        text += f", {_clock(seconds)}"
        if count == self._total:
            text += ", timing the best of them"
        elif count > 0:
            text += f", {_clock(seconds / count * (self._total - count))} left"
        return text if best is None else f"{text}; best {best[0]:.4g} ms: {best[1]}"

    def _draw(self, stream: TextIO) -> None:
        tick = 0
        with suppress(OSError, ValueError):  # the terminal is gone
            while not self._ended.wait(_TICK_S):
                width = shutil.get_terminal_size().columns - 1
                line = self.text(tick, time.monotonic() - self._start_s)
                stream.write(f"\r{line[:width]}\x1b[K")
                stream.flush()
                tick += 1
            stream.write("\r\x1b[K")
            stream.flush()

    def __enter__(self) -> Bar:
        if _is_terminal():
            self._drawer = threading.Thread(
                target=self._draw, args=(sys.stderr,), name="tileops-tune-line", daemon=True
            )
            self._drawer.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._ended.set()
        if self._drawer is not None:
            self._drawer.join()
        found = "none is right" if self._best is None else f"{self._best[0]:.4g} ms {self._best[1]}"
        log.emit("tune", f"tune {self._title}: {len(self._seen)} of {self._total} configs; {found}")


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def _is_terminal() -> bool:
    """Whether stderr is one; it may be None, or closed."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False

"""Owns what a person sees while a tuning runs: a bar with the best so far and the time left."""

from __future__ import annotations

import importlib
import sys
import threading
from types import TracebackType
from typing import Any

from tileops import log


class Bar:
    """A tqdm bar where tqdm is there and stderr is a terminal; in every case one log line at last.

    tqdm itself shows the time left.
    """

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._seen: set[int] = set()
        self._best: tuple[float, str] | None = None
        self._guard = threading.Lock()
        self._bar: Any = _make_bar(title, total)

    def tell(self, number: int, latency: float | None, config: str) -> None:
        """Something is known of config ``number``: its milliseconds, None for one that failed."""
        with self._guard:
            if latency is not None and (self._best is None or latency < self._best[0]):
                self._best = (latency, config)
            is_new = number not in self._seen
            self._seen.add(number)
            if self._bar is not None:
                if self._best is not None:
                    self._bar.set_postfix_str(f"best {self._best[0]:.4g} ms: {self._best[1]}")
                self._bar.update(int(is_new))

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        found = "none is right" if self._best is None else f"{self._best[0]:.4g} ms {self._best[1]}"
        log.emit("tune", f"tune {self._title}: {len(self._seen)} of {self._total} configs; {found}")


def _make_bar(title: str, total: int) -> Any:  # noqa: ANN401
    try:
        if not sys.stderr.isatty():
            return None
    except (AttributeError, ValueError):  # None, or closed
        return None
    try:
        tqdm = importlib.import_module("tqdm")
    except ImportError:
        return None
    return tqdm.tqdm(total=total, desc=f"tune {title}", unit="config", leave=False, mininterval=0.2)

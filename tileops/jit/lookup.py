"""The lines of the log topic ``cache``: where look-ups of programs ended, and why they missed."""

from __future__ import annotations

import time
from collections.abc import Callable

from tileops import log
from tileops.target import Target

_DIGITS = 12


class LookUp:
    """One look-up from now on. It costs nothing where nobody asked for the topic."""

    def __init__(self, op: str, target: Target) -> None:
        self._op = op
        self._target = target
        self._is_wanted = log.is_wanted("cache")
        self._start = time.perf_counter()

    def hit(self, layer: str, name: str) -> None:
        """It was found in ``layer`` (memory, disk, bundle) under the hash ``name``."""
        if self._is_wanted:
            log.emit("cache", f"hit {self._head} layer={layer} {self._time} {name[:_DIGITS]}")

    def miss(self, name: str | None, why: Callable[[], str]) -> None:
        """It is nowhere; ``name`` is None where its hash could not be computed."""
        if self._is_wanted:
            known = "key unknown" if name is None else name[:_DIGITS]
            taken = self._time  # before the reason is looked for
            log.emit("cache", f"miss {self._head} {taken} {known} ({why()})")

    @property
    def _head(self) -> str:
        return f"{self._op} {self._target}"

    @property
    def _time(self) -> str:
        return f"{(time.perf_counter() - self._start) * 1e3:.1f} ms"

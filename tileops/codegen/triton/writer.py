"""Owns the lines of a kernel being written.

Indentation, the prologue, and which statement each came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_INDENT = "    "


class Writer:
    """Collects lines. ``statement`` is the number of the IR statement that lines come from."""

    def __init__(self) -> None:
        self._prologue: list[str] = []
        self._body: list[tuple[str, int | None]] = []
        self._depth = 1
        self.statement: int | None = None

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self._body.append((_INDENT * self._depth + text, self.statement))

    def prologue(self, text: str) -> None:
        """Append a line to the head of the kernel, before everything else."""
        self._prologue.append(_INDENT + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A nested block under ``head``; an empty one gets ``pass``."""
        self.line(head)
        self._depth += 1
        before = len(self._body)
        try:
            yield
        finally:
            if len(self._body) == before:
                self.line("pass")
            self._depth -= 1

    def finish(self) -> list[tuple[str, int | None]]:
        """All lines with their statement numbers, the prologue first."""
        lines: list[tuple[str, int | None]] = [(text, None) for text in self._prologue]
        lines += self._body
        return lines or [(_INDENT + "pass", None)]

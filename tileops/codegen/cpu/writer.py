"""Owns the text under construction: indented lines, and which statement each line came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects lines; ``statement`` is the number recorded for those written while it is set."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.statements: dict[int, int] = {}
        self.statement: int | None = None
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self.lines.append("  " * self._depth + text if text else "")
        if self.statement is not None:
            self.statements[len(self.lines)] = self.statement

    def flush_left(self, text: str) -> None:
        """Append a line without indentation (preprocessor lines)."""
        self.lines.append(text)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """``head {`` ... ``}`` with the lines between one level deeper."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def fresh(self, stem: str) -> str:
        """A local name that no other line uses."""
        self._names += 1
        return f"{stem}{self._names}"

    def text(self) -> str:
        """All lines, each with its end."""
        return "\n".join(self.lines) + "\n"

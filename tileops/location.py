"""Source locations: a program's file, line and column, for error messages."""

from __future__ import annotations

import linecache
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol


def printable(text: str) -> str:
    """``text`` with bytes of a path that are no UTF-8, which no encoding has, in hexadecimal."""
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates of another origin
        data = text.encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "backslashreplace")


# A chain of macros that is longer is shown by its ends.
_SHOWN_CALLS = 8


@dataclass(frozen=True)
class Location:
    """A place in a user's program. ``column`` is 0-based, -1 where unknown.

    ``calls`` are the macros that the place stands in, the innermost first, each with the place of
    its call.
    """

    file: str
    line: int
    column: int = -1
    end_column: int = -1
    calls: tuple[tuple[str, Location], ...] = ()

    @property
    def place(self) -> str:
        """``file:line``, as text that can be written anywhere."""
        return printable(f"{self.file}:{self.line}")

    @property
    def outermost(self) -> Location:
        """The place in the program itself: of the call, where this one stands in a macro."""
        return self.calls[-1][1] if self.calls else self

    def text(self) -> str:
        """The source line, stripped of its newline; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def render(self) -> str:
        """``file:line`` followed by the line's text and a caret under the column.

        For a place in a macro, then the same for each call that led there.
        """
        shown = [(name, place._render_alone()) for name, place in self.calls]
        if len(shown) > _SHOWN_CALLS:
            half = _SHOWN_CALLS // 2
            between = ("", f"... {len(shown) - 2 * half} calls more ...")
            shown = [*shown[:half], between, *shown[-half:]]
        lines = [f"in the macro `{n}`, called at {at}" if n else at for n, at in shown]
        return "\n".join([self._render_alone(), *lines])

    def _render_alone(self) -> str:
        head = self.place
        source = printable(self.text())
        if not source.strip():
            return head
        stripped = source.lstrip()
        shift = len(source) - len(stripped)
        out = f"{head}\n    {stripped}"
        if self.column >= shift:
            width = max(1, self.end_column - self.column) if self.end_column > self.column else 1
            width = min(width, max(1, len(source) - self.column))
            out += "\n    " + " " * (self.column - shift) + "^" * width
        return out


_PACKAGE = str(Path(__file__).parent) + os.sep


def location_of_caller() -> Location | None:
    """The line outside the package that runs now; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else Location(frame.f_code.co_filename, frame.f_lineno)


class Traced(Protocol):
    """A trace: ``location`` is the statement that it is at."""

    location: Location | None


traced: ContextVar[Traced | None] = ContextVar("tileops_traced", default=None)


def here() -> Location | None:
    """The statement being traced in this thread; None outside a trace."""
    trace = traced.get()
    return None if trace is None else trace.location

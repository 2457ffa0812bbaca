"""Owns source locations: a program's file, line and column, for error messages."""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


@dataclass(frozen=True)
class Location:
    """A place in a user's program. ``column`` is 0-based, -1 where unknown."""

    file: str
    line: int
    column: int = -1
    end_column: int = -1

    def text(self) -> str:
        """The source line, stripped of its newline; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def render(self) -> str:
        """``file:line`` followed by the line's text and a caret under the column."""
        head = f"{self.file}:{self.line}"
        source = self.text()
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

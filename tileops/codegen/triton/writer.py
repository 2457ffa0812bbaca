"""The lines and names of a kernel being written."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager

_INDENT = "    "
# What generated code itself uses; Triton also gives meaning to some builtins.
_RESERVED = {
    "tl", "triton", "libdevice", *keyword.kwlist,
    "range", "min", "max", "abs", "float", "int", "bool", "print", "len", "sum",
}  # fmt: skip


def _identifier(name: str) -> str:
    """``name`` with everything that Python does not allow in a name replaced."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII).strip()
    return f"v_{text}" if not text or text[0].isdigit() or text.startswith("__") else text


def entry_name(wanted: str) -> str:
    """A name for a function of the module close to ``wanted``."""
    # Names that begin with ``_`` belong to the module's own functions, and PTX has no name ``_``.
    base = _identifier(wanted)
    return f"kernel_{base}" if base in _RESERVED or base.startswith("_") else base


class Names:
    """Gives out names of one kernel; a second use of a name gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def fresh(self, wanted: str) -> str:
        """A valid name close to ``wanted`` that nothing else in the kernel has."""
        base = _identifier(wanted)
        if base in _RESERVED:
            base += "_"
        name, n = base, 1
        while name in self._taken:
            name = f"{base}_{n}"
            n += 1
        self._taken.add(name)
        return name


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
        return lines + self._body or [(_INDENT + "pass", None)]

"""Owns watching the IR on its way: passes tell what they made, and who listens gets it as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tileops.ir.printer import print_program
from tileops.ir.program import Program


@dataclass
class Dumps:
    """Texts by pass, in the order in which the passes ran."""

    texts: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        """Append the text of a pass; ``name`` is a verb phrase such as ``lower_escapes``."""
        self.texts.append((name, text))


_listener: ContextVar[Dumps | None] = ContextVar("tileops_dumps", default=None)


@contextmanager
def collecting() -> Iterator[Dumps]:
    """Listen to the passes that run in this context while the block runs."""
    dumps = Dumps()
    token = _listener.set(dumps)
    try:
        yield dumps
    finally:
        _listener.reset(token)


def after(name: str, program: Program) -> Program:
    """Tell a listener what pass ``name`` made; nothing is printed where nobody listens."""
    dumps = _listener.get()
    if dumps is not None:
        dumps.add(name, print_program(program))
    return program

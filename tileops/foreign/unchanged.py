"""Whether the kernels of a program still read the values that they read at its first trace."""

from __future__ import annotations

from tileops.errors import ProgramValueError
from tileops.foreign.registry import kept
from tileops.ir.extern import Extern
from tileops.ir.program import Program

_OF_PYTHON = ("triton", "gluon")


class FirstParts:
    """What each kernel of one program was made of when a trace first met it.

    Code that was made then goes on running, so a later trace must not mix it with other code.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[object, Extern]] = {}

    def require_same(self, program: Program) -> None:
        """ProgramValueError, naming the value or function, where a kernel's parts have changed."""
        for extern in program.externs:
            if extern.language not in _OF_PYTHON:
                continue
            function = kept(extern.digest)
            _, first = self._found.setdefault(id(function), (function, extern))
            if first.parts != extern.parts:
                raise _changed(program.name, first, extern)


def _changed(program: str, first: Extern, now: Extern) -> ProgramValueError:
    before, after = dict(first.parts), dict(now.parts)
    names = [n for n in dict.fromkeys((*before, *after)) if before.get(n) != after.get(n)]
    # What uses the changed one has another digest too.
    values = [n for n in names if n.startswith("value ")]
    used = [n for n in names if n != first.parts[0][0]]
    name = (values or used or names)[0]
    kind, _, plain = name.partition(" ")
    texts = [parts.get(name, "nothing") for parts in (before, after)]
    expected, found = texts if kind == "value" else ("the one of the first trace", "another one")
    return ProgramValueError(
        f"op {program}: the {kind} `{plain}`, which the foreign kernel {now.name} uses, has "
        "changed since the program was first traced; define the kernel and the program again",
        location=now.loc,
        expected=expected,
        found=found,
    )

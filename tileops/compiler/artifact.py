"""The result of a compile: files, and per launch what a loader needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tileops.errors import ToolchainError
from tileops.location import Location


@dataclass(frozen=True)
class LaunchImage:
    """One compiled launch.

    ``image`` names its file in ``Artifact.files``, ``entry`` the symbol in it. ``hidden`` are
    pointers that the compiler appended after the declared parameters ("global_scratch",
    "profile_scratch"); ``global_scratch_bytes`` is what one block needs of the first. ``spills``
    is local memory in bytes per thread (0 where everything stayed in registers). ``tensormaps``
    describe host-made descriptors. ``more_threads`` are the second and third extent of a block;
    ``types`` those of the parameters where the machine code decides them.
    """

    image: str
    entry: str
    threads: int
    shared_bytes: int
    hidden: tuple[str, ...] = ()
    global_scratch_bytes: int = 0
    registers: int = 0
    spills: int = 0
    tensormaps: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    more_threads: tuple[int, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class Artifact:
    """Compiled bytes and metadata, not loaded."""

    files: dict[str, bytes]
    launches: tuple[LaunchImage, ...]


class StageError(ToolchainError):
    """A compiler refused generated code, or a foreign kernel.

    ``statement`` is the IR statement's number, or None. ``expected`` and ``found`` are shown on
    lines of their own where given, as those of a ProgramError.
    """

    def __init__(
        self,
        message: str,
        statement: int | None = None,
        *,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        self.statement = statement
        lines = [("expected: ", expected), ("found:    ", found)]
        self.message = "\n".join([message, *(f"  {n}{v}" for n, v in lines if v is not None)])
        super().__init__(self.message)

    def at(self, lines: Mapping[int, Location]) -> StageError:
        """The error with the program's line, where ``lines`` has its statement."""
        found = None if self.statement is None else lines.get(self.statement)
        if found is None:
            return self
        where = found.render().replace("\n", "\n  ")
        return type(self)(f"{self.message}\n  from {where}", self.statement)

    def of_launch(self, program: str, place: Location | None) -> StageError:
        """The error of a foreign launch, with its program and the line that launches it."""
        where = "" if place is None else "\n  at " + place.render().replace("\n", "\n  ")
        return type(self)(f"op {program}: {self.message}{where}", self.statement)


class OneError(StageError):
    """Triton refused a foreign kernel some of whose arguments are assumed to be 1."""


class PlaceError(ToolchainError):
    """A compiler failed for a reason that its folder may have: no room, no permission, no file."""

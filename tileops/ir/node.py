"""The base of all statement nodes: what a statement declares of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypedDict

from tileops.location import Location

Body = tuple["Stmt", ...]


class Provenance(TypedDict):
    """Where a statement came from, as keyword arguments of the statement that replaces it."""

    loc: Location | None
    origin: int | None


@dataclass(frozen=True)
class Stmt:
    """Base of all statements.

    ``loc`` is the line of the program. ``origin`` is the number of the traced statement that this
    one is, or was made from: its place in program order, from 0. Neither takes part in equality,
    hashing or the printed text.

    What a statement declares in class variables, all of them names of fields: ``BODIES`` are the
    nested statement lists. ``DEFINES`` are the variables and buffers that it brings into being, for
    its bodies if it has any, else for what follows. ``READS`` and ``WRITES`` are the buffers and
    regions that it reads and writes, besides the elements that its expressions load; where a value
    decides, ``reads`` and ``writes`` are overridden. ``DTYPES`` gives expressions the dtype that
    they must have, or the field that has it. ``TEXT`` formats the statement's line.
    """

    BODIES: ClassVar[tuple[str, ...]] = ()
    DEFINES: ClassVar[tuple[str, ...]] = ()
    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ()
    DTYPES: ClassVar[Mapping[str, str]] = {}
    TEXT: ClassVar[str] = ""

    loc: Location | None = field(default=None, compare=False, repr=False, kw_only=True)
    origin: int | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def provenance(self) -> Provenance:
        """What a statement made from this one takes over: ``Store(..., **stmt.provenance)``."""
        return {"loc": self.loc, "origin": self.origin}

    def reads(self) -> tuple[str, ...]:
        """The fields whose buffers the statement reads."""
        return self.READS

    def writes(self) -> tuple[str, ...]:
        """The fields whose buffers the statement writes."""
        return self.WRITES

    @property
    def is_tile_operation(self) -> bool:
        """True for an operation on whole regions, which cannot be in a parallel nest."""
        return False

    def text(self) -> str:
        """The canonical text of one line, without the bodies."""
        return self.TEXT.format(self)

    def faults(self) -> Iterator[str]:
        """The rules of the node that it breaks; the rules of its operands are their own."""
        return iter(())

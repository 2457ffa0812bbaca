"""What a role does to barriers and shared memory, step by step, and the faults found in it.

A role is a list of events. A new kind of step is new events, or known ones in another order: a
named barrier is a ``Wait`` and an ``Arrive``, several producers are several lists, ``cp.async`` is
a ``Write`` whose landing arrives.
"""

from __future__ import annotations

from typing import NamedTuple

from tileops.ir.node import Stmt

# A barrier: its name and its slot. A place: a buffer's id, its slot, and the group whose part of an
# exchanged slot it is.
Key = tuple[str, int]
Place = tuple[int, int, int]


class Where(NamedTuple):
    """One execution of a step: the role, the iterations around it, the ring and its round."""

    role: str
    stmt: Stmt
    trips: tuple[tuple[str, int], ...]
    ring: str = ""
    round: int = 0

    def __str__(self) -> str:
        line = "" if self.stmt.loc is None else f" (line {self.stmt.loc.line})"
        trips = "".join(f", {name} = {value}" for name, value in self.trips)
        ring = f", round {self.round} of {self.ring}" if self.ring else ""
        return f"role {self.role}, step `{self.stmt.text()}`{line}{ring}{trips}"


class Fault(Exception):
    """A fault of a schedule: what is wrong, and the step that shows it if one does."""

    def __init__(self, what: str, where: Where | None = None) -> None:
        super().__init__(what if where is None else f"{where}: {what}")
        self.where = where


class Wait(NamedTuple):
    """The role goes on when the phase of ``parity`` has completed."""

    where: Where
    barrier: Key
    parity: int


class Arrive(NamedTuple):
    """One arrival, which first adds ``bytes`` to those that the phase waits for."""

    where: Where
    barrier: Key
    bytes: int = 0


class Write(NamedTuple):
    """An asynchronous copy starts; when it lands, ``bytes`` fewer are missing from ``barrier``."""

    where: Where
    place: Place
    round: int
    barrier: Key
    bytes: int


class Put(NamedTuple):
    """The role writes to ``place``, and has done so when it goes on."""

    where: Where
    place: Place
    round: int


class Read(NamedTuple):
    """Product number ``product`` of ``group`` starts to read what round ``round`` wrote."""

    where: Where
    place: Place
    round: int
    group: int
    product: int


class End(NamedTuple):
    """The first ``products`` products of ``group`` have ended."""

    where: Where
    group: int
    products: int


Event = Wait | Arrive | Write | Put | Read | End

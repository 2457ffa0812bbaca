"""The model of the barrier in shared memory: PTX ISA, "Parallel Synchronization: mbarrier".

An mbarrier object has a phase, the number of arrivals that its phases expect, the arrivals that the
current phase still misses (*pending count*) and the bytes that it misses (*tx-count*). A phase
completes when both are zero; the next one begins at once with all arrivals pending.
``mbarrier.arrive.expect_tx`` adds bytes and arrives. An asynchronous copy that lands takes its
bytes off (*complete-tx*); the tx-count may be below zero before they were announced.
``mbarrier.try_wait.parity`` passes when the phase of that parity has completed: when the parity of
the current phase is another one. So a wait for parity 1 passes on a fresh barrier, as if there were
a completed phase before the first.

Arrivals release, waits acquire: a role that passes a wait knows what the arrivals of the completed
phases knew, and which copies had landed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tileops.passes.machine.events import Fault, Place, Where

# Who knows how much: how many products of a group have ended, by ("group", number), and how many
# copies into a place have landed, by the place.
Known = dict[tuple[str, int] | Place, int]


def learn(known: Known, other: Known) -> None:
    """Add to ``known`` what ``other`` has."""
    for key, value in other.items():
        if value > known.get(key, 0):
            known[key] = value


@dataclass
class Barrier:
    """One mbarrier whose phases take ``expected`` arrivals."""

    expected: int
    phase: int = 0
    missing: int = field(init=False)
    bytes: int = 0
    # What is known to all that passes a wait, and what the current phase adds to it.
    known: Known = field(default_factory=dict)
    gathered: Known = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.missing = self.expected

    def passes(self, parity: int) -> bool:
        """True if a wait for ``parity`` goes on."""
        return self.phase & 1 != parity

    def arrive(self, known: Known, announced: int, where: Where, arrivals: int = 1) -> None:
        """Arrivals by a role that has ``known``; it announces bytes first."""
        if self.missing < arrivals:
            more = "one arrival" if arrivals - self.missing == 1 else f"{arrivals - self.missing}"
            what = more if more == "one arrival" else f"{more} arrivals"
            raise Fault(f"{what} more than the {self.expected} of a phase", where)
        self.bytes += announced
        self.missing -= arrivals
        learn(self.gathered, known)
        self._complete()

    def land(self, place: Place, copies: int, landed: int) -> None:
        """The ``copies``-th copy into ``place`` has landed with so many bytes."""
        self.transfer({place: copies}, landed)

    def transfer(self, known: Known, landed: int) -> None:
        """So many bytes have landed, and with them ``known``."""
        self.bytes -= landed
        learn(self.gathered, known)
        self._complete()

    def _complete(self) -> None:
        if not self.missing and not self.bytes:
            self.phase += 1
            self.missing = self.expected
            learn(self.known, self.gathered)

    @property
    def is_half_way(self) -> bool:
        """True if the current phase has begun and not completed."""
        return self.missing != self.expected or self.bytes != 0

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.missing} arrivals and {self.bytes} bytes missing"

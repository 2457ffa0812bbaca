"""The statement nodes of programs that hand out work to groups of threads and order it themselves.

Barriers are those of PTX (mbarrier): ``tileops/passes/machine/barriers.py`` has the model. The pass
``order_roles`` puts such a launch in order; no later pass and no generator sees these nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileops.ir.expr import Buffer, Expr, integers
from tileops.ir.node import Body, Stmt
from tileops.ir.tile_operations import Copy, Gemm

# The hint of a loop whose stores are copies of elements by cp.async.
CP_ASYNC = ("copies", "later")


@dataclass(frozen=True)
class AllocBarriers(Stmt):
    """Barriers in shared memory, each with the arrivals that its phases take."""

    DEFINES = ("buffer",)
    TEXT = "barriers {0.buffer.declaration} arrivals {0.counts}"

    buffer: Buffer
    counts: tuple[int, ...]

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        if self.buffer.scope != "barrier" or self.buffer.static_shape() != (len(self.counts),):
            yield f"{self.buffer.name} is not an array of {len(self.counts)} barriers"


@dataclass(frozen=True)
class Role(Stmt):
    """``body`` is run by the threads ``first`` to ``first + count - 1`` of the block alone."""

    BODIES = ("body",)
    TEXT = "role threads {0.first} + {0.count}:"

    first: int
    count: int
    body: Body


@dataclass(frozen=True)
class BarrierStep(Stmt):
    """Base of the steps on one barrier of an array."""

    barrier: Buffer
    slot: Expr

    @property
    def name(self) -> str:
        """The barrier as it is printed."""
        return f"{self.barrier}[{self.slot}]"

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        if self.barrier.scope != "barrier":
            yield f"{self.barrier.name} is not a barrier"
        yield from integers((self.slot,), f"an index of {self.barrier.name}")


@dataclass(frozen=True)
class BarrierArrive(BarrierStep):
    """Each thread arrives once."""

    TEXT = "arrive {0.name}"


@dataclass(frozen=True)
class BarrierExpect(BarrierStep):
    """The current phase also waits for ``bytes`` bytes."""

    TEXT = "expect {0.name} bytes {0.bytes}"

    bytes: int


@dataclass(frozen=True)
class BarrierWait(BarrierStep):
    """Every thread waits until the phase of ``parity`` has completed."""

    TEXT = "wait {0.name} parity {0.parity}"

    parity: Expr


@dataclass(frozen=True)
class BarrierArriveAfterCopies(BarrierStep):
    """Each thread arrives when the copies of elements that it has started are done."""

    TEXT = "arrive after copies {0.name}"


@dataclass(frozen=True)
class NamedBarrier(Stmt):
    """Barrier ``number`` of the hardware, for ``threads`` threads; some arrive and do not wait."""

    TEXT = "named barrier {0.number} threads {0.threads} waits {0.waits}"

    number: int
    threads: int
    waits: bool


@dataclass(frozen=True)
class CopyLater(Copy):
    """A copy by TMA that one thread starts.

    The barrier that ``barrier`` and ``slot`` name counts its bytes. A copy to a tensor has none:
    ``EndStores`` waits for it.
    """

    barrier: Buffer | None = None
    slot: Expr | None = None

    def text(self) -> str:
        """The canonical text."""
        told = "" if self.barrier is None else f" on {self.barrier}[{self.slot}]"
        return f"{super().text()} later{told}"


@dataclass(frozen=True)
class GroupedCopy(Copy):
    """A copy by cp.async, a group of its own; ``EndCopies`` waits for it."""

    TEXT = "copy {0.src} -> {0.dst} grouped"


@dataclass(frozen=True)
class GemmLater(Gemm):
    """A matrix product that starts here; ``EndGemms`` waits for it."""

    def text(self) -> str:
        """The canonical text."""
        return f"{super().text()} later"


@dataclass(frozen=True)
class EndGemms(Stmt):
    """Waits until at most ``outstanding`` of the products are in flight."""

    TEXT = "end gemms but {0.outstanding}"

    outstanding: int


@dataclass(frozen=True)
class GroupCopies(Stmt):
    """The copies of elements since the last group are one."""

    TEXT = "group copies"


@dataclass(frozen=True)
class EndCopies(Stmt):
    """Waits until at most ``outstanding`` groups of copies are in flight."""

    TEXT = "end copies but {0.outstanding}"

    outstanding: int


@dataclass(frozen=True)
class EndStores(Stmt):
    """Waits until at most ``outstanding`` copies to tensors still read shared memory."""

    TEXT = "end stores but {0.outstanding}"

    outstanding: int


# Steps that threads do by themselves, also where several groups of them run one statement.
OWN_STEPS = (
    AllocBarriers, BarrierStep, NamedBarrier, CopyLater, GroupCopies, EndCopies, EndGemms, EndStores
)  # fmt: skip
STEPS = (*OWN_STEPS, GroupedCopy, GemmLater)

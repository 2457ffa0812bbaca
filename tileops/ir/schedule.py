"""How a launch runs on Hopper: rings of shared buffers, and the steps of the roles that use them.

A launch becomes two roles. The *load* role fills rings by the tensor memory accelerator (TMA); the
*math* role computes. A ring has ``depth`` slots, each with a ``full`` and an ``empty`` barrier;
each role counts the rounds of a ring that it has passed, and the count gives slot and parity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.tile_operations import Copy, Gemm


@dataclass(frozen=True)
class Descriptor:
    """What one TMA copy moves: a box of a tensor, one extent a dimension, outermost first.

    ``swizzle`` is the width in bytes of the pattern in which shared memory holds the box.
    """

    tensor: Buffer
    box: tuple[int, ...]
    swizzle: int

    @property
    def bytes(self) -> int:
        """Bytes of the whole box, which a copy moves also where it leaves the tensor."""
        return math.prod(self.box) * self.tensor.dtype.bytes

    def __str__(self) -> str:
        return f"{self.tensor} box {list(self.box)} swizzle {self.swizzle}"


@dataclass(frozen=True)
class Ring:
    """Shared buffers that one step fills together, ``depth`` times over."""

    name: str
    buffers: tuple[Buffer, ...]
    descriptors: tuple[Descriptor, ...]
    depth: int

    @property
    def bytes(self) -> int:
        """Bytes of one slot."""
        return sum(d.bytes for d in self.descriptors)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Schedule:
    """One launch as roles.

    A ``persistent`` launch has a block for each multiprocessor, which takes one after another.
    Blocks count down along the block variables ``backwards``: the longest start first.
    ``groups`` groups of ``warps`` run the math role, each with its own rows where they are several:
    from ``first_row`` on, a multiple of ``rows``. If ``by_columns``, these are columns of the one
    tile that is wide, and each group computes what else there is. ``across`` warps of a group share
    rows and divide the columns; they put first operands into ``shared`` tiles. ``staged`` are the
    descriptors of tiles that leave through shared memory. Registers are for each thread.
    """

    rings: tuple[Ring, ...]
    staged: tuple[Descriptor, ...]
    warps: int
    load: Body
    math: Body
    across: int = 1
    shared: tuple[Buffer, ...] = ()
    persistent: bool = False
    backwards: tuple[Var, ...] = ()
    groups: int = 1
    rows: int = 0
    first_row: Var | None = None
    by_columns: bool = False
    load_registers: int = 24

    @property
    def math_registers(self) -> int:
        """Registers of each thread of a group, of the 64 Ki that a multiprocessor has."""
        left = (1 << 16) - 128 * self.load_registers
        return min(240, left // (self.groups * self.warps * 32) // 8 * 8)

    @property
    def shared_bytes(self) -> int:
        """Bytes of all slots, staging tiles and barriers."""
        slots = sum(r.depth * (r.bytes + 16) for r in self.rings)
        tiles = sum(math.prod(b.static_shape() or ()) * b.dtype.bytes for b in self.shared)
        return slots + tiles + self.groups * sum(d.bytes for d in self.staged)

    def text(self) -> Iterator[str]:
        """The lines printed beneath the launch, without the roles' statements."""
        stays = "persistent " if self.persistent else ""
        across = f" {self.across} across" if self.across > 1 else ""
        across += " by columns" if self.by_columns else ""
        yield f"schedule {stays}math {self.groups} x {self.warps} warps{across}, load 1 warp:"
        for ring in self.rings:
            yield f"  ring {ring} depth {ring.depth} bytes {ring.bytes}"
            for buffer, descriptor in zip(ring.buffers, ring.descriptors, strict=True):
                yield f"    {buffer} from {descriptor}"
        for buffer in self.shared:
            yield f"  shared {buffer.declaration}"
        for descriptor in self.staged:
            yield f"  staged {descriptor}"


@dataclass(frozen=True)
class RingStep(Stmt):
    """Base of the steps on a ring's barriers."""

    ring: Ring


@dataclass(frozen=True)
class Acquire(RingStep):
    """The load role waits until the slot is empty, and announces the bytes of this round."""

    TEXT = "acquire {0.ring}"


@dataclass(frozen=True)
class Await(RingStep):
    """The math role waits until the slot is full."""

    TEXT = "await {0.ring}"


@dataclass(frozen=True)
class Release(RingStep):
    """The math role says that it has read a slot, that of ``behind`` rounds ago.

    ``when`` (a bool expression) false: there was no such round.
    """

    DTYPES: ClassVar[Mapping[str, str]] = {"when": "bool"}
    TEXT = "release {0.ring} behind {0.behind} when {0.when}"

    behind: int
    when: Expr


@dataclass(frozen=True)
class Advance(RingStep):
    """The role goes to the next round of the ring."""

    TEXT = "advance {0.ring}"


@dataclass(frozen=True)
class Fetch(Copy):
    """A copy by TMA into the current slot of ``ring``, counted by its ``full`` barrier."""

    TEXT = "fetch {0.src} -> {0.dst}"

    ring: Ring


@dataclass(frozen=True)
class Share(Copy):
    """A copy of a tile to shared memory, where products read it as their first operand."""

    TEXT = "share {0.src} -> {0.dst}"


@dataclass(frozen=True)
class Issue(Gemm):
    """A matrix product that starts here; ``Settle`` waits for it.

    It reads the slots of ``behind`` rounds ago.
    """

    behind: int = 0

    def text(self) -> str:
        """The canonical text."""
        late = f" behind {self.behind}" if self.behind else ""
        return "issue " + super().text() + late


@dataclass(frozen=True)
class Settle(Stmt):
    """Waits until at most ``outstanding`` products are in flight; then ``results`` have theirs."""

    READS = ("results",)
    TEXT = "settle {0.outstanding}"

    outstanding: int
    results: tuple[Buffer, ...]


@dataclass(frozen=True)
class Staged(Copy):
    """A copy of a tile to a tensor by TMA, through shared memory: what is out of bounds drops."""

    TEXT = "staged {0.src} -> {0.dst}"

    descriptor: Descriptor

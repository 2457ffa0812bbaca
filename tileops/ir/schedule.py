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

from tileops.dtypes import DType
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.tile_operations import Copy, Gemm

_SWIZZLES = (128, 64, 32)  # bytes (CUDA driver API, CUtensorMapSwizzle)
PATTERN_ROWS = 8  # that a swizzle pattern of shared memory has


@dataclass(frozen=True)
class Descriptor:
    """What one TMA copy moves: a box of a tensor, one extent a dimension, outermost first.

    ``swizzle`` is the width in bytes of the pattern in which shared memory holds the box; 0: it is
    in order.
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


def swizzle_of(row_bytes: int) -> int:
    """The widest pattern for a box in shared memory whose rows have so many bytes; 0 for none."""
    return next((s for s in _SWIZZLES if row_bytes >= s), 0)


@dataclass(frozen=True)
class Ring:
    """Shared buffers that one step fills together, ``depth`` times over.

    The load role fills those of ``descriptors``. Where there are none, the ring is an *exchange*:
    each group of the math role fills its part of a slot, and reads all of it.
    """

    name: str
    buffers: tuple[Buffer, ...]
    descriptors: tuple[Descriptor, ...]
    depth: int

    @property
    def is_exchange(self) -> bool:
        """True for a ring that the math role fills."""
        return not self.descriptors

    @property
    def bytes(self) -> int:
        """Bytes of one slot."""
        return sum(
            math.prod(shape) * buffer.dtype.bytes
            for buffer, (shape, _) in zip(self.buffers, self.slots, strict=True)
        )

    @property
    def slots(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Of each buffer, the shape of its slot and the swizzle."""
        if self.descriptors:
            return tuple((d.box, d.swizzle) for d in self.descriptors)
        shapes = [buffer.static_shape() or () for buffer in self.buffers]
        return tuple(
            (shape, swizzle_of(shape[-1] * buffer.dtype.bytes))
            for buffer, shape in zip(self.buffers, shapes, strict=True)
        )

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
    rows and divide the columns. Operands that products cannot read from registers are put into
    ``shared`` tiles. ``staged`` are the
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
        return slots + tiles + self.groups * sum(d.bytes for d in self.staging.values())

    @property
    def staging(self) -> dict[tuple[DType, tuple[int, ...], int], Descriptor]:
        """The tiles through which boxes leave, in turn those of one form: one of each."""
        return {(d.tensor.dtype, d.box, d.swizzle): d for d in self.staged}

    def text(self) -> Iterator[str]:
        """The lines printed beneath the launch, without the roles' statements."""
        stays = "persistent " if self.persistent else ""
        across = f" {self.across} across" if self.across > 1 else ""
        across += " by columns" if self.by_columns else ""
        yield f"schedule {stays}math {self.groups} x {self.warps} warps{across}, load 1 warp:"
        for ring in self.rings:
            yield f"  ring {ring} depth {ring.depth} bytes {ring.bytes}"
            for buffer, descriptor in zip(ring.buffers, ring.descriptors, strict=False):
                yield f"    {buffer} from {descriptor}"
            if ring.is_exchange:
                yield f"    {', '.join(map(str, ring.buffers))} from the groups"
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
    """The role waits until the slot is empty; the load role announces the bytes of this round."""

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
class Deposit(Copy):
    """A tile of one group to its part of the current slot of ``ring``, an exchange."""

    TEXT = "deposit {0.src} -> {0.dst}"

    ring: Ring


@dataclass(frozen=True)
class Publish(RingStep):
    """A group says that its part of the slot is there."""

    TEXT = "publish {0.ring}"


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
    """A copy of a tile to shared memory, where products read it."""

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


@dataclass(frozen=True)
class Added(Staged):
    """A tile added to a tensor by TMA, element by element and each atomically."""

    TEXT = "added {0.src} -> {0.dst}"

    def reads(self) -> tuple[str, ...]:
        """The fields whose buffers the statement reads."""
        return ("src", "dst")

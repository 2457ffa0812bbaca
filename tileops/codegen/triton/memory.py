"""On-chip buffers in memory: each is a slice of a global workspace, one slice a block.

Threads meet in such a buffer only through memory, so a barrier separates a write from the accesses
that it must not meet. Loops that use one are not pipelined: Triton would move their loads
over the stores.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from tileops.codegen.kernel_code import KernelParam
from tileops.codegen.triton.liveness import Ids, Liveness
from tileops.codegen.triton.space import power_of_two
from tileops.codegen.triton.storage import constant_shape
from tileops.codegen.triton.text import triton_type
from tileops.codegen.triton.writer import Names, Writer
from tileops.dtypes import FLOAT32, INT32, INT64, DType
from tileops.errors import UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr
from tileops.ir.stmt import Alloc, Atomic, Body, Launch, Stmt
from tileops.ir.walk import loads, read_buffers, walk, written_buffers

# How a buffer is accessed, "read", "write" or "atomic", and the id of the buffer that it names.
Access = tuple[str, int]

# Reads do not wait for each other, nor do atomics.
_WAITS_FOR = {
    "read": ("write", "atomic"),
    "write": ("read", "write", "atomic"),
    "atomic": ("read", "write"),
}

# Elements that one store clears; a slice is a power of two, or a multiple of this.
_CHUNK = 8192
# A slice of at least this many elements keeps the next one 128-byte aligned for every dtype.
_LEAST = 128


@dataclass(frozen=True)
class Slice:
    """One buffer: the names of its workspace and of its slice, and how it is held."""

    workspace: str
    name: str
    held: Buffer  # with the dtype of its elements in memory
    elements: int  # of one slice


class Memory:
    """The buffers of one launch in storage class *memory*, and which accesses are pending."""

    def __init__(
        self, launch: Launch, roots: Ids, liveness: Liveness, names: Names, writer: Writer
    ) -> None:
        self._liveness = liveness
        self._writer = writer
        self.pending: frozenset[Access] = frozenset()  # since the last barrier
        self.slices: dict[int, Slice] = {}
        self._exposed = liveness.exposed_of(launch.body) & roots
        stmts = list(walk(launch.body))
        atomic = {self.root(s.dst.buffer) for s in stmts if _is_update(s)}
        for stmt in stmts:
            if isinstance(stmt, Alloc) and stmt.buffer.id in roots - self.slices.keys():
                buffer = stmt.buffer
                size = math.prod(constant_shape(buffer, stmt.loc))
                elements = power_of_two(max(size, _LEAST))
                if elements > _CHUNK:
                    elements = -(-size // _CHUNK) * _CHUNK
                name, workspace = names.fresh(buffer.name), names.fresh(f"{buffer.name}_memory")
                dtype = _held_dtype(buffer.dtype) if buffer.id in atomic else buffer.dtype
                held = dataclasses.replace(buffer, dtype=dtype)
                self.slices[buffer.id] = Slice(workspace, name, held, elements)

    def root(self, buffer: Buffer) -> int:
        """The id of the buffer whose storage this one names."""
        return self._liveness.root(buffer.id)

    def holds(self, buffer: Buffer) -> bool:
        """True if the buffer, or what it is a view of, is in memory."""
        return self.root(buffer) in self.slices

    def held(self, buffer: Buffer) -> Buffer:
        """The buffer as it is in memory."""
        own = self.slices[self.root(buffer)]
        if buffer.id == own.held.id:
            return own.held
        # The declared width of the storage's elements: a view has all of them.
        bits = math.prod(buffer.static_shape() or (1,)) * buffer.dtype.bits
        if own.held.dtype.bits != bits // math.prod(own.held.static_shape() or (1,)):
            raise UnsupportedConstructError(
                f"a view of a tile that takes atomic updates and has elements of fewer than 32 "
                f"bits: `{buffer.name}`"
            )
        return buffer

    # -- the head of the kernel ----------------------------------------------------------------
    def params(self, first: int) -> list[KernelParam]:
        """The workspaces as parameters, numbered from ``first``."""
        return [
            KernelParam(s.workspace, "workspace", first + n, "ptr", str(s.held.dtype), aligned=True)
            for n, s in enumerate(self.slices.values())
        ]

    def workspaces(self, blocks: Expr) -> list[Buffer]:
        """The workspaces for ``blocks`` blocks, in the order of the parameters."""
        count = fold.cast(blocks, INT64)
        return [
            dataclasses.replace(
                s.held,
                name=s.workspace,
                shape=(fold.mul(count, fold.const(s.elements, INT64)),),
                scope="global",
            )
            for s in self.slices.values()
        ]

    def emit_slices(self, block: str) -> None:
        """Name the block's slices; one that is read before it is written starts as zeros."""
        line = self._writer.line
        for root, own in self.slices.items():
            line(f"{own.name} = {own.workspace} + {block}.to(tl.int64) * {own.elements}")
            if root not in self._exposed:
                continue
            dtype, size = triton_type(own.held.dtype), min(own.elements, _CHUNK)
            clear = f"tl.arange(0, {size}), tl.zeros(({size},), {dtype}))"
            if own.elements == size:
                line(f"tl.store({own.name} + {clear}")
            else:
                with self._writer.block(f"for start in range(0, {own.elements}, {size}):"):
                    line(f"tl.store({own.name} + start + {clear}")
            self.pending |= {("write", root)}

    # -- barriers ------------------------------------------------------------------------------
    def barrier(self) -> None:
        """Write a barrier: every access before it is done."""
        self._writer.line("tl.debug_barrier()")
        self.pending = frozenset()

    def must_wait(self, kind: str, buffer: Buffer) -> bool:
        """True if an access must be behind a barrier."""
        return any((other, self.root(buffer)) in self.pending for other in _WAITS_FOR[kind])

    def note(self, kind: str, buffer: Buffer) -> None:
        """Note an access as pending."""
        self.pending |= {(kind, self.root(buffer))}

    def uses(self, body: Body) -> bool:
        """True if some statement of ``body`` accesses a buffer in memory."""
        return any(True for _ in self._accesses(body))

    def conflicts(self, body: Body) -> bool:
        """True if the iterations of a loop with this body must not run into each other."""
        found = frozenset(self._accesses(body))
        return any(
            kind == "write" or (kind == "atomic" and ("read", n) in found) for kind, n in found
        )

    def _accesses(self, body: Body) -> Iterator[Access]:
        for stmt in walk(body):
            if _is_update(stmt):
                found = [("read", load.buffer) for load in loads(stmt)]
                found.append(("atomic", stmt.dst.buffer))
            else:
                found = [("read", b) for b in read_buffers(stmt)]
                found += [("write", b) for b in written_buffers(stmt)]
            yield from ((kind, self.root(b)) for kind, b in found if self.holds(b))


def _is_update(stmt: Stmt) -> TypeGuard[Atomic]:
    return isinstance(stmt, Atomic) and stmt.op != "load"


def _held_dtype(dtype: DType) -> DType:
    """The narrowest dtype of Triton's atomics that holds every value of ``dtype``."""
    if dtype.bits >= 32:
        return dtype
    if dtype.is_float:
        return FLOAT32
    return INT32 if dtype.is_signed or dtype.is_bool else DType("uint32")

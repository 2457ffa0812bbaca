"""Operands that the math role makes and multiplies transposed: the groups exchange their rows."""

from __future__ import annotations

from tileops.ir.expr import Buffer
from tileops.ir.schedule import swizzle_of
from tileops.ir.stmt import Body, Copy, Gemm, Stmt
from tileops.ir.walk import read_buffers, walk, written_buffers
from tileops.passes.hopper.unfit import Unfit

_GROUP_ROWS = 64  # of a wgmma instruction, which the four warps of a group run together


def find_exchanged(body: Body) -> frozenset[int]:
    """The shared buffers that one copy fills from registers and that products read transposed.

    A row of such an operand is a column of the tile: every group reads what all have.
    """
    every = list(walk(body))
    operands = {s.a.buffer for s in every if isinstance(s, Gemm) and s.transpose_a}
    return frozenset(b.id for b in operands if b.scope == "shared" and _is_exchanged(b, every))


def _is_exchanged(buffer: Buffer, every: list[Stmt]) -> bool:
    writers = [s for s in every if buffer in written_buffers(s)]
    shape = buffer.static_shape() or (0,)
    if len(writers) != 1 or len(shape) != 2 or shape[0] % _GROUP_ROWS:
        return False
    (copy,) = writers
    if not isinstance(copy, Copy) or not copy.src.buffer.is_on_chip:
        return False
    if not (copy.src.is_whole() and copy.dst.is_whole() and len(copy.src.extents) == 2):
        return False
    readers = (s for s in every if buffer in read_buffers(s))
    return swizzle_of(shape[1] * buffer.dtype.bytes) > 0 and all(
        isinstance(s, Gemm) and s.a.buffer == buffer and s.b.buffer != buffer for s in readers
    )


def require_rows(gemm: Gemm) -> None:
    """Unfit for a product of an exchanged operand that a group cannot do."""
    rows = (gemm.c.buffer.static_shape() or (0, 0))[-2]
    if not gemm.transpose_a:
        raise Unfit(f"`{gemm.a.buffer.name}` is read transposed and not", gemm.loc)
    if rows % _GROUP_ROWS:
        raise Unfit(f"the products have {rows} rows, wgmma has 64", gemm.loc)

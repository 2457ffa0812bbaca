"""Which copies the tensor memory accelerator (TMA) can do, and the box that each moves."""

from __future__ import annotations

import math
from dataclasses import replace

from tileops.ir.expr import Buffer, Expr, Region
from tileops.ir.program import Program, const_value
from tileops.ir.schedule import Descriptor, swizzle_of
from tileops.ir.stmt import Copy, Launch
from tileops.passes.hopper.multiples import Multiples
from tileops.passes.hopper.unfit import Unfit

# Of cuTensorMapEncodeTiled (CUDA driver API): ranks, extents of a box, alignment in bytes.
_MOST_RANK = 5
_MOST_EXTENT = 256
_ALIGNMENT = 16
_SLOT_ALIGNMENT = 128  # of shared memory that a copy fills


class Boxes:
    """The boxes of one launch, under the facts of a *fast* kernel.

    There every pointer is 16-byte aligned and every run-time size in ``aligned`` is divisible by
    16.
    """

    def __init__(self, program: Program, launch: Launch, aligned: frozenset[int]) -> None:
        self._tensors = {t.buffer.id for t in program.tensors() if not t.raw}
        self._safe = {b.id: value for b, value in launch.safe_values}
        self._multiples = Multiples(launch.body, aligned)

    def fetched(self, copy: Copy) -> Descriptor:
        """The box of a copy from a tensor into the whole of a shared buffer."""
        if copy.src.dtype != copy.dst.dtype:
            raise Unfit(f"the copy converts {copy.src.dtype} to {copy.dst.dtype}", copy.loc)
        if not copy.dst.is_whole():
            raise Unfit(f"the copy fills a part of `{copy.dst.buffer.name}`", copy.loc)
        safe = self._safe.get(copy.src.buffer.id)
        if safe is not None and const_value(safe) != 0:
            raise Unfit(f"`{copy.src.buffer.name}` has a safe value, and TMA gives 0", copy.loc)
        return self._box(copy.src, copy)

    def rider(self, copy: Copy) -> Descriptor:
        """The box of a copy into a vector, which stays in order in shared memory."""
        box = self.fetched(copy)
        if box.bytes % _SLOT_ALIGNMENT or box.box[-1] > _MOST_EXTENT:
            raise Unfit(f"a vector of {box.bytes} bytes", copy.loc)
        if len(copy.src.squeezed()) != 1 or copy.src.squeezed()[0] != len(box.box) - 1:
            raise Unfit(f"the vector `{copy.dst.buffer.name}` is no row", copy.loc)
        return replace(box, swizzle=0)

    def stored(self, copy: Copy) -> Descriptor:
        """The box of a copy from a tile to a tensor."""
        return self._box(copy.dst, copy)

    def _box(self, region: Region, copy: Copy) -> Descriptor:
        buffer = region.buffer
        if buffer.id not in self._tensors:
            raise Unfit(f"`{buffer.name}` is not a tensor argument", copy.loc)
        box = region.static_extents()
        if box is None:
            raise Unfit(f"the box of `{buffer.name}` has run-time extents", copy.loc)
        if len(box) > _MOST_RANK:
            raise Unfit(
                f"`{buffer.name}` has {len(box)} dimensions, TMA takes {_MOST_RANK}", copy.loc
            )
        inner = box[-1] * buffer.dtype.bytes
        for extent in box:
            if extent & (extent - 1) or not extent:
                raise Unfit(f"the box of `{buffer.name}` has an extent of {extent}", copy.loc)
        if any(extent > _MOST_EXTENT for extent in box[:-1]):
            raise Unfit(f"the box of `{buffer.name}` is longer than {_MOST_EXTENT}", copy.loc)
        swizzle = swizzle_of(inner)
        if not swizzle:
            raise Unfit(f"a row of the box of `{buffer.name}` has {inner} bytes", copy.loc)
        self._require_strides(buffer, copy)
        self._require_start(region, copy)
        return Descriptor(buffer, box, swizzle)

    def _require_strides(self, buffer: Buffer, copy: Copy) -> None:
        if buffer.strides is None:
            suffixes = [buffer.shape[d + 1 :] for d in range(len(buffer.shape) - 1)]
        else:
            if any(const_value(stride) in (None, 0) for stride in buffer.strides):
                raise Unfit(f"a stride of `{buffer.name}` is known at run time only", copy.loc)
            *outer, last = buffer.strides
            if const_value(last) != 1:
                raise Unfit(f"the last stride of `{buffer.name}` is not 1", copy.loc)
            suffixes = [(stride,) for stride in outer]
        if not all(self._divides(factors, buffer.dtype.bytes) for factors in suffixes):
            raise Unfit(f"a stride of `{buffer.name}` is not a multiple of 16 bytes", copy.loc)

    def _require_start(self, region: Region, copy: Copy) -> None:
        """Unfit for a first column inside 16 bytes: to TMA that is an illegal instruction.

        Seen on an H200, where the driver's documents name the alignment of strides alone. Where a
        box begins in the other dimensions is free.
        """
        buffer = region.buffer
        if not self._divides(region.starts[-1:], buffer.dtype.bytes):
            raise Unfit(
                f"the first column of the box of `{buffer.name}` is not a multiple of 16 bytes",
                copy.loc,
            )

    def _divides(self, factors: tuple[Expr, ...], unit: int) -> bool:
        """True if the product of ``factors``, in elements of ``unit`` bytes, is aligned."""
        return math.prod(map(self._multiples.of, factors), start=unit) % _ALIGNMENT == 0

"""How on-chip buffers are held: each as a padded tile in a variable of the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tileops.codegen.triton.space import MAX_ELEMENTS, power_of_two
from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir.expr import Buffer, Expr, Region
from tileops.ir.program import Program
from tileops.ir.stmt import Gemm, Launch
from tileops.ir.walk import walk
from tileops.location import Location

# Tensor-core instructions need 16 rows, columns and products; Triton takes fewer only for some
# types.
_GEMM_MIN = 16
_GEMM_MIN_K8 = 32


class NeedsMemory(Exception):
    """No tile can hold the buffer whose storage has the id ``root``: it belongs in memory."""

    def __init__(self, root: int, name: str) -> None:
        super().__init__(name)
        self.root = root


@dataclass(frozen=True)
class Storage:
    """One buffer as a tile of its dimensions ``dims``: those of more than one element.

    ``extents`` and ``padded`` are those dimensions' true and padded sizes; with none the buffer is
    a scalar. ``lanes`` is the shape of the elementwise nest that the buffer was allocated in (one
    scalar a lane), else empty.
    """

    buffer: Buffer
    dims: tuple[int, ...]
    extents: tuple[int, ...]
    padded: tuple[int, ...]
    lanes: tuple[int, ...] = ()

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def is_scalar(self) -> bool:
        return not self.lanes and not self.dims

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The shape of the variable; empty for a scalar."""
        return self.lanes or self.padded

    def kept(self, indices: Sequence[Expr]) -> list[Expr]:
        """The indices along the tile's own dimensions."""
        return [indices[d] for d in self.dims]


@dataclass(frozen=True)
class Padding:
    """The padded size of each extent in one launch.

    The same extent always gets the same size, so that tiles and nests of equal extents fit each
    other without a conversion. ``least`` holds what a matrix product needs of some extents.
    """

    least: Mapping[int, int]

    def __call__(self, extent: int) -> int:
        """The padded size of ``extent``."""
        return max(power_of_two(extent), self.least.get(extent, 1))


def padding_of(program: Program, launch: Launch) -> Padding:
    """The padding that the matrix products of ``launch`` ask for."""
    needed: dict[int, int] = {}
    for gemm in walk(launch.body):
        if not isinstance(gemm, Gemm):
            continue
        m, k = _matrix(gemm.a)
        if gemm.transpose_a:
            m, k = k, m
        _, n = _matrix(gemm.c)
        least_k = _GEMM_MIN_K8 if gemm.a.dtype.bits == 8 else _GEMM_MIN
        for extent, least in ((m, _GEMM_MIN), (n, _GEMM_MIN), (k, least_k)):
            if extent > 1:
                needed[extent] = max(needed.get(extent, 1), least)
    return Padding(needed)


def _matrix(region: Region) -> tuple[int, int]:
    extents = region.static_extents()
    if extents is None or len(extents) < 2:
        raise UnsupportedConstructError(
            f"gemm on a tile whose extents are not constants: `{region.buffer.name}`"
        )
    return extents[-2], extents[-1]


def constant_shape(buffer: Buffer, loc: Location | None) -> tuple[int, ...]:
    """The shape of an on-chip buffer; UnsupportedConstructError where it is not constant."""
    shape = buffer.static_shape()
    if shape is None:
        raise UnsupportedConstructError(
            f"the extents of on-chip buffer `{buffer.name}` must be constants", location=loc
        )
    return shape


def buffer_storage(buffer: Buffer, padding: Padding, loc: Location | None) -> Storage:
    """How an on-chip buffer is held; NeedsMemory where no tile can hold it."""
    shape = constant_shape(buffer, loc)
    dims = tuple(d for d, e in enumerate(shape) if e > 1)
    extents = tuple(shape[d] for d in dims)
    padded = tuple(padding(e) for e in extents)
    if math.prod(padded) > MAX_ELEMENTS:
        raise NeedsMemory(buffer.id, buffer.name)
    return Storage(buffer, dims, extents, padded)

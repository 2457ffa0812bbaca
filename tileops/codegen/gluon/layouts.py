"""Which thread holds which element: the layout of each tile, by its shape."""

from __future__ import annotations

from tileops.ir.schedule import Schedule
from tileops.ir.stmt import Gemm
from tileops.passes.hopper import Unfit

_MOST_COLUMNS = 256  # of a wgmma instruction (PTX ISA, wgmma.mma_async)
_LANES = 32
_STEP_BITS = 256  # of a row of an operand that one instruction reads


class Layouts:
    """The layouts of the launch ``entry``. Tiles of one shape have one layout, whatever they hold.

    A tile with rows for every warp has that of a product's result: 16 rows a warp, all columns, or
    those of one of the ``across`` warps that share rows.
    Vectors of as many elements as the products have rows are slices of it.
    """

    def __init__(self, entry: str, schedule: Schedule, product: Gemm) -> None:
        self._entry, self._warps, self._across = entry, schedule.warps, schedule.across
        self._rows, self._columns = product.c.static_extents() or (0, 0)
        self._depth = _STEP_BITS // product.a.dtype.bits
        self._known: dict[str, str] = {}

    def tile(self, shape: tuple[int, ...]) -> str:
        """The name of the layout of a tile of ``shape``."""
        return self._named(self._tile(shape))

    def slice(self, shape: tuple[int, ...], kept: int) -> str:
        """The layout of a vector along dimension ``kept`` of a tile of two dimensions."""
        return self._named(f"gl.SliceLayout({1 - kept}, {self._tile(shape)})")

    def operand(self, shape: tuple[int, ...], bits: int) -> str:
        """The layout of a first operand in registers, for a result of ``shape``."""
        return self._named(f"gl.DotOperandLayout(0, {self._tile(shape)}, {_LANES // bits})")

    def shared(self, rank: int, swizzle: int, bits: int) -> str:
        """The layout of a box in shared memory."""
        return self._named(f"gl.NVMMASharedLayout({swizzle}, {bits}, {rank})")

    def lines(self) -> list[str]:
        """The definitions of the names given out."""
        return [f"{name} = tl.constexpr({text})" for text, name in self._known.items()]

    def _tile(self, shape: tuple[int, ...]) -> str:
        warps = self._warps
        if len(shape) == 1:
            if shape[0] == self._rows:
                return f"gl.SliceLayout(1, {self._tile((self._rows, self._columns))})"
            return f"gl.BlockedLayout([1], [{_LANES}], [{warps}], [0])"
        if len(shape) != 2:
            raise Unfit(f"a tile of {len(shape)} dimensions in registers")
        rows, columns = shape
        along, across = warps // self._across, self._across
        if rows % (16 * along) == 0 and columns % (8 * across) == 0:
            shape_ = [16, min(columns // across, _MOST_COLUMNS), self._depth]
            return f"gl.NVMMADistributedLayout([3, 0], [{along}, {across}], {shape_})"
        across = min(_LANES, columns)
        return f"gl.BlockedLayout([1, 1], [{_LANES // across}, {across}], [{warps}, 1], [1, 0])"

    def _named(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = f"{self._entry}_L{len(self._known)}"
        return self._known[text]

"""``carver.roller.rasterization``: in which order blocks walk the grid, as ranked hints say it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NoRasterization", "Rasterization", "Rasterization2DColumn", "Rasterization2DRow"]


@dataclass(frozen=True)
class Rasterization:
    """An order of the blocks in panels of a width, for ``T.use_swizzle``."""

    panel_width: int = 4


class NoRasterization(Rasterization):
    """The grid's own order."""


class Rasterization2DRow(Rasterization):
    """Panels of rows."""


class Rasterization2DColumn(Rasterization):
    """Panels of columns."""

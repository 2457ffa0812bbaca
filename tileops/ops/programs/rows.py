"""How programs over rows divide them: the tile of a block, and the blocks of a sum."""

from __future__ import annotations

from typing import NamedTuple

import torch

import tileops.language as T
from tileops.devices import get_num_sms
from tileops.math import next_power_of_2

# Element types of the tensors that an op takes; the first one is what a program is recorded with.
DTYPES = (T.bfloat16, T.float16, T.float32, T.float64)
# A row of at most this many elements stays in registers; a wider one is read in parts.
WIDEST = 16384
PART = 4096
# Blocks among which the CPU path divides a sum over rows: the same on every machine, so that the
# order of the additions is.
CPU_WORKERS = 16


class RowTile(NamedTuple):
    """A tile of whole rows, and the threads of its block."""

    rows: int
    threads: int


def row_tile(columns: object) -> RowTile:
    """The tile for rows of ``columns`` elements: 1,024 elements or a row, 16 for each thread.

    The decorator records a program before its sizes have values: any tile serves then.
    """
    if not isinstance(columns, int):
        return RowTile(1, 128)
    width = next_power_of_2(max(columns, 1))
    rows = max(1, 1024 // width)
    return RowTile(rows, max(64, min(512, rows * width // 16)))


def is_read_in_parts(columns: object, widest: int = WIDEST) -> bool:
    """Whether a row does not fit into the registers of a block; an empty one has no tile either."""
    return isinstance(columns, int) and not 0 < columns <= widest


def workers(tensor: torch.Tensor) -> int:
    """Blocks that sum over the rows of ``tensor``: two for each multiprocessor of its GPU."""
    return 2 * get_num_sms(tensor.device.index) if tensor.is_cuda else CPU_WORKERS


def accumulator(dtype: T.dtype) -> T.dtype:
    """The dtype in which values of ``dtype`` are summed."""
    return T.float64 if dtype == T.float64 else T.float32

"""Owns memory shared by two processes: tensors' bytes at offsets of a file without a name."""

from __future__ import annotations

import mmap
import os

import torch

_ALIGNMENT = 64  # bytes, as torch's own CPU allocator gives


class Arena:
    """A growing file in memory that a parent makes and a child inherits as a descriptor.

    It has no name, so nothing is left behind whoever dies.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("tileops") if descriptor is None else descriptor

    def put(self, tensor: torch.Tensor, offset: int) -> int:
        """Copy the bytes of ``tensor`` (contiguous) to ``offset``; the first free offset after."""
        count = tensor.numel() * tensor.element_size()
        if count == 0:
            return offset
        end = offset + count
        if os.fstat(self.descriptor).st_size < end:
            os.ftruncate(self.descriptor, end)
        row = tensor.detach().reshape(-1).view(torch.uint8)
        self._window(offset, count, mmap.ACCESS_WRITE).copy_(row)
        return aligned(end)

    def get(self, offset: int, count: int) -> torch.Tensor:
        """A copy of ``count`` bytes at ``offset``, as a uint8 tensor on the CPU."""
        if count == 0:
            return torch.empty(0, dtype=torch.uint8)
        # A writable mapping, because torch warns of tensors over memory that cannot be written.
        return self._window(offset, count, mmap.ACCESS_WRITE).clone()

    def _window(self, offset: int, count: int, access: int) -> torch.Tensor:
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        shift = offset - start
        view = mmap.mmap(self.descriptor, shift + count, access=access, offset=start)
        return torch.frombuffer(view, dtype=torch.uint8, count=count, offset=shift)

    def close(self) -> None:
        """Give the memory back, once the other process has closed it too."""
        os.close(self.descriptor)


def aligned(offset: int) -> int:
    """The next offset at which a tensor may start."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT

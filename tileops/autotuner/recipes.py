"""Recipes of inputs, from which another process makes arguments like those of a call."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import torch

from tileops.errors import ArgumentTypeError
from tileops.profiler import TensorSupplyType, fill

# Above this size floats are made anew from a seed; integers are indices, lengths and masks, whose
# values decide what a program does, so they always travel.
REAL_BYTES_LIMIT = 256 << 20

_ALIGNMENT = 64  # bytes, as torch's own CPU allocator gives

Recipe = list[dict[str, Any]]


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
        self._window(offset, count).copy_(row)
        return -(-end // _ALIGNMENT) * _ALIGNMENT

    def get(self, offset: int, count: int) -> torch.Tensor:
        """A copy of ``count`` bytes at ``offset``, as a uint8 tensor on the CPU."""
        if count == 0:
            return torch.empty(0, dtype=torch.uint8)
        return self._window(offset, count).clone()

    def _window(self, offset: int, count: int) -> torch.Tensor:
        shift = offset % mmap.ALLOCATIONGRANULARITY
        # Writable, because torch warns of tensors over memory that cannot be written.
        view = mmap.mmap(self.descriptor, shift + count, offset=offset - shift)
        return torch.frombuffer(view, dtype=torch.uint8, count=count, offset=shift)

    def close(self) -> None:
        """Give the memory back, once the other process has closed it too."""
        os.close(self.descriptor)


def recipe_of(values: Sequence[object], arena: Arena, seed: int = 0) -> tuple[Recipe, int]:
    """The recipe of a call's arguments, and the first offset of ``arena`` that is still free.

    A tensor is described by shape, strides, dtype, the elements by which it misses a 16-byte
    boundary, and a seed, or the place in the arena where its bytes are. ArgumentTypeError for what
    is neither a tensor, a number nor None.
    """
    recipe: Recipe = []
    free = 0
    for number, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            item, free = _tensor_item(value, arena, free, seed + number)
            recipe.append(item)
        elif value is None or isinstance(value, (bool, int, float)):
            recipe.append({"value": value})
        else:
            raise ArgumentTypeError(
                f"argument {number}: expected a tensor or a number, got {type(value).__name__}"
            )
    return recipe, free


def _tensor_item(
    tensor: torch.Tensor, arena: Arena, free: int, seed: int
) -> tuple[dict[str, Any], int]:
    extent = span(tensor.shape, tensor.stride())
    size = extent * tensor.element_size()
    item: dict[str, Any] = {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.data_ptr() % 16 // tensor.element_size() if extent else 0,
        "seed": seed,
    }
    if tensor.is_floating_point() and size >= REAL_BYTES_LIMIT:
        return item, free
    row = torch.as_strided(tensor.detach(), (extent,), (1,))
    item["at"] = free
    return item, arena.put(row.cpu(), free)


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last one of a strided tensor."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def make_inputs(recipe: Recipe, arena: Arena, device: torch.device) -> list[Any]:
    """The arguments that a recipe describes, on ``device``; the same in every process."""
    return [_make(item, arena, device) for item in recipe]


def _make(item: dict[str, Any], arena: Arena, device: torch.device) -> Any:  # noqa: ANN401
    if "value" in item:
        return item["value"]
    dtype: torch.dtype = getattr(torch, item["dtype"])
    extent = span(item["shape"], item["stride"])
    row = torch.empty(item["offset"] + extent, dtype=dtype, device=device)[item["offset"] :]
    if "at" in item:
        size = extent * dtype.itemsize
        row.view(torch.uint8).copy_(arena.get(item["at"], size))
    else:
        generator = torch.Generator(device)
        generator.manual_seed(item["seed"])
        row.copy_(fill((extent,), dtype, TensorSupplyType.Auto, device, generator))
    return torch.as_strided(row, item["shape"], item["stride"])


def clone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and the same distance from a 16-byte boundary, no gradient."""
    tensor = tensor.detach()
    extent = span(tensor.shape, tensor.stride())
    offset = tensor.data_ptr() % 16 // tensor.element_size() if extent else 0
    row = torch.empty(offset + extent, dtype=tensor.dtype, device=tensor.device)[offset:]
    row.copy_(torch.as_strided(tensor, (extent,), (1,)))
    return torch.as_strided(row, tensor.shape, tensor.stride())


def copies_of(inputs: Sequence[Any]) -> list[Any]:
    """The inputs, each tensor replaced by a copy that looks alike."""
    return [clone(v) if isinstance(v, torch.Tensor) else v for v in inputs]

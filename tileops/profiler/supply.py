"""Owns the making of inputs: tensors of a kernel's shapes and dtypes, filled by a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import torch

from tileops.errors import ArgumentError


class TensorSupplyType(Enum):
    """How inputs are filled.

    Auto: uniform in (-1, 1) for 16- and 32-bit floats, small integers for the others.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


class Param(Protocol):
    """What is asked of a kernel's parameter."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def shape(self) -> tuple[int | str, ...]: ...

    @property
    def is_scalar(self) -> bool: ...


_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_UNIFORM = (torch.float16, torch.bfloat16, torch.float32)


def make_tensor(
    param: Param,
    supply: TensorSupplyType,
    device: str | torch.device,
    sizes: Mapping[str, int] | None = None,
) -> torch.Tensor:
    """One input for ``param``; ``sizes`` gives its run-time extents by name.

    ArgumentError for a scalar parameter and for an extent that has no value.
    """
    if param.is_scalar:
        raise ArgumentError(f"parameter '{param.name}' is a scalar; pass input_tensors")
    shape = [_extent(param, extent, sizes or {}) for extent in param.shape]
    return _fill(shape, param.dtype, supply, device)


def _extent(param: Param, extent: int | str, sizes: Mapping[str, int]) -> int:
    if isinstance(extent, int):
        return extent
    name = extent.partition(".")[0]  # printed sizes carry their number: M.0
    if name not in sizes:
        raise ArgumentError(
            f"parameter '{param.name}' has the run-time extent {name}; pass input_tensors, or its "
            "value in dynamic_symbolic_constraints"
        )
    return sizes[name]


def _fill(
    shape: Sequence[int],
    dtype: torch.dtype,
    supply: TensorSupplyType,
    device: str | torch.device,
) -> torch.Tensor:
    fill = _FILLS.get(supply, _auto)
    return fill(shape, dtype, device)


def _auto(shape: Sequence[int], dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, tuple(shape), device=device).to(dtype)
    if dtype in _UNSIGNED:
        return torch.randint(0, 3, tuple(shape), device=device).to(dtype)
    if dtype in _UNIFORM or dtype == torch.float64:
        return _uniform(shape, dtype, device)
    return _integer(shape, dtype, device)


def _integer(shape: Sequence[int], dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    low = 0 if dtype in _UNSIGNED or dtype == torch.bool else -2
    high = 2 if dtype == torch.bool else 3
    return torch.randint(low, high, tuple(shape), device=device).to(dtype)


def _uniform(shape: Sequence[int], dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    return (torch.rand(tuple(shape), device=device) * 2 - 1).to(dtype)


def _normal(shape: Sequence[int], dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    return torch.randn(tuple(shape), device=device).to(dtype)


_Fill = Callable[[Sequence[int], torch.dtype, "str | torch.device"], torch.Tensor]
_FILLS: dict[TensorSupplyType, _Fill] = {
    TensorSupplyType.Integer: _integer,
    TensorSupplyType.Uniform: _uniform,
    TensorSupplyType.Normal: _normal,
    TensorSupplyType.Randn: _normal,
    TensorSupplyType.Zero: lambda s, t, d: torch.zeros(tuple(s), dtype=t, device=d),
    TensorSupplyType.One: lambda s, t, d: torch.ones(tuple(s), device=d).to(t),
    TensorSupplyType.Auto: _auto,
}

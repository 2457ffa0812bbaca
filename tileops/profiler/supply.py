"""Inputs for kernels: tensors of their shapes and dtypes, filled by a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import torch

from tileops.errors import ArgumentError


class TensorSupplyType(Enum):
    """How inputs are filled, with the ranges that tolerances of TileLang programs rely on.

    Uniform: in (-1, 1). Normal: mean -1 and deviation 1. Randn: mean 0 and deviation 1. int8 is
    all ones for Uniform and Normal. Integer: -2 to 2; unsigned types 0 to 2; 8-bit floats the
    integers from -128 to 127, rounded. Auto: uniform for floats of 16 bits and more, else Integer.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


class Param(Protocol):
    """What describes a kernel's parameter."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def shape(self) -> tuple[int | str, ...]: ...

    @property
    def is_scalar(self) -> bool: ...


_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_FLOAT8 = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
)
_UNIFORM = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
        raise ArgumentError(
            f"parameter '{param.name}' is a scalar, and a supply only makes tensors; pass "
            "input_tensors, or tune under set_autotune_inputs(...)"
        )
    shape = [_extent(param, extent, sizes or {}) for extent in param.shape]
    return fill(shape, param.dtype, supply, device)


def get_tensor_supply(
    supply: TensorSupplyType = TensorSupplyType.Integer, device: str | torch.device | None = None
) -> Callable[[Param], torch.Tensor]:
    """A function from a kernel's parameter to an input for it.

    ``device`` is the current CUDA device by default, the CPU on a machine without one.
    """
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return lambda param: make_tensor(param, supply, place)


def _extent(param: Param, extent: int | str, sizes: Mapping[str, int]) -> int:
    if isinstance(extent, int):
        return extent
    # Printed sizes carry their number, as in M.0; the leading dimensions are made as one.
    name = "leading" if extent == "..." else extent.partition(".")[0]
    if name not in sizes:
        raise ArgumentError(
            f"parameter '{param.name}' has the run-time extent {name}; pass input_tensors, or its "
            "value in dynamic_symbolic_constraints"
        )
    return sizes[name]


def fill(
    shape: Sequence[int],
    dtype: torch.dtype,
    supply: TensorSupplyType,
    device: str | torch.device,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """A new tensor filled by ``supply``; with a ``generator``, the same every time."""
    size = tuple(shape)
    if dtype == getattr(torch, "float4_e2m1fn_x2", None):
        return _packed(size, supply, device, generator).view(dtype)
    if supply == TensorSupplyType.Auto:
        supply = TensorSupplyType.Uniform if dtype in _UNIFORM else TensorSupplyType.Integer
    if dtype == torch.int8 and supply in (TensorSupplyType.Uniform, TensorSupplyType.Normal):
        supply = TensorSupplyType.One  # few of the values would be anything but 0
    match supply:
        case TensorSupplyType.Zero:
            values = torch.zeros(size, device=device)
        case TensorSupplyType.One:
            values = torch.ones(size, device=device)
        case TensorSupplyType.Uniform:
            values = torch.rand(size, device=device, generator=generator) * 2 - 1
        case TensorSupplyType.Normal:
            values = torch.randn(size, device=device, generator=generator) - 1
        case TensorSupplyType.Randn:
            values = torch.randn(size, device=device, generator=generator)
        case _:
            low, high = _integers(dtype)
            values = torch.randint(low, high + 1, size, device=device, generator=generator)
    return values.to(dtype)


def _integers(dtype: torch.dtype) -> tuple[int, int]:
    """The least and the greatest of the integers that fill a tensor of ``dtype``."""
    if dtype == torch.bool:
        return 0, 1
    if dtype in _UNSIGNED:
        return 0, 2
    return (-128, 127) if dtype in _FLOAT8 else (-2, 2)


def _packed(
    shape: tuple[int, ...],
    supply: TensorSupplyType,
    device: str | torch.device,
    generator: torch.Generator | None,
) -> torch.Tensor:
    """Bytes of two float4 each, to which torch converts nothing: two zeros, two ones, or any."""
    if supply in (TensorSupplyType.Zero, TensorSupplyType.One):
        both = 0x22 if supply == TensorSupplyType.One else 0
        return torch.full(shape, both, dtype=torch.uint8, device=device)
    return torch.randint(0, 256, shape, device=device, generator=generator).to(torch.uint8)

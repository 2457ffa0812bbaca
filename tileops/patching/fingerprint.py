"""Comparison of a module's own arithmetic with an operator's, on random numbers.

The module is never run itself: a shallow copy with other weights and other children is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

SEED = 20
ROWS = 24
# Bits that must be equal; the other elements may differ by one unit in the last place.
EQUAL = 0.99


def device_of(module: nn.Module) -> torch.device:
    """Where the module computes; the CPU if its weights are elsewhere than on a device."""
    weight = next(module.parameters(), None)
    if weight is None or type(weight.data) is not torch.Tensor or weight.is_meta:
        return torch.device("cpu")
    return weight.device


def random(*shape: int, dtype: torch.dtype, device: torch.device, seed: int = SEED) -> torch.Tensor:
    """Random numbers that are the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(device)


def stand_in(
    module: nn.Module,
    parameters: Mapping[str, torch.Tensor | None],
    children: Mapping[str, nn.Module],
) -> nn.Module:
    """A copy of ``module`` without hooks, with these parameters and these children replaced."""
    probe = copy.copy(module)
    held = probe.__dict__
    for name, value in list(held.items()):
        if name.endswith("_hooks") and isinstance(value, dict):
            held[name] = type(value)()
    held["_parameters"] = {
        name: None if value is None else nn.Parameter(value, requires_grad=False)
        for name, value in parameters.items()
    }
    held["_modules"] = {**module._modules, **children}
    return probe


def agreement(own: Any, other: Any) -> float:
    """The share of equal elements; 0 if dtypes or shapes differ, or one by more than an ulp."""
    if not isinstance(own, torch.Tensor) or not isinstance(other, torch.Tensor):
        return 0.0
    if own.dtype != other.dtype or own.shape != other.shape:
        return 0.0
    apart = (own.double() - other.double()).abs()
    largest = torch.maximum(own.double().abs(), other.double().abs())
    if bool((apart > torch.finfo(own.dtype).eps * largest).any()):
        return 0.0
    return float((own == other).double().mean())


def best(
    own: torch.Tensor, variants: Mapping[str, Callable[[], torch.Tensor]]
) -> tuple[str, float]:
    """The variant that agrees most with ``own``, and its share of equal bits."""
    found = {name: agreement(own, call()) for name, call in variants.items()}
    name = max(found, key=lambda name: found[name])
    return name, found[name]

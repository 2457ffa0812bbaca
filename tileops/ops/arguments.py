"""Checks that the operators share; each error names the op, the argument, what was expected and what came."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tileops.errors import ArgumentError, ArgumentTypeError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_float(op: str, name: str, value: object) -> None:
    """ArgumentTypeError unless ``value`` is a tensor of one of ``FLOATS``."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(f"{op}: {name}: expected a tensor, got {type(value).__name__}")
    if value.dtype not in FLOATS:
        names = ", ".join(str(d).removeprefix("torch.") for d in FLOATS)
        raise ArgumentTypeError(
            f"{op}: {name}: expected one of {names}, got {str(value.dtype).removeprefix('torch.')}"
        )


def normalised_columns(op: str, input: torch.Tensor, normalized_shape: Sequence[int]) -> int:
    """The product of ``normalized_shape``; ArgumentError unless the shape of ``input`` ends with it."""
    try:
        shape = tuple(normalized_shape)
    except TypeError:
        raise ArgumentTypeError(
            f"{op}: normalized_shape: expected a sequence of integers, got {normalized_shape!r}"
        ) from None
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ArgumentError(
            f"{op}: normalized_shape: expected the last dimensions of input, whose shape is "
            f"{tuple(input.shape)}, got {shape}"
        )
    return math.prod(shape)


def has_shape(op: str, name: str, tensor: torch.Tensor | None, shape: Sequence[int]) -> None:
    """ArgumentError unless ``tensor``, if there is one, has this shape."""
    if tensor is not None and tuple(tensor.shape) != tuple(shape):
        raise ArgumentError(
            f"{op}: {name}: expected the shape {tuple(shape)}, got {tuple(tensor.shape)}"
        )


def is_one_of(op: str, name: str, value: str, choices: Sequence[str]) -> None:
    """ArgumentError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ArgumentError(f"{op}: {name}: expected one of {', '.join(choices)}, got {value!r}")

"""Checks that the operators share. An error names op, argument, what was expected and what came."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import sharding

_PLAIN = (torch.Tensor, torch.nn.Parameter)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_float(op: str, name: str, value: object) -> None:
    """ArgumentTypeError unless ``value`` is a tensor of one of ``FLOATS``."""
    is_of(op, name, value, FLOATS)


def is_of(op: str, name: str, value: object, dtypes: Sequence[torch.dtype]) -> None:
    """ArgumentTypeError unless ``value`` is a tensor of one of ``dtypes``."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(f"{op}: {name}: expected a tensor, got {type(value).__name__}")
    if type(value) not in _PLAIN and not torch.compiler.is_compiling():
        sharding.register()  # it may be a DTensor
    if value.dtype not in dtypes:
        one_of = "one of " if len(dtypes) > 1 else ""
        names = ", ".join(map(word, dtypes))
        raise ArgumentTypeError(f"{op}: {name}: expected {one_of}{names}, got {word(value.dtype)}")


def is_dtype_of(op: str, name: str, value: object, dtypes: Sequence[torch.dtype]) -> str:
    """The name of ``value``; ArgumentError unless it is one of ``dtypes``."""
    if value not in dtypes:
        names = ", ".join(map(word, dtypes))
        raise ArgumentError(f"{op}: {name}: expected one of {names}, got {value!r}")
    return word(value)


def normalised_columns(op: str, input: torch.Tensor, normalized_shape: Sequence[int]) -> int:
    """The product of ``normalized_shape``; ArgumentError unless ``input`` ends with it."""
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


def is_like(op: str, name: str, value: object, other: str, tensor: torch.Tensor) -> None:
    """Raise unless ``value`` is a tensor of the shape and dtype of ``tensor``, called ``other``."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(f"{op}: {name}: expected a tensor, got {type(value).__name__}")
    has_dtype(op, name, value, other, tensor)
    if value.shape != tensor.shape:
        raise ArgumentError(
            f"{op}: {name}: expected the shape of {other}, {tuple(tensor.shape)}, "
            f"got {tuple(value.shape)}"
        )


def has_dtype(op: str, name: str, value: torch.Tensor, other: str, tensor: torch.Tensor) -> None:
    """ArgumentTypeError unless ``value`` has the dtype of ``tensor``, called ``other``."""
    if value.dtype != tensor.dtype:
        raise ArgumentTypeError(
            f"{op}: {name}: expected the dtype of {other}, {word(tensor.dtype)}, "
            f"got {word(value.dtype)}"
        )


def word(dtype: object) -> str:
    """The name of a dtype without torch's."""
    return str(dtype).removeprefix("torch.")


def dimension(op: str, name: str, dim: object, tensor: torch.Tensor) -> int:
    """The dimension ``dim`` of ``tensor`` counted from 0; ArgumentError if there is none."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise ArgumentTypeError(f"{op}: {name}: expected an integer, got {type(dim).__name__}")
    count = max(tensor.dim(), 1)
    if not -count <= dim < count:
        raise ArgumentError(
            f"{op}: {name}: expected {-count} to {count - 1} for a tensor of {tensor.dim()} "
            f"dimensions, got {dim}"
        )
    return dim % count


def is_number(op: str, name: str, value: object) -> float:
    """``value``; ArgumentTypeError unless it is an integer or a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentTypeError(f"{op}: {name}: expected a number, got {type(value).__name__}")
    return value


def cap_of(op: str, softcap: float | None) -> float:
    """The bound of capped numbers; 0 for none. Raises unless it is a positive finite number."""
    if softcap is None:
        return 0.0
    cap = float(is_number(op, "softcap", softcap))
    if not (cap > 0 and math.isfinite(cap)):
        raise ArgumentError(f"{op}: softcap: expected a positive number, got {softcap}")
    return cap


def is_recorded(*tensors: torch.Tensor | None) -> bool:
    """Whether a gradient of some of the tensors may be asked for."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def is_one_of(op: str, name: str, value: str, choices: Sequence[str]) -> None:
    """ArgumentError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ArgumentError(f"{op}: {name}: expected one of {', '.join(choices)}, got {value!r}")


def one_number(op: str, name: str, value: torch.Tensor) -> torch.Tensor:
    """``value`` as a vector; raise unless it is a float32 tensor of one element."""
    is_of(op, name, value, (torch.float32,))
    if value.numel() != 1:
        raise ArgumentError(f"{op}: {name}: expected one element, got {tuple(value.shape)}")
    return value.reshape(1)

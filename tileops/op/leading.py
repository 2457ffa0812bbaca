"""The leading dimensions of a call's tensors, which agree and are viewed as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileops.errors import ArgumentError
from tileops.op.host_program import SlotValue, at_least_one, holds, is_known_empty, is_stepped_over
from tileops.op.variant import TensorRule

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class View:
    """Shape and strides of a tensor with its leading dimensions as one."""

    shape: tuple[SlotValue, ...]
    strides: tuple[SlotValue, ...]


class Leading:
    """The leading dimensions of one call, which all tensors with ``...`` share.

    ``copies``: a tensor whose leading dimensions cannot be viewed as one is copied by the call.
    """

    def __init__(self, op: str, copies: bool) -> None:
        self._op = op
        self._copies = copies
        self._first: tuple[str, tuple[SlotValue, ...]] | None = None  # argument and shape
        self.dims: tuple[SlotValue, ...] = ()

    def view(self, rule: TensorRule, tensor: torch.Tensor) -> View:
        """``tensor`` in the dimensions of its rule.

        ArgumentError for leading dimensions that differ from an earlier tensor's, and for those
        without one common stride if the rule has strides.
        """
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        if not rule.leading:
            return View(shape, strides)
        count = _count(rule, shape)
        self._agree(rule.name, shape, count)
        if rule.strides is not None and not self._copies:
            self.refuse_layout(rule, tensor)
        step = None if is_known_empty(shape) else one_stride(shape[:count], strides[:count])
        if step is None:  # the call copies it, or no stride matters
            strides = _row_major(shape)
            step = strides[count - 1] if count > 0 else 1
        return View((math.prod(shape[:count]), *shape[count:]), (step, *strides[count:]))

    def refuse_layout(self, rule: TensorRule, tensor: torch.Tensor) -> None:
        """ArgumentError for leading dimensions that cannot be viewed as one."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        count = _count(rule, shape)
        if is_known_empty(shape) or one_stride(shape[:count], strides[:count]) is not None:
            return
        raise ArgumentError(
            f"{self._op}: argument '{rule.name}': expected leading dimensions that can be viewed "
            f"as one dimension with one stride, got strides {strides} for shape {shape}; pass "
            f'{rule.name}.contiguous(), or declare @tileops.jit(contiguous="copy")'
        )

    def _agree(self, name: str, shape: tuple[SlotValue, ...], count: int) -> None:
        dims = shape[:count]
        if self._first is None:
            self._first = name, shape
            self.dims = dims
            return
        first, other = self._first
        if len(dims) != len(self.dims) or not all(
            a is b or holds(a == b) for a, b in zip(dims, self.dims, strict=True)
        ):
            raise ArgumentError(
                f"{self._op}: argument '{name}': expected the leading dimensions {self.dims} of "
                f"'{first}', whose shape is {other}, got {dims} in shape {shape}"
            )


def _count(rule: TensorRule, shape: Sequence[Any]) -> int:
    """The number of leading dimensions of a tensor of this shape."""
    return len(shape) - len(rule.shape) + 1


def one_stride(shape: Sequence[Any], strides: Sequence[Any]) -> SlotValue | None:
    """The stride of dimensions viewed as one, 1 for one element; None if there is none."""
    step: SlotValue | None = None
    expected: SlotValue = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if not is_stepped_over(extent):
            continue
        if step is None:
            step = expected = stride
        elif not _same(stride, expected):
            return None
        expected = expected * extent
    return 1 if step is None else step


def _same(a: SlotValue, b: SlotValue) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(a == b)


def _row_major(shape: Sequence[Any]) -> tuple[SlotValue, ...]:
    strides: list[SlotValue] = []
    step: SlotValue = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * at_least_one(extent)
    return tuple(strides)


def place_of(rule: TensorRule, tensor: torch.Tensor, kind: str, dim: int) -> str:
    """A dimension of the rule, or its stride, in words: by its place in the tensor."""
    if not rule.leading:
        return f"{kind} {dim}"
    if dim == 0:
        what = "product" if kind == "dimension" else "stride"
        return f"the {what} of the leading dimensions"
    return f"{kind} {dim + tensor.dim() - len(rule.shape)}"

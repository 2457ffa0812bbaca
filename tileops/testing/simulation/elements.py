"""Values of expressions, for all points of a nest at once: one torch tensor an expression."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    HostAttr,
    Load,
    Select,
    Unary,
    Var,
)
from tileops.ir.program import const_value

Values = torch.Tensor
_Function = Callable[..., Values]
_MULTIPROCESSORS = 4  # of the device that is simulated


def _whole(function: _Function) -> _Function:
    """A division of integers. One by zero may be in the branch of a Select that is not taken."""

    def divided(a: Values, b: Values) -> Values:
        return function(a, b if b.is_floating_point() else torch.where(b == 0, 1, b))

    return divided


def _ceildiv(a: Values, b: Values) -> Values:
    return -torch.div(-a, b, rounding_mode="floor")


_BINARY: Mapping[str, _Function] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floordiv": _whole(functools.partial(torch.div, rounding_mode="floor")),
    "floormod": _whole(torch.remainder),
    "ceildiv": _whole(_ceildiv),
    "truncdiv": _whole(functools.partial(torch.div, rounding_mode="trunc")),
    "truncmod": _whole(torch.fmod),
    "min": torch.fmin,
    "max": torch.fmax,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "land": torch.logical_and,
    "lor": torch.logical_or,
}
_UNARY: Mapping[str, _Function] = {
    "neg": torch.neg,
    "not": torch.logical_not,
    "invert": torch.bitwise_not,
}
_CALLS: Mapping[str, _Function] = {
    name: getattr(torch, name)
    for name in (
        "abs", "exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos",
        "tanh", "sigmoid", "erf", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite",
    )
}  # fmt: skip
_DTYPES = frozenset(
    (
        "bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32",
        "tfloat32", "float64", "float8_e4m3fn", "float8_e5m2",
    )
)  # fmt: skip


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype whose arithmetic is that of ``dtype``; UnsupportedConstructError for none."""
    if str(dtype) not in _DTYPES:
        raise UnsupportedConstructError(f"the simulation has no elements of {dtype}")
    return torch.float32 if dtype == "tfloat32" else dtype.as_torch()


def converted(values: Values, dtype: DType) -> Values:
    """Values as a Cast gives them: floats round to nearest, integers are cut off and saturate."""
    kind = torch_dtype(dtype)
    if values.dtype == kind:
        return values
    if dtype.is_integer and values.is_floating_point():
        if dtype.bits == 64:
            raise UnsupportedConstructError(f"the simulation converts no floats to {dtype}")
        least, most = dtype.limits
        return values.double().nan_to_num(0.0, most, least).clamp(least, most).to(kind)
    if dtype.is_fp8 and values.is_floating_point():
        largest = torch.finfo(kind).max
        return values.float().clamp(-largest, largest).to(kind)
    return values.to(kind)


class Elements:
    """Buffers and variables, by their ids.

    Variables of a nest have one value a point, in tensors that broadcast to the nest's shape.
    """

    def __init__(self, tensors: Mapping[int, Values], scalars: Mapping[int, Any]) -> None:
        self.buffers = dict(tensors)
        self.vars: dict[int, Values] = {n: torch.as_tensor(x) for n, x in scalars.items()}
        # What reads out of bounds give, for buffers where that is not 0.
        self.safe: dict[int, Values] = {}

    def number(self, expr: Expr) -> int:
        """The value of an integer or bool expression that is one for all points."""
        known = const_value(expr)
        if known is not None:
            return known
        values = self.value(expr)
        if (values != values.flatten()[0]).any():
            raise UnsupportedConstructError(f"`{expr}` differs from point to point")
        return int(values.flatten()[0])

    def value(self, expr: Expr) -> Values:
        """The values of an expression at all points."""
        match expr:
            case Const(value=value):
                return torch.tensor(value, dtype=torch_dtype(expr.dtype))
            case Var(id=n):
                return self.vars[n]
            case HostAttr(name="sm_count"):
                return torch.tensor(_MULTIPROCESSORS, dtype=torch_dtype(expr.dtype))
            case Cast(a=a, dtype=dtype):
                return converted(self.value(a), dtype)
            case Select(cond=cond, a=a, b=b):
                return torch.where(self.value(cond), self.value(a), self.value(b))
            case Load(buffer=buffer, indices=indices):
                return self.load(buffer, [self.value(i) for i in indices])
            case _:
                return self._computed(expr)

    def _computed(self, expr: Expr) -> Values:
        match expr:
            case Unary(op=op, a=a):
                return _UNARY[op](self.value(a))
            case Binary(op=op, a=a, b=b):
                return converted(_BINARY[op](self.value(a), self.value(b)), expr.dtype)
            case Call(name=name, args=args) if name in _CALLS:
                return converted(_CALLS[name](*map(self.value, args)), expr.dtype)
        raise UnsupportedConstructError(f"the simulation has no {expr.text()}")

    # -- elements of buffers ---------------------------------------------------------------------
    def load(self, buffer: Buffer, indices: Sequence[Values]) -> Values:
        """Elements of a buffer; 0 or the safe value out of bounds."""
        held = self.buffers[buffer.id]
        inside, places = _within(held, indices)
        outside = self.safe.get(buffer.id, torch.zeros((), dtype=held.dtype))
        if held.numel() == 0:
            return outside.expand(inside.shape)
        return torch.where(inside, held[places], outside)

    def store(
        self, buffer: Buffer, indices: Sequence[Values], values: Values, active: Values
    ) -> None:
        """Put elements where ``active`` and in bounds."""
        self._put(buffer, indices, values, active, adds=False)

    def add(
        self, buffer: Buffer, indices: Sequence[Values], values: Values, active: Values
    ) -> None:
        """Add to elements where ``active`` and in bounds; several points may add to one."""
        self._put(buffer, indices, values, active, adds=True)

    def _put(
        self,
        buffer: Buffer,
        indices: Sequence[Values],
        values: Values,
        active: Values,
        *,
        adds: bool,
    ) -> None:
        held = self.buffers[buffer.id]
        inside, places = _within(held, indices)
        kept = inside & active & torch.ones(values.shape, dtype=torch.bool)
        where = tuple(p.expand(kept.shape)[kept] for p in places)
        values = values.expand(kept.shape)[kept].to(held.dtype)
        held.index_put_(where, values, accumulate=adds)


def _within(held: Values, indices: Sequence[Values]) -> tuple[Values, tuple[Values, ...]]:
    """Where indices are in bounds, and the indices moved into the bounds."""
    inside = torch.ones((), dtype=torch.bool)
    places = []
    for index, extent in zip(indices, held.shape, strict=True):
        wide = index.long()
        inside = inside & (wide >= 0) & (wide < extent)
        places.append(wide.clamp(0, max(extent - 1, 0)))
    return inside, tuple(p.expand(inside.shape) for p in places)

"""Owns the inputs of a tuning whose call did not come with any: made as the call's must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tileops.autotuner.inputs import span
from tileops.errors import ArgumentError
from tileops.ir import fold
from tileops.ir.expr import Expr, Var
from tileops.ir.program import Program, TensorParam, const_value
from tileops.ir.walk import walk_expr
from tileops.jit.kernel import describe_param
from tileops.op.variant import pack_of
from tileops.profiler import TensorSupplyType, fill

_INDICES = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Known:
    """What is known of a call without its tensors.

    ``sizes`` known at the call only, ``scalars`` by name, ``fast``: whether its pointers are
    aligned and its sizes divisible, as far as code may assume it.
    """

    op: str
    sizes: Mapping[str, int]
    scalars: Mapping[str, object]
    fast: bool
    device: torch.device


def make(program: Program, known: Known, supply: TensorSupplyType) -> list[Any]:
    """Arguments of a call of ``program``, in order: shapes, strides and scalars are the call's.

    ArgumentError naming what is not known.
    """
    found: list[Any] = []
    for number, param in enumerate(program.params):
        if isinstance(param, TensorParam):
            if not param.allocated and number not in program.returns:
                found.append(_tensor(param, known, supply))
        elif param.name in known.scalars:
            found.append(known.scalars[param.name])
        else:
            raise ArgumentError(
                f"op {known.op} is not tuned for these arguments, and nothing tells the tuner the "
                f"scalar '{param.name}'; call it once before, or give inputs by "
                "set_autotune_inputs or supply_prog"
            )
    return found


def _tensor(param: TensorParam, known: Known, supply: TensorSupplyType) -> torch.Tensor:
    if param.raw:
        raise ArgumentError(
            f"op {known.op}: tuning cannot make the tensor '{param.name}', of which the program "
            "takes the address alone; call the tuned function, or give inputs by "
            "set_autotune_inputs or supply_prog"
        )
    dtype = describe_param(param).dtype
    shape = [_number(extent, param, known) for extent in param.buffer.shape]
    if (pack := pack_of(param.buffer.dtype)) > 1:
        shape[-1] //= pack
        return fill(shape, dtype, supply, known.device)
    stride = _stride(param, shape, known)
    # One element past an aligned address is not aligned.
    shift = 0 if known.fast else 1
    extent = span(shape, stride) + shift
    if supply == TensorSupplyType.Auto and dtype in _INDICES:
        # They may be indices or lengths: such as are inside of nearly everything.
        row = torch.randint(0, 2, (extent,), dtype=dtype, device=known.device)
    else:
        row = fill((extent,), dtype, supply, known.device)
    return torch.as_strided(row[shift:], shape, stride)


def _stride(param: TensorParam, shape: Sequence[int], known: Known) -> list[int]:
    if param.buffer.strides is None:
        return _contiguous(shape)
    return [_number(stride, param, known) for stride in param.buffer.strides]


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return strides[::-1]


def _number(expr: Expr, param: TensorParam, known: Known) -> int:
    sizes = {
        e.id: fold.const(known.sizes[e.name], e.dtype)
        for e in walk_expr(expr)
        if isinstance(e, Var) and e.name in known.sizes
    }
    found = const_value(fold.substitute(expr, sizes))
    if found is None:
        raise ArgumentError(
            f"op {known.op}: tuning cannot make the tensor '{param.name}': an extent or stride is "
            "not known; give inputs by set_autotune_inputs or supply_prog"
        )
    return found

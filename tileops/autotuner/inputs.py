"""The inputs of a tuning that come without a call: given ones are checked, others made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tileops.autotuner.recipes import span
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir import fold
from tileops.ir.expr import Expr, Var
from tileops.ir.program import Program, TensorParam, const_value
from tileops.ir.walk import walk_expr
from tileops.jit.kernel import describe_param
from tileops.op.variant import pack_of
from tileops.profiler import TensorSupplyType, fill

if TYPE_CHECKING:
    from tileops.autotuner.request import TuningRequest

_INDICES = (torch.int32, torch.int64)


def make(program: Program, request: TuningRequest, supply: TensorSupplyType) -> list[Any]:
    """Arguments of a call of ``program``, in order: shapes, strides and scalars are the request's.

    ArgumentError naming what is not known.
    """
    found: list[Any] = []
    for number, param in enumerate(program.params):
        if isinstance(param, TensorParam):
            if not param.allocated and number not in program.returns:
                found.append(_tensor(param, request, supply))
        elif param.name in request.scalars:
            found.append(request.scalars[param.name])
        else:
            raise ArgumentError(
                f"op {request.op} is not tuned for these arguments, and nothing tells the tuner "
                f"the scalar '{param.name}'; call it once before, or give inputs by "
                "set_autotune_inputs or supply_prog"
            )
    return found


def _tensor(param: TensorParam, request: TuningRequest, supply: TensorSupplyType) -> torch.Tensor:
    if param.raw:
        raise ArgumentError(
            f"op {request.op}: tuning cannot make the tensor '{param.name}', of which the program "
            "takes the address alone; call the tuned function, or give inputs by "
            "set_autotune_inputs or supply_prog"
        )
    dtype = describe_param(param).dtype
    shape = [_number(extent, param, request) for extent in param.buffer.shape]
    if (pack := pack_of(param.buffer.dtype)) > 1:
        shape[-1] //= pack
        return fill(shape, dtype, supply, request.device)
    if param.buffer.strides is None:
        stride = list(torch.empty(shape, device="meta").stride())
    else:
        stride = [_number(step, param, request) for step in param.buffer.strides]
    # One element past an aligned address is not aligned.
    shift = 0 if request.facts.get("fast", True) else 1
    extent = span(shape, stride) + shift
    if supply == TensorSupplyType.Auto and dtype in _INDICES:
        # They may be indices or lengths; 0 and 1 are valid nearly everywhere.
        row = torch.randint(0, 2, (extent,), dtype=dtype, device=request.device)
    else:
        row = fill((extent,), dtype, supply, request.device)
    return torch.as_strided(row[shift:], shape, stride)


def _number(expr: Expr, param: TensorParam, request: TuningRequest) -> int:
    sizes = {
        e.id: fold.const(request.sizes[e.name], e.dtype)
        for e in walk_expr(expr)
        if isinstance(e, Var) and e.name in request.sizes
    }
    found = const_value(fold.substitute(expr, sizes))
    if found is None:
        raise ArgumentError(
            f"op {request.op}: tuning cannot make the tensor '{param.name}': an extent or stride "
            "is not known; give inputs by set_autotune_inputs or supply_prog"
        )
    return found


def check_inputs(
    op: str,
    source: str,
    given: Sequence[Any],
    params: Sequence[Any],
    raw: Collection[str],
    device: torch.device,
) -> None:
    """ArgumentError or ArgumentTypeError where inputs from ``source`` are not what ``params`` take.

    Only what every config takes alike is checked: how many, which are tensors, on what kind of
    device, dtypes, and fixed extents (the last two not of the tensors ``raw``, of which any do).
    """
    names = ", ".join(p.name for p in params)
    if len(given) != len(params):
        raise ArgumentError(
            f"op {op}: {source} gave {len(given)} inputs, the program takes {len(params)} ({names})"
        )
    for value, param in zip(given, params, strict=True):
        if isinstance(value, torch.Tensor) == param.is_scalar:
            wanted = "a number" if param.is_scalar else "a tensor"
            raise ArgumentTypeError(
                f"op {op}: {source} gave {type(value).__name__} for '{param.name}', expected "
                f"{wanted}"
            )
        if isinstance(value, torch.Tensor) and value.device.type != device.type:
            raise ArgumentError(
                f"op {op}: {source} gave a tensor on {value.device} for '{param.name}', expected "
                f"one on {device}"
            )
        is_checked = isinstance(value, torch.Tensor) and param.name not in raw
        # One-byte dtypes stand for each other, as in the call itself.
        is_byte = is_checked and value.dtype.itemsize == param.dtype.itemsize == 1
        if is_checked and value.dtype != param.dtype and not is_byte:
            raise ArgumentTypeError(
                f"op {op}: {source} gave a tensor of {value.dtype} for '{param.name}', expected "
                f"{param.dtype}"
            )
        if is_checked and not _fits(tuple(value.shape), param.shape):
            raise ArgumentError(
                f"op {op}: {source} gave a tensor of shape {tuple(value.shape)} for "
                f"'{param.name}', expected ({', '.join(map(str, param.shape))})"
            )


def _fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    if wanted and wanted[0] == "...":
        rest = wanted[1:]
        count = len(shape) - len(rest)
        return count >= 0 and _fits(shape[count:], rest)
    return len(shape) == len(wanted) and all(
        isinstance(w, str) or n == w for n, w in zip(shape, wanted, strict=True)
    )

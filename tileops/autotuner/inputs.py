"""The inputs of a tuning: given, made or of the call, checked, and carried to another process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch

from tileops.autotuner.param import errors_of
from tileops.child import Message
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir import fold
from tileops.ir.expr import Expr, Var
from tileops.ir.program import TensorParam, const_value
from tileops.ir.walk import walk_expr
from tileops.jit.kernel import describe_param
from tileops.op.variant import pack_of
from tileops.profiler import TensorSupplyType, fill

if TYPE_CHECKING:
    from tileops.autotuner.param import TuningOptions
    from tileops.ir.program import Program
    from tileops.jit.eager import Choice
    from tileops.jit.kernel import KernelParam

# Above this size floats are made anew from a seed; integers are indices, lengths and masks, whose
# values decide what a program does, so they always travel.
REAL_BYTES_LIMIT = 256 << 20

_INDICES = (torch.int32, torch.int64)
_ELSEWHERE = "give inputs by set_autotune_inputs or supply_prog"

_given: ContextVar[list[Any] | None] = ContextVar("inputs", default=None)


@contextmanager
def set_autotune_inputs(*tensors: Any) -> Iterator[None]:  # noqa: ANN401
    """Tune on these inputs (in the order of a call) in the ``with`` block; of this thread only."""
    values = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    token = _given.set(list(values))
    try:
        yield
    finally:
        _given.reset(token)


# -- the inputs of a choice ------------------------------------------------------------------------
def inputs_of(choice: Choice, program: Program, options: TuningOptions) -> list[Any]:
    """Arguments to tune on: those given for it, supplied, of the call, or made."""
    params = [
        param
        for number, param in enumerate(program.params)
        if number not in program.returns and not describe_param(param).is_output
    ]
    wanted = [describe_param(param) for param in params]
    source, found = "", _given.get()
    if found is not None:
        source = "set_autotune_inputs"
    elif options.supply_prog is not None:
        source = "supply_prog"
        with errors_of(choice.op, source):
            made = options.supply_prog(wanted)
            is_single = isinstance(made, torch.Tensor) or not isinstance(made, Iterable)
            found = [made] if is_single else list(made)
    elif choice.arguments is not None and all(p.name in choice.arguments for p in wanted):
        found = [choice.arguments[p.name] for p in wanted]
    if found is None:
        return [_made(param, choice, options.supply_type) for param in params]
    if source:
        raw = {p.name for p in program.tensors() if p.raw}
        check_inputs(f"op {choice.op}: {source}", found, wanted, raw, choice.torch_device)
    copies = choice.definition.options.contiguous == "copy"
    values = [v.detach() if isinstance(v, torch.Tensor) else v for v in found]
    return [
        # The op makes these contiguous before it runs.
        v.contiguous() if copies and isinstance(p, TensorParam) and p.buffer.strides is None else v
        for v, p in zip(values, params, strict=True)
    ]


def _made(param: Any, choice: Choice, supply: TensorSupplyType) -> Any:  # noqa: ANN401
    """An argument for ``param``: shape, strides and scalar as chosen for.

    ArgumentError naming what is not known.
    """
    if isinstance(param, TensorParam):
        return _tensor(param, choice, supply)
    if param.name not in choice.scalars:
        raise ArgumentError(
            f"op {choice.op} is not tuned for these arguments, and nothing tells the tuner the "
            f"scalar '{param.name}'; call it once before, or {_ELSEWHERE}"
        )
    return choice.scalars[param.name]


def _tensor(param: TensorParam, choice: Choice, supply: TensorSupplyType) -> torch.Tensor:
    if param.raw:
        raise ArgumentError(
            f"op {choice.op}: tuning cannot make the tensor '{param.name}', of which the program "
            f"takes the address alone; call the tuned function, or {_ELSEWHERE}"
        )
    dtype, device = describe_param(param).dtype, choice.torch_device
    shape = [_number(extent, param, choice) for extent in param.buffer.shape]
    if (pack := pack_of(param.buffer.dtype)) > 1:
        shape[-1] //= pack
        return fill(shape, dtype, supply, device)
    if param.buffer.strides is None:
        stride = list(torch.empty(shape, device="meta").stride())
    else:
        stride = [_number(step, param, choice) for step in param.buffer.strides]
    # One element past an aligned address is not aligned.
    shift = 0 if choice.facts is None or choice.facts.fast else 1
    row, tensor = _placed(shape, stride, dtype, device, shift)
    if supply == TensorSupplyType.Auto and dtype in _INDICES:
        row.random_(0, 2)  # they may be indices or lengths; 0 and 1 are valid nearly everywhere
    else:
        row.copy_(fill(row.shape, dtype, supply, device))
    return tensor


def _number(expr: Expr, param: TensorParam, choice: Choice) -> int:
    known = choice.all_sizes
    sizes = {
        e.id: fold.const(known[e.name], e.dtype)
        for e in walk_expr(expr)
        if isinstance(e, Var) and e.name in known
    }
    found = const_value(fold.substitute(expr, sizes))
    if found is None:
        raise ArgumentError(
            f"op {choice.op}: tuning cannot make the tensor '{param.name}': an extent or stride "
            f"is not known; {_ELSEWHERE}"
        )
    return found


def check_inputs(
    source: str,
    given: Sequence[Any],
    params: Sequence[KernelParam],
    raw: Iterable[str],
    device: torch.device,
) -> None:
    """ArgumentError or ArgumentTypeError if inputs from ``source`` are not what ``params`` take.

    Only what every config takes alike is checked: how many, which are tensors, on what kind of
    device, dtypes, and fixed extents (the last two not of the tensors ``raw``, of which any do).
    """
    if len(given) != len(params):
        names = ", ".join(p.name for p in params)
        raise ArgumentError(
            f"{source} gave {len(given)} inputs, the program takes {len(params)} ({names})"
        )
    for value, param in zip(given, params, strict=True):
        kind: type[ArgumentError | ArgumentTypeError] = ArgumentError
        is_tensor, is_any = isinstance(value, torch.Tensor), param.name in raw
        if is_tensor == param.is_scalar:
            kind, got = ArgumentTypeError, type(value).__name__
            wanted = "a number" if param.is_scalar else "a tensor"
        elif is_tensor and value.device.type != device.type:
            got, wanted = f"a tensor on {value.device}", f"one on {device}"
        elif is_tensor and not is_any and not _is_of(value.dtype, param.dtype):
            kind, got, wanted = ArgumentTypeError, f"a tensor of {value.dtype}", f"{param.dtype}"
        elif is_tensor and not is_any and not _fits(tuple(value.shape), param.shape):
            got = f"a tensor of shape {tuple(value.shape)}"
            wanted = f"({', '.join(map(str, param.shape))})"
        else:
            continue
        raise kind(f"{source} gave {got} for '{param.name}', expected {wanted}")


def _is_of(dtype: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether a call takes the dtype: one-byte dtypes stand for each other."""
    return dtype == wanted or dtype.itemsize == wanted.itemsize == 1


def _fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    if wanted and wanted[0] == "...":
        rest = wanted[1:]
        count = len(shape) - len(rest)
        return count >= 0 and _fits(shape[count:], rest)
    return len(shape) == len(wanted) and all(
        isinstance(w, str) or n == w for n, w in zip(shape, wanted, strict=True)
    )


# -- copies, and messages from which another process makes them -----------------------------------
def packed(values: Sequence[object], *, exact: bool = False) -> Message:
    """A message that describes some arguments, and has the bytes of tensors in its rows.

    A tensor is described by shape, strides, dtype and the elements by which it misses a 16-byte
    boundary; a large one by a seed in place of its bytes, unless the copy must be ``exact``.
    ArgumentTypeError for what is neither a tensor, a number nor None.
    """
    recipe: list[dict[str, Any]] = []
    rows: list[bytearray] = []
    for number, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            row = _row(value)
            item = {
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "offset": _offset(value),
            }
            if value.is_floating_point() and row.nbytes >= REAL_BYTES_LIMIT and not exact:
                item["seed"] = number
            else:
                rows.append(bytearray(row.nbytes))
                _raw(rows[-1]).copy_(row.view(torch.uint8))
        elif value is None or isinstance(value, (bool, int, float)):
            item = {"value": value}
        else:
            raise ArgumentTypeError(
                f"argument {number}: expected a tensor or a number, got {type(value).__name__}"
            )
        recipe.append(item)
    return {"recipe": recipe, "rows": rows}


def unpacked(message: Message, device: torch.device) -> list[Any]:
    """What a message describes, on ``device``; the same in every process."""
    rows = iter(message["rows"])
    return [_remade(item, rows, device) for item in message["recipe"]]


def _remade(item: dict[str, Any], rows: Iterator[bytearray], device: torch.device) -> Any:  # noqa: ANN401
    if "value" in item:
        return item["value"]
    dtype: torch.dtype = getattr(torch, item["dtype"])
    row, tensor = _placed(item["shape"], item["stride"], dtype, device, item["offset"])
    if "seed" in item:
        generator = torch.Generator(device)
        generator.manual_seed(item["seed"])
        row.copy_(fill(row.shape, dtype, TensorSupplyType.Auto, device, generator))
    else:
        row.view(torch.uint8).copy_(_raw(next(rows)))
    return tensor


def _raw(held: bytearray) -> torch.Tensor:
    """The tensor of some bytes, on the CPU."""
    return torch.frombuffer(held, dtype=torch.uint8) if held else torch.empty(0, dtype=torch.uint8)


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last one of a strided tensor."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def _row(tensor: torch.Tensor) -> torch.Tensor:
    """The elements from a tensor's first to its last one."""
    return torch.as_strided(tensor.detach(), (span(tensor.shape, tensor.stride()),), (1,))


def _offset(tensor: torch.Tensor) -> int:
    """The elements by which a tensor misses a 16-byte boundary."""
    return tensor.data_ptr() % 16 // tensor.element_size() if tensor.numel() else 0


def _placed(
    shape: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    offset: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A new tensor so many elements past a 16-byte boundary: its memory as a row, and itself."""
    row = torch.empty(offset + span(shape, stride), dtype=dtype, device=device)[offset:]
    return row, torch.as_strided(row, shape, stride)


def clone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and the same distance from a 16-byte boundary, no gradient."""
    row, copy = _placed(tensor.shape, tensor.stride(), tensor.dtype, tensor.device, _offset(tensor))
    row.copy_(_row(tensor))
    return copy


def copies_of(inputs: Sequence[Any]) -> list[Any]:
    """The inputs, each tensor replaced by a copy that looks alike."""
    return [clone(v) if isinstance(v, torch.Tensor) else v for v in inputs]

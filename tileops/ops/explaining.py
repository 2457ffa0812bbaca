"""What a call of an operator runs, and why: program, tiles, target, and the choice in a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.errors import ArgumentError
from tileops.ops import NAMESPACE, choosing
from tileops.ops.chunks import CHUNK_BYTES
from tileops.ops.info import OpInfo, infos
from tileops.ops.programs import rows

# Programs over rows, which go through a row in parts past this many elements.
_WIDEST = dict.fromkeys(
    (
        "add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm", "rms_norm_quant",
        "silu_mul_quant", "softmax",
    ),
    rows.WIDEST,
)  # fmt: skip


@dataclass(frozen=True)
class ProgramCall:
    """A call of a program's op."""

    op: torch._ops.OpOverload
    arguments: Sequence[Any]
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the op without its namespace."""
        return str(self.op._schema.name).split("::")[1]


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[ProgramCall] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == NAMESPACE:
            self.calls.append(ProgramCall(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def recorded(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> list[ProgramCall]:
    """The programs that a call runs; it is run."""
    recorder = _Recorder()
    with torch.no_grad(), recorder:
        function(*arguments, **options)
    return recorder.calls


@dataclass(frozen=True)
class ProgramChoice:
    """One program of a call."""

    program: str
    target: str
    config: Mapping[str, int]
    reason: str


@dataclass(frozen=True)
class Explanation:
    """What ``why`` found; printed as text."""

    operator: str
    programs: tuple[ProgramChoice, ...]
    compiled: str

    def __str__(self) -> str:
        lines = [f"{self.operator}"]
        for choice in self.programs:
            config = ", ".join(f"{name}={value}" for name, value in choice.config.items())
            lines.append(f"  eager: {NAMESPACE}::{choice.program} for {choice.target} ({config})")
            lines.append(f"         {choice.reason}")
        lines.append(f"  in torch.compile: {self.compiled}")
        return "\n".join(lines)


def why(function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Explanation:
    """Which programs ``function(*arguments, **options)`` runs, with which tiles, and why.

    function: an operator of ``tileops.ops``; it is called with fake tensors, so that nothing is
    computed and nothing compiled. ArgumentError for another function.
    """
    found = next((info for info in infos() if info.call is function), None)
    if found is None:
        names = ", ".join(info.name for info in infos())
        raise ArgumentError(f"why: function: expected one of {names}, got {function!r}")
    from torch._subclasses.fake_tensor import FakeTensorMode

    tensors = [x for x in (*arguments, *options.values()) if isinstance(x, torch.Tensor)]
    with FakeTensorMode() as mode:
        fakes = [_fake(mode, x) for x in arguments]
        calls = recorded(function, fakes, {k: _fake(mode, x) for k, x in options.items()})
    columns = _columns(found, calls, tensors)
    return Explanation(
        found.name,
        tuple(_choice(call) for call in calls),
        choosing.reason(found.name, columns, tensors),
    )


def _fake(mode: Any, value: Any) -> Any:
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


def _columns(info: OpInfo, calls: Sequence[ProgramCall], tensors: Sequence[torch.Tensor]) -> int:
    first = calls[0].arguments[0] if calls else tensors[0]
    return int(first.shape[-1]) if first.dim() else 1


def _choice(call: ProgramCall) -> ProgramChoice:
    first = call.arguments[0]
    columns = int(first.shape[-1]) if first.dim() else 1
    target = first.device.type
    if call.name in _WIDEST:
        tile = rows.row_tile(columns)
        if rows.is_read_in_parts(columns):
            config = {"rows": 1, "columns": rows.PART, "threads": tile.threads}
            reason = f"a row of {columns} elements is over {rows.WIDEST} and read in parts"
        else:
            config = {"rows": tile.rows, "columns": columns, "threads": tile.threads}
            reason = f"a row of {columns} elements stays in registers"
    elif call.name.startswith("cross_entropy"):
        config = {"rows": 1, "columns": rows.PART, "threads": 256}
        reason = "rows of logits are read in parts"
    elif "attention" in call.name:
        from tileops.ops import attentions

        config, reason = attentions.config(call)
    elif call.name.startswith("grouped_mm"):
        from tileops.ops import grouped_products

        config, reason = grouped_products.config(call)
    elif call.name == "linear":
        from tileops.ops import linears

        config, reason = linears.config(call)
    elif call.name in ("int4_linear", "scaled_mm"):
        from tileops.ops import quantised_products

        config, reason = quantised_products.config(call)
    elif call.name == "linear_cross_entropy":
        logits = int(call.arguments[1].shape[0]) * first.element_size()
        config = {"rows": max(1, CHUNK_BYTES // max(1, logits))}
        reason = f"logits of so many rows take {CHUNK_BYTES >> 20} MiB"
    else:
        config = {"elements": 2048, "threads": 256}
        reason = "elements are independent; a block has a fixed number"
    return ProgramChoice(call.name, target, config, reason)

"""Owns the running of loaded programs on made inputs: once, for their results, or many times."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tileops import forks, runtime
from tileops.autotuner.inputs import clone
from tileops.errors import ArgumentError
from tileops.profiler import Timer, timer_for

# Words by which CUDA and the driver name errors after which a context runs nothing any more: those
# of a wrong address, and others.
_ADDRESS = (
    "illegal memory access",
    "illegal address",
    "misaligned address",
    "unspecified launch failure",
    "hardware stack error",
    "invalid address space",
    "global/shared address space",  # the runtime's words for an invalid address space
    "invalid program counter",
)
_FATAL = (*_ADDRESS, "illegal instruction", "device-side assert")


def status_of(error: Exception) -> tuple[str, bool]:
    """The status that an error while running means, and whether the process can go on."""
    text = str(error).lower()
    is_fatal = any(words in text for words in _FATAL)
    if any(words in text for words in _ADDRESS):
        return "illegal_access", is_fatal
    return "error", is_fatal


class Runner:
    """Programs loaded into this process, and the inputs that they run on, on one device."""

    def __init__(self, device: torch.device, backend: str = "event") -> None:
        self.device = device
        self._timer: Timer | None = None
        self._backend = backend
        self._ops: dict[str, _LoadedOp] = {}
        self._inputs: list[Any] = []
        # One set of copies for all configs: they are put back before each run.
        self._copies: dict[tuple[int, ...], list[Any]] = {}

    def load(self, name: str, loadable: Mapping[str, Any]) -> None:
        """Register the program that ``loadable`` describes, under ``name``."""
        if name not in self._ops:
            self._ops[name] = _LoadedOp(loadable)

    def set_inputs(self, inputs: list[Any]) -> None:
        """The arguments of every run from now on; programs never write into these tensors."""
        self._inputs = inputs
        self._copies.clear()

    def run(self, name: str) -> list[torch.Tensor]:
        """What one run gives: the tensors that it returns, then those that it wrote into."""
        op = self._ops[name]
        arguments = op.copies(self._inputs)
        result = op.call(arguments, self.device)
        written = [arguments[n] for n in op.mutated]
        self.synchronize()
        return [*result, *(t for t in written if isinstance(t, torch.Tensor))]

    def times(self, name: str, count: int) -> list[float]:
        """Milliseconds of ``count`` runs; what a run wrote is put back before the next."""
        op = self._ops[name]
        if op.mutated not in self._copies:
            self._copies[op.mutated] = op.copies(self._inputs)
        arguments = self._copies[op.mutated]
        if self._timer is None:
            self._timer = timer_for(self.device, self._backend)

        def restore() -> None:
            for n in op.mutated:
                if isinstance(arguments[n], torch.Tensor):
                    arguments[n].copy_(self._inputs[n])

        before = restore if op.mutated else None
        return self._timer.times(lambda: op.call(arguments, self.device), count, before)

    def synchronize(self) -> None:
        """Wait for the device, so that its errors belong to what caused them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def unload(self, name: str) -> None:
        """Free the code of a program."""
        op = self._ops.pop(name, None)
        # Two configs may be one program.
        if op is not None and all(o.handle != op.handle for o in self._ops.values()):
            runtime.unload(op.handle)


class _LoadedOp:
    def __init__(self, loadable: Mapping[str, Any]) -> None:
        op = loadable["op"]
        args = [a for a in op["args"] if a["role"] in ("tensor", "scalar")]
        self.mutated = tuple(n for n, a in enumerate(args) if a["mutated"])
        self._takes_device = any(a["role"] == "device" for a in op["args"])
        self.handle = _handle_of(op)
        variant = runtime.add_variant(self.handle, loadable["variant"])
        images: dict[str, runtime.Image] = {}
        for image, fact in loadable["images"].items():
            data = Path(fact["path"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != fact["sha256"]:
                raise ArgumentError(f"{fact['path']} is not what was compiled")
            images[image] = (data, fact["path"])
        runtime.add_entry(self.handle, variant, loadable["entry"], images)
        self._overload = getattr(getattr(torch.ops, op["namespace"]), op["name"]).default

    def call(self, arguments: list[Any], device: torch.device) -> list[torch.Tensor]:
        extra = {"device": device} if self._takes_device else {}
        result = self._overload(*arguments, **extra)
        if result is None:
            return []
        return [result] if isinstance(result, torch.Tensor) else list(result)

    def copies(self, inputs: list[Any]) -> list[Any]:
        """The arguments of a call, those that it writes into copied."""
        return [
            clone(value) if n in self.mutated and isinstance(value, torch.Tensor) else value
            for n, value in enumerate(inputs)
        ]


_handles: dict[str, int] = {}


def _handle_of(op: dict[str, Any]) -> int:
    # An op lives as long as its process, and may be loaded again after it was unloaded.
    name = f"{op['namespace']}::{op['name']}"
    with forks.guard:
        if name not in _handles:
            _handles[name] = runtime.create_op(op)
        return _handles[name]

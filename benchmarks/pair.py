"""One program of the pairs suite: source for two compilers, sizes, inputs, reference, peer call."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

# The unit roundoff of each dtype of a result.
UNIT = {
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 2.0**-24,
    torch.float8_e4m3fn: 2.0**-4,
}
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Pair:
    """A program, and what checking and timing it needs.

    ``program(T, **sizes, **tiles)`` gives a ``T.prim_func``; ``T`` is the language module of either
    compiler. ``inputs(**sizes)`` gives all its arguments, results included, on torch's default
    device. ``reference(*arguments, **sizes)`` gives what the arguments ``outputs`` must hold
    afterwards, in float64 unless it says why not. An element of a result may differ by
    ``relative`` of itself (by default the unit roundoff of its dtype, 0 for integers) and
    ``spread`` of the root mean square of its row, the last dimension, and ``floor`` of that of the
    whole result, for rows in which terms cancel; each program says where they come from. ``peer(*arguments, **sizes)`` gives a call without arguments that does
    the same work with torch, through the library ``peer_name``.
    """

    name: str
    program: Callable[..., Any]
    inputs: Callable[..., Tensors]
    reference: Callable[..., Tensors]
    outputs: tuple[int, ...]
    spread: float
    sizes: Mapping[str, Any]
    small: Mapping[str, Any]  # the sizes of a check on a CPU
    tiles: Mapping[str, Any] = field(default_factory=dict)
    small_tiles: Mapping[str, Any] = field(default_factory=dict)
    relative: float | None = None
    floor: float = 0.0
    flops: Callable[..., float] | None = None
    moved_bytes: Callable[..., float] | None = None  # by default each argument once
    peer: Callable[..., Any] | None = None
    peer_name: str = "torch"

    def sizes_of(self, small: bool) -> Mapping[str, Any]:
        """The small or the real sizes."""
        return self.small if small else self.sizes

    def build(self, language: ModuleType, small: bool = False) -> Any:
        """The prim_func for the real or the small sizes."""
        tiles = self.small_tiles if small else self.tiles
        return self.program(language, **self.sizes_of(small), **tiles)

    def arguments(self, device: str, small: bool = False) -> Tensors:
        """Fresh arguments, the same at each call."""
        torch.manual_seed(0)
        with torch.device(device):
            return self.inputs(**self.sizes_of(small))

    def expected(self, arguments: Tensors, small: bool = False) -> Tensors:
        """What the results must be."""
        return self.reference(*arguments, **self.sizes_of(small))

    def wrong(self, arguments: Tensors, expected: Tensors) -> str | None:
        """How the results among ``arguments`` differ from ``expected`` by more than allowed."""
        for at, value in zip(self.outputs, expected, strict=True):
            found = self._difference(arguments[at], value)
            if found:
                return f"result {at}: {found}"
        return None

    def _difference(self, got: torch.Tensor, value: torch.Tensor) -> str | None:
        if got.shape != value.shape:
            return f"shape {tuple(got.shape)} instead of {tuple(value.shape)}"
        relative = UNIT.get(got.dtype, 0.0) if self.relative is None else self.relative
        wrong, worst = 0, 0.0
        floor = self.floor * _root_mean_square(value) if self.floor else 0.0
        for mine, theirs in zip(_pieces(got), _pieces(value), strict=True):
            exact = theirs.double()
            error = (mine.double() - exact).abs()
            row = exact.square().mean(-1, keepdim=True).sqrt()
            bad = ~(error <= relative * exact.abs() + self.spread * row + floor)
            wrong += int(bad.sum())
            worst = max(worst, float(error.nan_to_num(nan=float("inf")).max()))
        if not wrong:
            return None
        return f"{wrong} of {got.numel()} elements are wrong, by up to {worst:.3g}"


def _root_mean_square(x: torch.Tensor) -> float:
    return math.sqrt(sum(float(p.double().square().sum()) for p in _pieces(x)) / max(1, x.numel()))


def _pieces(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Some rows after the others: a float64 copy of a whole result may not fit."""
    rows = x.reshape(-1, x.shape[-1])
    return rows.split(max(1, (1 << 26) // x.shape[-1]))


def random_normal(*shape: int, dtype: str = "float16", scale: float = 1.0) -> torch.Tensor:
    """Normally distributed numbers of a dtype that is named as the programs name it."""
    return (torch.randn(*shape) * scale).to(getattr(torch, dtype))


def program_modules() -> list[ModuleType]:
    """The modules of ``benchmarks.pairs``, by name."""
    package = importlib.import_module("benchmarks.pairs")
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"benchmarks.pairs.{name}") for name in names]
    return [m for m in modules if hasattr(m, "PAIRS")]


def all_pairs() -> Iterator[tuple[str, Pair]]:
    """Every pair with the name of its file: the first of each file, then the second of each, ...

    A run that ends early has then seen as many files as possible.
    """
    modules = program_modules()
    longest = max(len(m.PAIRS) for m in modules)
    for turn in range(longest):
        for module in modules:
            if turn < len(module.PAIRS):
                yield module.__name__.rpartition(".")[2], module.PAIRS[turn]

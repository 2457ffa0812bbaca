"""Makes random elementwise programs: conversions, bits, arithmetic, selections, of all narrow dtypes.

A program is the text of a module, so that its way through the front end is tested too. Results are
exact on every executor: no product of floats is followed by a sum, which some fuse, and where a
NaN or the sign of a zero is up to the executor, nothing looks at its bits.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SIZE = 512
ROWS = 8
INTEGERS = {
    "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64,
}  # fmt: skip
FLOATS = {"float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}
DTYPES = {**INTEGERS, **FLOATS}


class Expressions:
    """Random expressions of one seed; ``value(dtype, depth)`` is the text of one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, dtype: str, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.12:
            return f"{dtype}_[i]"
        makers = self._floats() if dtype in FLOATS else self._integers()
        return self.random.choice(makers)(dtype, depth - 1)

    def _floats(self) -> list[Callable[[str, int], str]]:
        return [
            lambda d, n: f"(-{self.value(d, n)})",
            lambda d, n: f"T.abs({self.value(d, n)})",
            lambda d, n: f"T.copysign({self.value(d, n)}, {d}_[i])",
            lambda d, n: f"({self.value(d, n)} {self.random.choice('+-')} {self.value(d, n)})",
            self._extreme,
            self._selection,
            lambda d, n: self._conversion(d, n, [f for f in FLOATS if f != d]),
            # More bits than these would leave the range of the narrow floats.
            lambda d, n: self._conversion(d, n, ["int8", "uint8"]),
        ]

    def _integers(self) -> list[Callable[[str, int], str]]:
        return [
            lambda d, n: f"({self.value(d, n)} {self.random.choice('+-*')} {self.value(d, n)})",
            lambda d, n: f"({self.value(d, n)} {self.random.choice('&|^')} {self.value(d, n)})",
            lambda d, n: f"(~{self.value(d, n)})",
            lambda d, n: (
                f"({self.value(d, n)} {self.random.choice(['<<', '>>'])} {self.value(d, n)})"
            ),
            lambda d, n: (
                f"({self.value(d, n)} {self.random.choice(['//', '%'])} {self.value(d, n)})"
            ),
            lambda d, n: (
                f"T.{self.random.choice(['ceildiv', 'align_up'])}"
                f"({self.value(d, n)}, {self.value(d, n)})"
            ),
            self._extreme,
            self._selection,
            self._bits,
            lambda d, n: self._conversion(d, n, [t for t in DTYPES if t != d]),
        ]

    def _extreme(self, dtype: str, depth: int) -> str:
        name = self.random.choice(["max", "min"])
        return f"T.{name}({self.value(dtype, depth)}, {self.value(dtype, depth)})"

    def _selection(self, dtype: str, depth: int) -> str:
        other = self.random.choice(list(DTYPES))
        symbol = self.random.choice(["<", ">", "==", "!=", "<=", ">="])
        condition = f"{self.value(other, depth)} {symbol} {self.value(other, depth)}"
        return (
            f"T.if_then_else({condition}, {self.value(dtype, depth)}, {self.value(dtype, depth)})"
        )

    def _conversion(self, dtype: str, depth: int, sources: list[str]) -> str:
        return f"T.cast({self.value(self.random.choice(sources), depth)}, T.{dtype})"

    def _bits(self, dtype: str, depth: int) -> str:
        """The bits of an integer, or of a float that was only converted."""
        width = DTYPES[dtype]
        same = [d for d, bits in DTYPES.items() if bits == width and d != dtype]
        if not same:
            return self.value(dtype, depth)
        source = self.random.choice(same)
        if source in INTEGERS:
            return f"T.reinterpret({self.value(source, depth)}, T.{dtype})"
        first = self.random.choice([*FLOATS, "int8", "uint8"])
        return f"T.reinterpret(T.cast({first}_[i], T.{source}), T.{dtype})"


def text_of(seed: int) -> str:
    """A module with a function ``program`` that takes a vector of each dtype and returns eight."""
    made = Expressions(seed)
    outputs = [made.random.choice(list(DTYPES)) for _ in range(ROWS)]
    names = ", ".join(f"O{n}" for n in range(ROWS))
    return "\n".join(
        [
            "import tileops.language as T",
            f"def program({', '.join(f'{d}_' for d in DTYPES)}):",
            *(f"    {d}_: T.Tensor(({SIZE},), T.{d})" for d in DTYPES),
            *(f"    O{n} = T.empty(({SIZE},), T.{d})" for n, d in enumerate(outputs)),
            f"    with T.Kernel(1, threads={made.random.choice([32, 64, 128])}):",
            f"        for i in T.Parallel({SIZE}):",
            *(
                f"            O{n}[i] = {made.value(d, made.random.choice([2, 3, 4]))}"
                for n, d in enumerate(outputs)
            ),
            f"    return {names}",
            "",
        ]
    )


def function_of(seed: int, folder: Path) -> Any:
    """The function ``program`` of the seed's module, which lies in ``folder``."""
    path = folder / f"expressions_{seed}.py"
    path.write_text(text_of(seed), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program


def inputs_of(seed: int) -> list[torch.Tensor]:
    """A vector of each dtype: any integers, a third of them small, and floats of a few bits."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for dtype, bits in INTEGERS.items():
        hi = 1 << min(bits - (dtype[0] != "u"), 62)
        lo = 0 if dtype[0] == "u" else -hi
        x = torch.randint(lo, hi, (SIZE,), generator=generator, dtype=torch.int64)
        x[::3] = torch.randint(max(lo, -9), 9, (SIZE,), generator=generator)[::3]
        out.append(x.to(getattr(torch, dtype)))
    floats = (torch.randn(SIZE, generator=generator) * 4 for _ in FLOATS)
    return out + [x.to(getattr(torch, d)) for d, x in zip(FLOATS, floats, strict=True)]


def differences(seed: int, expected: list[torch.Tensor], got: list[torch.Tensor]) -> list[str]:
    """What differs, as text: numbers by value, NaN by being one."""
    lines = [line for line in text_of(seed).splitlines() if "[i] = " in line]
    found = []
    for n, (a, b) in enumerate(zip(expected, got, strict=True)):
        assert a.dtype == b.dtype
        x, y = (t.double() if t.is_floating_point() else t.long() for t in (a, b))
        wrong = (x != y) & ~((x != x) & (y != y))
        if bool(wrong.any()):
            at = int(wrong.nonzero()[0])
            found.append(
                f"seed {seed}, {int(wrong.sum())} elements, at {at}: {x[at]} and {y[at]}: {lines[n].strip()}"
            )
    return found

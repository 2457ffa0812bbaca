"""Arithmetic on constants gives what it gives at run time, in every float dtype."""

from __future__ import annotations

import itertools
import operator
from pathlib import Path

import pytest
import torch

from tests.property.conversions import module_of
from tests.property.test_conversions import on_interpreter

OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
# Sums, products and quotients of these need a rounding in each dtype; some overflow in one.
NUMBERS = ("0.1", "1.0", "16777216.0", "2049.0", "nan", "inf", "0.10000000001")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_constants(dtype: str, tmp_path: Path) -> None:
    cases = list(itertools.product(NUMBERS, OPERATORS, NUMBERS))
    lines = [
        "import tileops",
        "import tileops.language as T",
        "nan, inf = float('nan'), float('inf')",
        f"@tileops.jit(name='constants_{dtype}')",
        "def program():",
        f"    B = T.empty(({len(cases)},), T.float64)",
        "    with T.Kernel(1, threads=32):",
        *(
            f"        B[{n}] = T.cast(T.cast({a}, T.{dtype}) {op} T.cast({b}, T.{dtype}), T.float64)"
            for n, (a, op, b) in enumerate(cases)
        ),
        "    return B",
        "",
    ]
    program = module_of("\n".join(lines), tmp_path / f"constants_{dtype}.py")
    wanted = []
    for a, op, b in cases:
        # A float literal is a float32; a cast to float64 keeps its digits.
        first = torch.float64 if dtype == "float64" else torch.float32
        x, y = (torch.tensor(float(v), dtype=first).to(getattr(torch, dtype)) for v in (a, b))
        wanted.append(OPERATORS[op](x, y).double().item())
    for name, got in (
        ("CPU", program()),
        ("GPU text", on_interpreter(program, target="cuda:sm_90")[0]),
    ):
        for case, x, y in zip(cases, got.tolist(), wanted, strict=True):
            assert x == y or (x != x and y != y), f"{name}: {' '.join(case)} gives {x}, not {y}"

"""Conversions on the GPU round once, and extremes prefer a number to NaN (see tests/property)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.gpu.test_random_programs import FIRST
from tests.kit.formats import DTYPES, PACKED
from tests.property import conversions, extremes
from tests.property.extremes import FLOATS, INF, NAN, agree, stored
from tests.property.test_conversions import PAIRS
from tests.property.test_extremes import ARITHMETIC

pytestmark = pytest.mark.gpu


def on_gpu(program: object, *inputs: torch.Tensor | float) -> list[torch.Tensor]:
    moved = [x.cuda() if isinstance(x, torch.Tensor) else x for x in inputs]
    out = program(*moved)  # type: ignore[operator]
    return [x.cpu() for x in (out if isinstance(out, tuple) else (out,))]


@pytest.mark.parametrize("copies", [False, True], ids=["casts", "copies"])
@pytest.mark.parametrize("source", DTYPES)
def test_values(source: str, copies: bool, tmp_path: Path) -> None:
    given = conversions.padded(conversions.inputs_of(source, PAIRS, FIRST), source)
    length = given.numel() * (2 if source in PACKED else 1)
    program = conversions.program_of(source, length, tmp_path, copies=copies)
    found = conversions.faults(source, given, on_gpu(program, given))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("source", [d for d in DTYPES if d not in PACKED])
def test_constants(source: str, tmp_path: Path) -> None:
    program, numbers = conversions.constants_of(source, FIRST, tmp_path)
    with torch.device("cuda"):
        out = program()
    found = conversions.faults_of_constants(source, numbers, [x.cpu() for x in out])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("dtype", FLOATS)
def test_expressions(dtype: str, tmp_path: Path) -> None:
    made = extremes.expressions_of(dtype, FIRST)
    left, right = extremes.operands_of(dtype)
    a, b = stored(left, dtype), stored(right, dtype)
    program = extremes.program_of_expressions(dtype, made, len(left), tmp_path)
    for s in (NAN, 0.5, -INF):
        for expression, row in zip(made, on_gpu(program, a, b, s)[0], strict=True):
            wanted = [expression.value(x, y, s) for x, y in zip(left, right, strict=True)]
            assert agree(row, wanted), f"s = {s}: {expression.text}"


@pytest.mark.parametrize("length", [4, 7])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions(dtype: str, length: int, tmp_path: Path) -> None:
    rows = extremes.rows_of(dtype, length, FIRST)
    rows = [r for r in rows if extremes.sums_are_exact(dtype, r)]
    old = [[NAN, 1.0][n % 2] for n in range(len(rows))]
    a = stored(rows, dtype)
    turned = a.view(torch.uint8).view(a.dtype).t().contiguous()
    program = extremes.program_of_reductions(dtype, len(rows), length, tmp_path)
    (got,) = on_gpu(program, a, turned, stored(old, dtype))
    assert agree(got, extremes.expected_reductions(dtype, rows, old))


@pytest.mark.parametrize("length", [4, 7])
@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_scans(dtype: str, length: int, tmp_path: Path) -> None:
    rows = extremes.rows_of(dtype, length, FIRST)
    rows = [r for r in rows if extremes.sums_are_exact(dtype, r)][:24]
    a = stored(rows, dtype)
    program = extremes.program_of_scans(dtype, len(rows), length, tmp_path)
    wanted = extremes.expected_scans(rows)
    for n, (got, expected) in enumerate(
        zip(on_gpu(program, a, a.t().contiguous()), wanted, strict=True)
    ):
        assert agree(got if n % 2 == 0 else got.double().t(), expected), f"scan {n}"


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "tiles"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_updates(dtype: str, memory: bool, tmp_path: Path) -> None:
    rows = extremes.rows_of(dtype, 16, FIRST)
    old = [[NAN, -NAN, 1.0, -2.0][n % 4] for n in range(len(rows))]
    a, before = stored(rows, dtype), stored(old, dtype)
    program = extremes.program_of_updates(dtype, len(rows), 16, tmp_path, memory=memory)
    p, q = before.cuda(), before.cuda()
    program(a.cuda(), p, q)
    for kind, got in (("max", p), ("min", q)):
        wanted = [extremes.extreme(kind, [*row, x]) for row, x in zip(rows, old, strict=True)]
        assert agree(got.cpu(), wanted), kind

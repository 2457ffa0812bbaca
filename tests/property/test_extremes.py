"""Maxima, minima, sums and scans with NaN and infinities at each place, on every executor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.property import extremes
from tests.property.extremes import FLOATS, INF, NAN, agree, stored
from tests.property.test_conversions import on_interpreter
from tests.property.test_programs import FIRST

ARITHMETIC = [d for d in FLOATS if d != "float8_e8m0fnu"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_expressions(dtype: str, tmp_path: Path) -> None:
    made = extremes.expressions_of(dtype, FIRST)
    left, right = extremes.operands_of(dtype)
    a, b = stored(left, dtype), stored(right, dtype)
    program = extremes.program_of_expressions(dtype, made, len(left), tmp_path)
    for s in (NAN, 0.5, -INF):
        results = {"CPU": program(a, b, s)}
        for target in ("cuda:sm_80", "cuda:sm_89"):
            (results[target],) = on_interpreter(program, a, b, s, target=target)
        for name, got in results.items():
            for expression, row in zip(made, got, strict=True):
                wanted = [expression.value(x, y, s) for x, y in zip(left, right, strict=True)]
                assert agree(row, wanted), f"{name}, s = {s}: {expression.text}"


@pytest.mark.parametrize("length", [4, 7])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions(dtype: str, length: int, tmp_path: Path) -> None:
    rows = extremes.rows_of(dtype, length, FIRST)
    if dtype == "float8_e5m2":
        rows = [r for r in rows if extremes.sums_are_exact(dtype, r)]
    old = [[NAN, 1.0][n % 2] for n in range(len(rows))]
    a = stored(rows, dtype)
    inputs = (a, a.view(torch.uint8).view(a.dtype).t().contiguous(), stored(old, dtype))
    program = extremes.program_of_reductions(dtype, len(rows), length, tmp_path)
    wanted = extremes.expected_reductions(dtype, rows, old)
    assert agree(program(*inputs), wanted), "CPU"
    (got,) = on_interpreter(program, *inputs, target="cuda:sm_90")
    assert agree(got, wanted), "GPU text"


@pytest.mark.parametrize("length", [4, 7])
@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_scans(dtype: str, length: int, tmp_path: Path) -> None:
    rows = extremes.rows_of(dtype, length, FIRST)
    rows = [r for r in rows if extremes.sums_are_exact(dtype, r)][:24]
    a = stored(rows, dtype)
    inputs = (a, a.t().contiguous())
    program = extremes.program_of_scans(dtype, len(rows), length, tmp_path)
    wanted = extremes.expected_scans(rows)
    on_gpu = on_interpreter(program, *inputs, target="cuda:sm_90")
    for name, results in (("CPU", program(*inputs)), ("GPU text", on_gpu)):
        for n, (got, expected) in enumerate(zip(results, wanted, strict=True)):
            by_rows = got if n % 2 == 0 else got.double().t()
            assert agree(by_rows, expected), f"{name}, scan {n}"


@pytest.mark.parametrize("kind", ["max", "min"])
def test_infinities_of_float8_e5m2_stay(kind: str, tmp_path: Path) -> None:
    """A chosen element is not converted, and so does not saturate."""
    rows = extremes.rows_of("float8_e5m2", 4, FIRST)
    a = stored(rows, "float8_e5m2")
    text = "\n".join(
        [
            "import tileops",
            "import tileops.language as T",
            f"@tileops.jit(name='chosen_{kind}')",
            "def program(A):",
            f"    A: T.Tensor(({len(rows)}, 4), T.float8_e5m2)",
            f"    C = T.empty(({len(rows)},), T.float8_e5m2)",
            f"    D = T.empty(({len(rows)}, 4), T.float8_e5m2)",
            "    with T.Kernel(1, threads=32):",
            f"        x = T.alloc_shared(({len(rows)}, 4), T.float8_e5m2)",
            f"        r = T.alloc_fragment(({len(rows)},), T.float8_e5m2)",
            "        T.copy(A, x)",
            f"        T.reduce_{kind}(x, r, dim=1)",
            "        T.copy(r, C)",
            "        T.cummax(x, dim=1)",
            "        T.copy(x, D)",
            "    return C, D",
            "",
        ]
    )
    program = extremes.module_of(text, tmp_path / f"chosen_{kind}.py")
    wanted = [extremes.extreme(kind, row) for row in rows]
    running = [extremes.extreme("max", row[: n + 1]) for row in rows for n in range(4)]
    for got, scanned in (program(a), on_interpreter(program, a, target="cuda:sm_90")):
        assert agree(got, wanted)
        assert agree(scanned, running)


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "tiles"])
@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_updates(dtype: str, memory: bool, tmp_path: Path) -> None:
    rows = extremes.rows_of(dtype, 4, FIRST)
    old = [[NAN, -NAN, 1.0, -2.0][n % 4] for n in range(len(rows))]
    a, before = stored(rows, dtype), stored(old, dtype)
    program = extremes.program_of_updates(dtype, len(rows), 4, tmp_path, memory=memory)
    wanted = [
        [extremes.extreme(kind, [*row, x]) for row, x in zip(rows, old, strict=True)]
        for kind in ("max", "min")
    ]
    executors = ["CPU"]
    if not memory or dtype in ("float32", "float64"):  # GPUs have no atomic extremes of 16 bits
        executors.append("GPU text")
    for name in executors:
        p, q = before.clone(), before.clone()
        if name == "CPU":
            program(a, p, q)
        else:
            on_interpreter(program, a, p, q, target="cuda:sm_90")
        assert agree(p, wanted[0]), name
        assert agree(q, wanted[1]), name

"""Every dtype of the language through tensors, shared tiles, fragments and casts, exactly."""

from __future__ import annotations

import pytest
import torch

from tests.kit.executors import EXECUTORS, compile_for, run
from tests.kit.formats import DTYPES, random_tensor, rounded, values
from tests.programs.dtype_tables import narrowed, through

# Halves, quarters and their neighbours: ties of every narrow format, and values beyond its range.
SPECIAL = (0.0, -0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.5, 7.5, 8.5, 15.5, 0.24, 5.1, 4.9)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def wide_of(dtype: str) -> str:
    return "int64" if dtype in ("int64", "uint64") else "float64"


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_through_every_storage(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 11, 50)
    same, tiles, elements = run(executor, through, a, dt=dtype, wide=wide_of(dtype))
    assert torch.equal(same.view(torch.uint8), a.view(torch.uint8))
    for found in (tiles, elements):
        assert torch.equal(found, values(a, dtype))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_conversion_from_float32(dtype: str, executor: str) -> None:
    x = torch.randn(11, 50) * 4
    x[0, : len(SPECIAL)] = torch.tensor(SPECIAL)
    x[1, : len(SPECIAL)] = -torch.tensor(SPECIAL)
    if dtype.startswith("uint") and dtype != "uint4":
        x = x.abs()
    if (dtype.startswith("float") and dtype not in ("float16",)) or dtype in ("int4", "uint4"):
        x[2] *= 1e4
    if dtype in ("int4", "uint4", "float4_e2m1fn"):
        x[3, :3] = torch.tensor([float("inf"), -float("inf"), float("nan")])
    for found in run(executor, narrowed, x, dt=dtype):
        assert torch.equal(values(found, dtype), rounded(x, dtype))
        if dtype.startswith("float") and dtype != "float8_e8m0fnu":
            assert torch.equal(values(found, dtype).signbit(), rounded(x, dtype).signbit())


@pytest.mark.parametrize("source", ["float64", "int64", "float16", "uint4"])
@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn", "float8_e8m0fnu"])
def test_conversion_from_other_dtypes(dtype: str, source: str) -> None:
    """Integers wrap to 4-bit integers; float64 is rounded once."""
    x = random_tensor(source, 11, 50)
    if source == "float64":
        near_ties = [2.5 + 2**-40, 0.25 + 2**-50, 1.5 - 2**-40, 5 + 2**-45]
        x[0, :4] = torch.tensor(near_ties, dtype=torch.float64)
    exact = values(x, source)
    if dtype in ("int4", "uint4") and source not in ("float64", "float16"):
        codes = exact.long() & 15
        expected = (codes if dtype == "uint4" else (codes ^ 8) - 8).double()
    elif dtype == "float8_e8m0fnu":
        expected = values(exact.double().float().to(torch.float8_e8m0fnu), dtype)
        if source == "float64":
            expected[0, 2] = 1.0
    else:
        expected = rounded(exact.double(), dtype)
    for executor in EXECUTORS:
        for found in run(executor, narrowed, x, dt=dtype, source=source):
            assert torch.equal(values(found, dtype), expected), executor


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiles_for_sm_90(dtype: str) -> None:
    a = random_tensor(dtype, 16, 64)
    source = compile_for("cuda:sm_90", through, a, dt=dtype, wide=wide_of(dtype))
    if dtype in ("int4", "uint4", "float4_e2m1fn"):
        assert "tl.join(" in source  # each byte is read once
    compile_for("cuda:sm_90", narrowed, torch.randn(16, 64), dt=dtype)

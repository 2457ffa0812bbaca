"""The dtype table and the packed programs on the GPU, exactly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dtypes"))

from executors import run
from formats import DTYPES, PACKED, random_tensor, rounded, values
from packed_programs import aliased, in_place, matmul
from table_programs import narrowed, through

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", DTYPES)
def test_through_every_storage(dtype: str) -> None:
    a = random_tensor(dtype, 11, 50)
    wide = "int64" if dtype in ("int64", "uint64") else "float64"
    same, tiles, elements = run("gpu", through, a, dt=dtype, wide=wide)
    assert torch.equal(same.view(torch.uint8), a.view(torch.uint8))
    for found in (tiles, elements):
        assert torch.equal(found, values(a, dtype))


@pytest.mark.parametrize(
    "dtype", [d for d in DTYPES if d.startswith(("float", "bfloat")) or d in PACKED]
)
def test_conversion_from_float32(dtype: str) -> None:
    x = torch.randn(11, 50) * 4
    for found in run("gpu", narrowed, x, dt=dtype):
        assert torch.equal(values(found, dtype), rounded(x, dtype))


@pytest.mark.parametrize("dtype", PACKED)
def test_stores_and_views(dtype: str) -> None:
    a = random_tensor(dtype, 11, 50)
    twice = a.clone()
    run("gpu", in_place, twice, dt=dtype)
    assert torch.equal(values(twice, dtype)[0::2], values(a, dtype)[0::2])
    a = random_tensor(dtype, 3, 128)
    raw, again, _ = run("gpu", aliased, a, dt=dtype)
    assert torch.equal(raw, a.view(torch.uint8))
    assert torch.equal(again.view(torch.uint8), a.view(torch.uint8))


@pytest.mark.parametrize(
    ("dtype", "acc"), [("int4", "int32"), ("uint4", "int32"), ("float4_e2m1fn", "float32")]
)
def test_gemm(dtype: str, acc: str) -> None:
    a, b = random_tensor(dtype, 40, 130), random_tensor(dtype, 36, 130)
    (c,) = run("gpu", matmul, a, b, dt=dtype, acc=acc)
    assert torch.equal(c.double(), values(a, dtype) @ values(b, dtype).T)

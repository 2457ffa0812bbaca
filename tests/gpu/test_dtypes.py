"""The dtype table and the packed programs on the GPU, exactly."""

from __future__ import annotations

import pytest
import torch

from tests.kit.executors import run
from tests.kit.formats import DTYPES, PACKED, random_tensor, rounded, values
from tests.programs.dtype_tables import narrowed, through
from tests.programs.packed_dtypes import aliased, in_place, matmul, strided
from tests.programs.pointers import from_pointer, grouped_matmul
from tests.programs.vectors import bits_of_pairs, gemv_dp4a, packed_math, roles

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


@pytest.mark.parametrize("dtype", PACKED)
def test_strided(dtype: str) -> None:
    host = [random_tensor(dtype, 11, n) for n in (128, 80, 256)]
    device = [x.cuda() for x in host]
    for a, b, c in (host, device):
        strided(a[:, 3:28], b[:, 4:29], c[:, 1:26], dt=dtype)
    for expected, got in zip(host, device, strict=True):
        assert torch.equal(got.cpu().view(torch.uint8), expected.view(torch.uint8))


def test_pointer_parameters() -> None:
    a, c = torch.randn(11, 50), torch.zeros(11, 50)
    run("gpu", from_pointer, a, c, 11, 50)
    assert torch.equal(c, a + 1)


def test_grouped_matmul_by_addresses() -> None:
    rows = (1, 40, 77)
    a = [torch.randn(m, 64).half().cuda() for m in rows]
    b = [torch.randn(64, 48).half().cuda() for _ in rows]
    c = [torch.full((m, 48), float("nan"), device="cuda") for m in rows]
    tables = [torch.tensor([t.data_ptr() for t in x], device="cuda") for x in (a, b, c)]
    grouped_matmul(*tables, torch.tensor(rows, dtype=torch.int32, device="cuda"))
    for x, y, z in zip(a, b, c, strict=True):
        exact = x.double() @ y.double()
        # 64 float32 additions of exact products, each of 2^-22 of the sum of magnitudes at most.
        bound = 66 * 2.0**-22 * (x.double().abs() @ y.double().abs())
        assert ((z.double() - exact).abs() <= bound).all()


def test_vectors() -> None:
    a, b = torch.randn(34), torch.randn(34)
    (c,) = run("gpu", packed_math, a, b)
    assert torch.equal(c[0], a + b)
    assert torch.equal(c[4], torch.minimum(a, b))
    halves = torch.randn(16).half()
    words, swapped, _ = run("gpu", bits_of_pairs, halves)
    assert torch.equal(words.view(torch.float16), halves)
    assert torch.equal(swapped, halves.view(-1, 2).flip(1).flatten())


def test_dot_products_and_thread_indices() -> None:
    a = torch.randint(-128, 128, (5, 64), dtype=torch.int8)
    x = torch.randint(-128, 128, (64,), dtype=torch.int8)
    (y,) = run("gpu", gemv_dp4a, a, x)
    assert torch.equal(y.long(), a.long() @ x.long())
    z = torch.randn(300)
    (c,) = run("gpu", roles, z)
    assert torch.equal(c, z * 3 + 1)

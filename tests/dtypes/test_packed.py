"""Tensors of 4-bit dtypes: stores of whole bytes, views, bit casts, arithmetic, products."""

from __future__ import annotations

import pytest
import torch

from tests.kit.executors import EXECUTORS, compile_for, run
from tests.kit.formats import FP4, PACKED, nibbles, packed, random_tensor, rounded, values
from tests.programs.packed_dtypes import (
    aliased,
    arithmetic,
    bit_casts,
    dynamic_rows,
    filled,
    in_place,
    matmul,
    reduced,
    spelled_out,
    strided,
    workspace,
)
from tileops.errors import ArgumentError

both = pytest.mark.parametrize("executor", EXECUTORS)
every = pytest.mark.parametrize("dtype", PACKED)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def wrapped(exact: torch.Tensor, dtype: str) -> torch.Tensor:
    """The result of exact arithmetic as the dtype holds it: wrapped, or rounded and saturated."""
    if dtype == "float4_e2m1fn":
        return rounded(exact, dtype)
    low = exact.long() & 15
    return (low if dtype == "uint4" else (low ^ 8) - 8).double()


@both
@every
def test_store_under_a_condition(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 11, 50)
    before = values(a, dtype)
    run(executor, in_place, a, dt=dtype)
    expected = before.clone()
    expected[1::2] = wrapped(before[1::2] + 1, dtype)
    assert torch.equal(values(a, dtype), expected)


@both
def test_stores_that_the_program_pairs(executor: str) -> None:
    a = random_tensor("int4", 5, 32)
    swapped, reversed_ = run(executor, spelled_out, a)
    x = nibbles(a)
    assert torch.equal(nibbles(swapped), x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2))
    assert torch.equal(nibbles(reversed_), x.flip(-1))


@both
@every
def test_fill(dtype: str, executor: str) -> None:
    (c,) = run(executor, filled, value=1.5, dt=dtype)
    expected = torch.zeros(6, 32, dtype=torch.float64)
    expected[:, :16] = 1.5 if dtype == "float4_e2m1fn" else 1.0
    assert torch.equal(values(c, dtype), expected)


@both
@every
def test_views(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 3, 128)
    raw, again, flat = run(executor, aliased, a, dt=dtype)
    assert torch.equal(raw, a.view(torch.uint8))
    assert torch.equal(again.view(torch.uint8), a.view(torch.uint8))
    inverted = packed(nibbles(a) ^ 15, dtype)
    assert torch.equal(flat.double(), values(inverted, dtype))


@both
def test_bit_casts(executor: str) -> None:
    a = random_tensor("float4_e2m1fn", 3, 64)
    codes, signed, back = run(executor, bit_casts, a)
    assert torch.equal(codes.long(), nibbles(a))
    assert torch.equal(signed.long(), (nibbles(a) ^ 8) - 8)
    assert torch.equal(back.double(), FP4[nibbles(a)])


@both
@every
def test_arithmetic(dtype: str, executor: str) -> None:
    a, b = (random_tensor(dtype, 4, 64) for _ in range(2))
    x, y = values(a, dtype), values(b, dtype)
    total, product, least, negated = run(executor, arithmetic, a, b, dt=dtype)
    assert torch.equal(total.double(), wrapped(x + y, dtype))
    assert torch.equal(product.double(), wrapped(x * y, dtype))
    assert torch.equal(least.double(), torch.minimum(x, y))
    assert torch.equal(negated.double(), wrapped(-x, dtype))


@both
@pytest.mark.parametrize(
    ("dtype", "acc"),
    [("int4", "int32"), ("uint4", "int32"), ("float4_e2m1fn", "float32")],
)
def test_gemm(dtype: str, acc: str, executor: str) -> None:
    a, b = random_tensor(dtype, 40, 130), random_tensor(dtype, 36, 130)
    (c,) = run(executor, matmul, a, b, dt=dtype, acc=acc)
    # Products are multiples of a quarter and their sums below 2^13: exact in either accumulator.
    assert torch.equal(c.double(), values(a, dtype) @ values(b, dtype).T)


@both
@every
def test_reductions_and_transpose(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 8, 64)
    total, most, turned = run(executor, reduced, a, dt=dtype)
    x = values(a, dtype)
    assert torch.equal(total.double(), x.sum(1))
    assert torch.equal(values(most[None], dtype)[0], x.amax(1))
    assert torch.equal(turned.double(), x.T)


@both
@every
def test_run_time_sizes(dtype: str, executor: str) -> None:
    for shape in ((5, 34), (4, 64), (1, 2)):
        a = random_tensor(dtype, *shape)
        c, shifted = run(executor, dynamic_rows, a, dt=dtype)
        assert torch.equal(c.view(torch.uint8), a.view(torch.uint8))
        x = values(a, dtype)
        expected = torch.cat([x[:, 1:], torch.ones(shape[0], 1).double()], dim=1)
        assert torch.equal(shifted.double(), expected)


@both
def test_workspace(executor: str) -> None:
    a = random_tensor("int4", 6, 32)
    (c,) = run(executor, workspace, a)
    assert torch.equal(c, a.flip(0))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
def test_int4_gemm_compiles(target: str) -> None:
    a, b = random_tensor("int4", 64, 128), random_tensor("int4", 64, 128)
    assert "out_dtype=tl.int32" in compile_for(target, matmul, a, b)


@both
@every
def test_strided(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 11, 128)[:, 3:28]
    b, c = random_tensor(dtype, 11, 80), random_tensor(dtype, 11, 256)
    before = b.clone()
    run(executor, strided, a, b[:, 4:29], c[:, 1:26], dt=dtype)
    assert torch.equal(b[:, 4:29].view(torch.uint8), a.view(torch.uint8))
    for rest in (slice(0, 4), slice(29, None)):
        assert torch.equal(b[:, rest].view(torch.uint8), before[:, rest].view(torch.uint8))
    assert torch.equal(values(c[:, 1:26], dtype), wrapped(-values(a, dtype), dtype))


def test_strides_of_a_call() -> None:
    a, b = torch.zeros(11, 25, dtype=torch.int8), torch.zeros(11, 25, dtype=torch.int8)
    wide = torch.zeros(11, 50, dtype=torch.int8)[:, :25]
    strided(a, b, wide)
    with pytest.raises(ArgumentError, match=r"expected stride 0 to be 100 .*got 50 in strides"):
        strided(a, b, b.clone())
    with pytest.raises(ArgumentError, match="expected stride 1 to be 1"):
        strided(a, torch.zeros(25, 11, dtype=torch.int8).T, wide)

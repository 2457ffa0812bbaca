"""Vectors of scalars, dot products of bytes and thread indices, on every executor."""

from __future__ import annotations

import pytest
import torch

import tileops.language as T
from tests.kit.executors import EXECUTORS, compile_for, run
from tests.programs.vectors import bits_of_pairs, gemv_dp4a, packed_math, roles
from tileops.errors import (
    ProgramIndexError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)

both = pytest.mark.parametrize("executor", EXECUTORS)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@both
def test_two_lanes(executor: str) -> None:
    a, b = torch.randn(34), torch.randn(34)
    (c,) = run(executor, packed_math, a, b)
    fused = (a.double() * b.double() + a.double()).float()
    expected = [
        a + b,
        a - b,
        a * b,
        torch.maximum(a, b),
        torch.minimum(a, b),
        fused,
        a.abs(),
        a * 2 - b,
    ]
    # float32 of a float64 product and sum is the fused result but for double rounding: one unit.
    assert (c[5] - fused).abs().max() <= 2.0**-23 * fused.abs().max()
    for row, want in enumerate(expected):
        if row != 5:
            assert torch.equal(c[row], want), row


@both
def test_bits(executor: str) -> None:
    a = torch.randn(16).half()
    words, swapped, nibbles = run(executor, bits_of_pairs, a)
    assert torch.equal(words.view(torch.float16), a)
    assert torch.equal(swapped, a.view(-1, 2).flip(1).flatten())
    raw = a.view(torch.uint8).view(-1, 4).int()
    assert torch.equal(nibbles, torch.stack([raw & 15, raw >> 4], -1).flatten(1))


@both
def test_dp4a(executor: str) -> None:
    a = torch.randint(-128, 128, (5, 64), dtype=torch.int8)
    x = torch.randint(-128, 128, (64,), dtype=torch.int8)
    (y,) = run(executor, gemv_dp4a, a, x)
    assert torch.equal(y.long(), a.long() @ x.long())


@both
def test_roles_and_thread_indices(executor: str) -> None:
    a = torch.randn(300)
    (c,) = run(executor, roles, a)
    assert torch.equal(c, a * 3 + 1)


def test_compiles_for_sm_90() -> None:
    compile_for("cuda:sm_90", packed_math, torch.randn(32), torch.randn(32))
    compile_for("cuda:sm_90", bits_of_pairs, torch.randn(16).half())


def test_types() -> None:
    assert T.float16x2 == "float16x2"
    assert (T.bfloat16x4.lanes, T.bfloat16x4.bits, T.int8x16.element) == (4, 64, "int8")
    assert T.float8_e4m3x4.element == "float8_e4m3fn"
    with pytest.raises(UnsupportedConstructError, match="a vector type"):
        T.float16x3(1.0)


def _refused(body) -> None:
    @T.prim_func
    def program(A: T.Tensor((8,), T.float16)):
        with T.Kernel(1):
            body(A)


def test_misuse_is_located() -> None:
    with pytest.raises(ProgramTypeError, match="takes 2 values"):
        _refused(lambda a: T.float16x2(a[0], a[1], a[2]))
    with pytest.raises(ProgramIndexError, match="has no lane 2"):
        _refused(lambda a: T.float16x2(a[0], a[1])[2])
    with pytest.raises(ProgramValueError, match="different lengths"):
        _refused(lambda a: T.float16x2(a[0], a[1]) + T.float16x4(a[0]))
    with pytest.raises(ProgramTypeError, match="of one width"):
        _refused(lambda a: T.reinterpret(T.float16x2(a[0], a[1]), "uint64"))
    with pytest.raises(ProgramTypeError, match="vectors of two lanes"):
        _refused(lambda a: T.add2(a[0], a[1]))
    with pytest.raises(UnsupportedConstructError, match="float16x2 as the dtype of a buffer"):
        _refused(lambda a: T.alloc_shared((4,), T.float16x2))
    with pytest.raises(UnsupportedConstructError, match=r"a vector is T\.float16x2"):
        _refused(lambda a: T.float16(a[0], a[1]))
    with pytest.raises(ProgramTypeError, match="wrong dtype of A"):
        _refused(lambda a: T.dp4a(a, a, a))

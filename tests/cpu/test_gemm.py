"""Matrix products of tiles: every transposition, dtype and odd size, against exact or float64 products."""

import itertools

import pytest
import torch

import tileops.language as T
from tests.kit.harness import build_eager


def product(
    A, B, m: int, n: int, k: int, ta: bool, tb: bool, dtype: str, accum: str, twice: bool = False
):
    A: T.Tensor((k, m) if ta else (m, k), dtype)
    B: T.Tensor((n, k) if tb else (k, n), dtype)
    C = T.empty((m, n), accum)
    with T.Kernel(1, threads=128) as bx:
        A_s = T.alloc_shared((k, m) if ta else (m, k), dtype)
        B_s = T.alloc_shared((n, k) if tb else (k, n), dtype)
        acc = T.alloc_fragment((m, n), accum)
        T.copy(A, A_s)
        T.copy(B, B_s)
        T.gemm(A_s, B_s, acc, ta, tb, clear_accum=True)
        if twice:
            T.gemm(A_s, B_s, acc, ta, tb)
        T.copy(acc, C)
    return C


FLAGS = list(itertools.product([False, True], repeat=2))
SIZES = [(1, 1, 1), (6, 16, 8), (7, 17, 5), (64, 24, 33), (13, 65, 40)]


def operands(m, n, k, ta, tb, dtype):
    kind = getattr(torch, dtype)
    shapes = ((k, m) if ta else (m, k), (n, k) if tb else (k, n))
    if kind.is_floating_point:
        return tuple(torch.randn(s).to(kind) for s in shapes)
    info = torch.iinfo(kind)
    low, high = max(info.min, -1000), min(info.max, 1000)
    return tuple(torch.randint(low, high + 1, s).to(kind) for s in shapes)


def wide(a, b, ta, tb, kind):
    a, b = a.to(kind), b.to(kind)
    return (a.T if ta else a) @ (b.T if tb else b)


@pytest.mark.parametrize(("ta", "tb"), FLAGS)
@pytest.mark.parametrize(
    ("dtype", "m", "n", "k"),
    [
        *(("float32", *size) for size in SIZES),
        *((d, *size) for d in ("float16", "bfloat16", "float8_e4m3fn") for size in SIZES[2:4]),
        ("float8_e5m2", 13, 65, 40),
    ],
)
def test_float_operands_accumulate_in_float32(dtype, m, n, k, ta, tb):
    a, b = operands(m, n, k, ta, tb, dtype)
    kernel = build_eager(
        product, m=m, n=n, k=k, ta=ta, tb=tb, dtype=dtype, accum="float32", twice=True
    )
    got = kernel(a, b).double()
    want = 2 * wide(a, b, ta, tb, torch.float64)
    size = 2 * wide(
        a.abs() if dtype[:6] != "float8" else a.float().abs(),
        b.abs() if dtype[:6] != "float8" else b.float().abs(),
        ta,
        tb,
        torch.float64,
    )
    # A sum of 2k fused products in any order: (2k) u times the sum of magnitudes.
    assert ((got - want).abs() <= 2 * k * 2.0**-24 * size).all()


@pytest.mark.parametrize(("ta", "tb"), FLAGS)
def test_float64(ta, tb):
    a, b = operands(13, 21, 40, ta, tb, "float64")
    kernel = build_eager(product, m=13, n=21, k=40, ta=ta, tb=tb, dtype="float64", accum="float64")
    want = wide(a, b, ta, tb, torch.float64)
    assert (
        (kernel(a, b) - want).abs() <= 80 * 2.0**-53 * wide(a.abs(), b.abs(), ta, tb, torch.float64)
    ).all()


@pytest.mark.parametrize(("ta", "tb"), FLAGS)
@pytest.mark.parametrize(
    ("dtype", "m", "n", "k"),
    [
        ("int8", 7, 17, 5),
        ("int8", 64, 24, 33),
        ("uint8", 13, 65, 40),
        ("int16", 6, 16, 8),
        ("int32", 7, 17, 5),
    ],
)
def test_integers_are_exact(dtype, m, n, k, ta, tb):
    a, b = operands(m, n, k, ta, tb, dtype)
    kernel = build_eager(product, m=m, n=n, k=k, ta=ta, tb=tb, dtype=dtype, accum="int32")
    assert torch.equal(kernel(a, b), wide(a, b, ta, tb, torch.int64).to(torch.int32))


@pytest.mark.parametrize("accum", ["float16", "bfloat16"])
def test_narrow_accumulator_rounds_each_step(accum):
    kind = getattr(torch, accum)
    a, b = operands(5, 6, 30, False, False, accum)
    kernel = build_eager(product, m=5, n=6, k=30, ta=False, tb=False, dtype=accum, accum=accum)
    want = torch.zeros(5, 6, dtype=kind)
    for i in range(30):
        want = want + a[:, i : i + 1] * b[i : i + 1, :]
    assert torch.equal(kernel(a, b), want)


def slices(A, B, stages: int = 3):
    A: T.Tensor((stages, 16, 24), "float32")
    B: T.Tensor((stages, 24, 20), "float32")
    C = T.empty((16, 20), "float32")
    with T.Kernel(1, threads=128) as bx:
        A_s = T.alloc_shared((stages, 16, 24), "float32")
        B_s = T.alloc_shared((stages, 24, 20), "float32")
        acc = T.alloc_fragment((16, 20), "float32")
        T.copy(A, A_s)
        T.copy(B, B_s)
        for s in T.serial(stages):
            T.gemm(A_s[s, :, :], B_s[s, 0:24, 0:20], acc, clear_accum=s == 0)
        T.copy(acc, C)
    return C


def test_slices_of_tiles_and_runtime_clear():
    a, b = torch.randn(3, 16, 24), torch.randn(3, 24, 20)
    want = (a.double() @ b.double()).sum(0)
    assert ((build_eager(slices)(a, b).double() - want).abs() <= 1e-4).all()


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_levels_agree_within_rounding(level):
    a, b = torch.randn(70, 50), torch.randn(50, 33)
    kernel = build_eager(
        product, level=level, m=70, n=33, k=50, ta=False, tb=False, dtype="float32", accum="float32"
    )
    assert (
        (kernel(a, b).double() - a.double() @ b.double()).abs()
        <= 50 * 2.0**-24 * (a.abs() @ b.abs())
    ).all()

"""Dtype variables and leading dimensions on the GPU: layouts, writes, compiled graphs, capture, autocast."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import ArgumentError, CompileMissError

pytestmark = pytest.mark.gpu
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@tileops.jit(name="gpu_any_double")
def double(A, rows: int = 4):
    N = T.const("N")
    S = T.dynamic("S")
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    A: T.StridedTensor((..., N), (S, 1), dt)
    B = T.empty((..., N), dt)
    with T.Kernel(T.ceildiv(A.shape[0], rows), threads=64) as bx:
        for i, j in T.Parallel(rows, N):
            B[bx * rows + i, j] = A[bx * rows + i, j] * 2
    return B


@tileops.jit(name="gpu_any_increment", differentiable=False, contiguous="copy")
def increment(A, rows: int = 4):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    A: T.Tensor((..., N), dt)
    with T.Kernel(T.ceildiv(A.shape[0], rows), threads=64) as bx:
        for i, j in T.Parallel(rows, N):
            A[bx * rows + i, j] += 1


@tileops.jit(name="gpu_any_negated", autocast=torch.bfloat16)
def negated(A, block: int = 256):
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    A: T.Tensor((...,), dt)
    B = T.empty((...,), dt)
    with T.Kernel(T.ceildiv(A.shape[0], block), threads=64) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = -A[bx * block + i]
    return B


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(dtype: torch.dtype) -> None:
    base = torch.randn(3, 5, 128, device="cuda").to(dtype)
    for x in (base, base[0], base[0, 0], base[..., 32:96], base[:, :0], base[1, ::2, :64]):
        for _ in range(3):
            assert torch.equal(double(x), x * 2)
    with pytest.raises(ArgumentError, match="one dimension with one stride"):
        double(base.transpose(0, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_writes(dtype: torch.dtype) -> None:
    base = torch.randn(3, 5, 64, device="cuda").to(dtype)
    expected = base + 1
    increment(base)
    assert torch.equal(base, expected)
    increment(base.transpose(0, 1))  # through a copy
    assert torch.equal(base, expected + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: negated(double(x) + 1), fullgraph=True, dynamic=True)
    for shape in ((2, 3, 64), (4, 7, 64), (9, 64)):
        x = torch.randn(shape, device="cuda").to(dtype)
        torch.testing.assert_close(compiled(x), -(x * 2 + 1))


def test_each_dtype_is_warmed_and_captured() -> None:
    x = torch.randn(2, 3, 96, device="cuda")
    with tileops.option.strict(), pytest.raises(CompileMissError):
        double(x.half())
    tileops.warmup([(double, x.half()), (double, x)])
    for value in (x.half(), x):
        graph = torch.cuda.CUDAGraph()
        with tileops.option.strict(), torch.cuda.graph(graph):
            out = double(value)
        graph.replay()
        assert torch.equal(out, value * 2)


def test_autocast() -> None:
    x = torch.randn(2, 3, 40, device="cuda")
    assert negated(x).dtype == torch.float32
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.equal(negated(x), -x.bfloat16())

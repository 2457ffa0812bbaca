"""Matrix products on the Triton path: every dtype pair, transposes, a run-time clear."""

from __future__ import annotations

import pytest
import torch

import tileops.language as T
from tests.kit.interpreted import run
from tests.programs.products import ACCUMULATED, expected, operands, product
from tileops.errors import UnsupportedConstructError


@pytest.mark.parametrize("dtypes", [("float16", "float16"), ("int8", "int32"), ("float32", "float32"), ("tfloat32", "float32"), ("bfloat16", "float32"), ("float8_e4m3fn", "float32"), ("float64", "float64")])  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_gemm_dtypes(dtypes: tuple[str, str], transposed: bool) -> None:
    dtype, acc = dtypes

    def product(A, B):
        A: T.Tensor((32, 40), dtype)
        B: T.Tensor((24, 40) if transposed else (40, 24), dtype)
        C = T.empty((32, 24), acc)
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((32, 40), dtype)
            b = T.alloc_shared((24, 40) if transposed else (40, 24), dtype)
            c = T.alloc_fragment((32, 24), acc)
            T.clear(c)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=transposed)
            T.copy(c, C)
        return C

    stored = T.dtype(dtype).as_torch()
    a = torch.randint(-3, 4, (32, 40)).to(stored)
    b = torch.randint(-3, 4, (24, 40) if transposed else (40, 24)).to(stored)
    (out,) = run(product, a, b)
    expected = a.double() @ (b.double().T if transposed else b.double())
    assert torch.equal(out.double(), expected)


@pytest.mark.parametrize("dtypes", ACCUMULATED, ids="-".join)
@pytest.mark.parametrize("shape", [(32, 24, 40), (17, 1, 3)])
def test_products_added_to_any_accumulator(
    dtypes: tuple[str, str], shape: tuple[int, int, int]
) -> None:
    inputs = operands(*dtypes, shape)
    (out,) = run(product(*dtypes, shape), *inputs)
    assert torch.equal(out, expected(*inputs))


@pytest.mark.parametrize("dtype", ["float16", "float8_e5m2"])
def test_narrow_operands_of_a_float64_sum_are_refused(dtype: str) -> None:
    shape = (32, 24, 40)
    with pytest.raises(UnsupportedConstructError, match=f"{dtype} x {dtype} -> float64"):
        run(product(dtype, "float64", shape), *operands(dtype, "float64", shape))


def test_runtime_clear_accum() -> None:
    def product(A, B):
        A: T.Tensor((64, 16), T.float16)
        B: T.Tensor((16, 16), T.float16)
        C = T.empty((16, 16), T.float32)
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((16, 16), T.float16)
            b = T.alloc_shared((16, 16), T.float16)
            c = T.alloc_fragment((16, 16), T.float32)
            T.copy(B, b)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 16, 0], a)
                T.gemm(a, b, c, clear_accum=k == 1)
            T.copy(c, C)
        return C

    a = torch.randint(-3, 4, (64, 16)).half()
    b = torch.randint(-3, 4, (16, 16)).half()
    (out,) = run(product, a, b)
    assert torch.equal(out, sum(a[k * 16 : k * 16 + 16].float() @ b.float() for k in (1, 2, 3)))


def test_narrow_tiles_keep_their_dtype_beside_literals() -> None:
    """A literal in tl.where or tl.maximum would widen a float16 tile, and the branch would not compile."""

    def clamped(X):
        X: T.Tensor((8, 16), T.float16)
        Y = T.empty((8,), T.float16)
        with T.Kernel(2, threads=32) as bx:
            x = T.alloc_fragment((8, 16), T.float16)
            top = T.alloc_fragment((8,), T.float16)
            T.copy(X, x)
            T.fill(top, 0.0)
            if bx < 1:
                for i, j in T.Parallel(8, 16):
                    x[i, j] = T.max(T.min(x[i, j] * x[i, j], T.float16(16.0)), T.float16(1.0))
                T.reduce_max(x, top, dim=1)
                for i in T.Parallel(8):
                    if i > 2:
                        top[i] = 3.0
                T.copy(top, Y)
        return Y

    x = torch.randint(-6, 7, (8, 16)).half()
    (out,) = run(clamped, x)
    expected = (x * x).clamp(1, 16).amax(1)
    expected[3:] = 3
    assert torch.equal(out, expected)

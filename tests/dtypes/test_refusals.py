"""What narrow dtypes refuse: rows of no whole bytes, halves of bytes, sums that wrap, other biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.executors import SM_90
from tileops.codegen import cpu, triton
from tileops.codegen.kernel_code import Specialization
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    ProgramError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.target import parse_target


@tileops.jit
def widened(A):
    M, K = T.const("M, K")
    A: T.Tensor((M, K), "int4")
    C = T.empty((M, K), "float32")
    with T.Kernel(M) as bx:
        for j in T.Parallel(K):
            C[bx, j] = T.cast(A[bx, j], "float32")
    return C


@tileops.jit
def repacked(X, A):
    M, K = T.dynamic("M, K")
    X: T.Tensor((M, K), "float32")
    A: T.Tensor((M, 32), "int4")
    C = T.empty((M, K), "int4")
    with T.Kernel(M) as bx:
        tile = T.alloc_fragment((1, 32), "float32")
        T.copy(X[bx, 0], tile)
        T.copy(tile, C[bx, 0])
    return C


def test_calls_name_what_the_storage_must_be() -> None:
    with pytest.raises(ArgumentTypeError, match="argument 'A': expected dtype int8 or uint8"):
        widened(torch.zeros(4, 16, dtype=torch.int16))
    with pytest.raises(ArgumentError, match="expected 2 dimensions"):
        widened(torch.zeros(4, dtype=torch.int8))
    x = torch.zeros(4, 32)
    with pytest.raises(ArgumentError, match=r"dimension 1 to be 32, got 34 .*2 elements in each"):
        repacked(x, torch.zeros(4, 17, dtype=torch.int8))
    with pytest.raises(ArgumentError, match="last dimension divisible by 2, got 31"):
        repacked(torch.zeros(4, 31), torch.zeros(4, 16, dtype=torch.int8))
    assert widened(torch.zeros(4, 16, dtype=torch.uint8)).shape == (4, 32)


def test_fake_and_real_agree_about_shapes() -> None:
    x, a = torch.zeros(4, 32), torch.zeros(4, 16, dtype=torch.int8)
    real = repacked(x, a)
    meta = torch.ops.tileops.repacked(x.to("meta"), a.to("meta"))
    assert (real.shape, real.dtype) == (meta.shape, meta.dtype) == ((4, 16), torch.int8)
    with pytest.raises(ArgumentError, match="last dimension divisible by 2, got 31"):
        torch.ops.tileops.repacked(torch.zeros(4, 31, device="meta"), a.to("meta"))


def traced(body: Callable[..., None], **kwargs: Any) -> Any:
    return T.prim_func(body, **kwargs)


def test_rows_of_an_odd_number_of_elements() -> None:
    with pytest.raises(ProgramValueError, match="two elements a byte"):

        @T.prim_func
        def odd(A: T.Tensor((4, 31), T.int4)):
            with T.Kernel(1):
                T.clear(A)

    with pytest.raises(ProgramValueError, match="two elements a byte"):

        @T.prim_func
        def half_rows(A: T.StridedTensor((4, 32), (33, 1), T.int4)):
            with T.Kernel(1):
                T.clear(A)

    with pytest.raises(ProgramValueError, match="the last 1 and the others even"):

        @T.prim_func
        def columns(A: T.StridedTensor((4, 32), (1, 4), T.int4)):
            with T.Kernel(1):
                T.clear(A)


def _single(A: T.Tensor((4, 32), T.int4)):
    with T.Kernel(4) as bx:
        A[bx, 3] = 1


def _odd_start(A: T.Tensor((4, 32), T.int4)):
    with T.Kernel(4) as bx:
        for j in T.Parallel(8):
            A[bx, j + 1] = 1


def _odd_extent(A: T.Tensor((4, 32), T.int4)):
    with T.Kernel(4) as bx:
        for j in T.Parallel(7):
            A[bx, j] = 1


def _differing_condition(A: T.Tensor((4, 32), T.int4)):
    with T.Kernel(4) as bx:
        for j in T.Parallel(32):
            if j < 5:
                A[bx, j] = 1


def _copy_of_unknown_parity(A: T.Tensor((4, 32), T.int4), n: T.int32):
    with T.Kernel(4) as bx:
        tile = T.alloc_fragment((1, 8), T.int4)
        T.clear(tile)
        T.copy(tile, A[bx, n])


def _carried(A: T.Tensor((4, 32), T.int4)):
    with T.Kernel(4) as bx:
        for j in T.serial(0, 30):
            A[bx, j] = A[bx, j + 2]


def _atomic(A: T.Tensor((4, 32), T.int4)):
    with T.Kernel(4) as bx:
        T.atomic_add(A[bx, 0], 1)


def _stride_of_unknown_parity(A: T.ptr, n: T.int32):
    with T.Kernel(4) as bx:
        a = T.make_tensor(A, (4, 32), T.int4, strides=(n, 1))
        T.clear(a[bx, 0:32])


def _sum(A: T.Tensor((4, 32), T.int4)):
    with T.Kernel(1):
        tile = T.alloc_fragment((4, 32), T.int4)
        total = T.alloc_fragment((4,), T.int4)
        T.copy(A, tile)
        T.reduce_sum(tile, total)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_single, "one iteration must store both"),
        (_odd_start, "one iteration must store both"),
        (_odd_extent, "extent of `j` is not known to be even"),
        (_differing_condition, "differs between neighbours"),
        (_copy_of_unknown_parity, "even for certain"),
        (_carried, "does more than compute and store"),
        (_atomic, "an atomic into int4"),
        (_sum, "a running sum in int4"),
        (_stride_of_unknown_parity, "the last 1, the others even for certain"),
    ],
)
def test_stores_of_half_a_byte_are_refused(body: Any, message: str) -> None:
    program = traced(body).program
    for generate, target in ((cpu.generate, parse_target("cpu")), (triton.generate, SM_90)):
        with pytest.raises(UnsupportedConstructError, match=message) as caught:
            generate(program, target, Specialization())
        assert isinstance(caught.value, ProgramError)
        assert "test_refusals.py:" in str(caught.value)


@tileops.jit
def widened_fp8(A, dtype: str = "float8_e4m3fn"):
    N = T.dynamic("N")
    A: T.Tensor((N,), dtype)
    C = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, 32)) as bx:
        for i in T.Parallel(32):
            C[bx * 32 + i] = T.cast(A[bx * 32 + i], "float32")
    return C


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_of_another_bias_is_refused(name: str) -> None:
    """The same byte is half as much in the formats with a larger bias."""
    byte = torch.tensor([0x38], dtype=torch.uint8)
    dtype = getattr(torch, name)
    assert torch.equal(widened_fp8(byte.view(dtype), name), byte.view(dtype).float())
    other = byte.view(getattr(torch, name.removesuffix("fn") + "fnuz"))
    for given in (other, other.to("meta")):
        with pytest.raises(ArgumentTypeError, match=f"expected dtype {name}, got .*fnuz"):
            widened_fp8(given, name)

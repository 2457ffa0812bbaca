"""What the block of T.Extern takes of the Python that people write around a launch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tileops
import tileops.language as T
from tests.foreign import kernels
from tests.foreign.launched import Launched
from tileops.errors import ArgumentError, ProgramAttributeError, ProgramError, ProgramTypeError

A, B = 0x7F0000001000, 0x7F0000002000
_numbers = itertools.count()


def traced(launch: Callable[..., None]) -> Any:
    @tileops.jit(name=f"foreign_body_{next(_numbers)}")
    def program(X):
        M, N = T.dynamic("M, N")
        X: T.Tensor((M, N), T.float16)
        Y = T.empty((M, N), T.float16)
        with T.Extern():
            launch(X, Y)
        return Y

    return program


def test_a_grid_that_is_a_function(fake: Any) -> None:
    @tileops.jit
    def foreign_function_grid(X, most: int = 4):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():

            def grid(meta):
                blocks = triton.cdiv(N, meta["BLOCK"])
                return (min(most, blocks) if N > 64 else 1,)

            kernels.doubled[grid](X, Y, N, BLOCK=64)
        return Y

    op = Launched(foreign_function_grid)
    for size, blocks in ((1000, 4), (130, 3), (64, 1)):
        op.add(op.wanted({"N": size}))
        op.run({"N": size}, [A, B])
        assert fake.log("launch")[-1]["grid"] == [blocks, 1, 1]


def test_an_assert_of_a_size_is_checked_at_each_call(fake: Any) -> None:
    @tileops.jit
    def foreign_asserts(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            assert X.is_contiguous()
            assert X.dtype == torch.float32, "a dtype"
            assert X.dtype in (torch.float16, torch.float32)
            assert X.dtype != torch.float16
            assert X.dtype != tl.bfloat16
            assert N % 16 == 0, "rows of 64 bytes"
            kernels.doubled[(1,)](X, Y, N, BLOCK=64)
        return Y

    op = Launched(foreign_asserts)
    op.add(op.wanted({"N": 48}))
    op.run({"N": 48}, [A, B])
    op.add(op.wanted({"N": 40}))
    with pytest.raises(
        ArgumentError, match=r"foreign_asserts: rows of 64 bytes; expected \(\(N % 16\) == 0\)"
    ):
        op.run({"N": 40}, [A, B])


@T.macro
def by_methods(X, Y):
    numbers = (X.dim(), X.ndim, X.element_size(), X.dtype.itemsize, 65536 // X.element_size())
    assert numbers == (2, 2, 2, 2, 32768)
    rows, columns = X.shape
    step, one = X.stride()
    assert one == 1
    assert X.is_contiguous()
    assert X.dtype.is_floating_point
    assert {torch.float16: 1}[X.dtype.as_torch()] == 1
    kernels.doubled[(rows,)](X, Y, X.nbytes + X.numel() + columns + step, BLOCK=64)


def test_a_tensor_tells_what_torchs_tells() -> None:
    (launch,) = traced(by_methods).get_tir().externs
    number = next(arg for arg in launch.args if arg.name == "n").value
    assert str(number).count("M.") == 2  # bytes and elements
    assert str(number).count("N.") == 4  # and the columns, and the stride


@T.macro
def made_by_torch(X, Y):
    torch.empty_like(X)


@T.macro
def on_a_device(X, Y):
    kernels.doubled[(1,)](X, Y, X.device.index, BLOCK=64)


@T.macro
def made_contiguous(X, Y):
    kernels.doubled[(1,)](X.contiguous(), Y, 3, BLOCK=64)


@T.macro
def by_torchs_dtype(X, Y):
    kernels.doubled[(1,)](X, Y, {torch.float16: 1}[X.dtype], BLOCK=64)


def plain_function(X, Y):
    kernels.doubled[(1,)](X, Y, 3, BLOCK=64)


@T.macro
def by_a_plain_function(X, Y):
    plain_function(X, Y)


@pytest.mark.parametrize(
    ("launch", "error", "message"),
    [
        (made_by_torch, ProgramTypeError, r"must be Tensor, not BufferRef; .*T.empty makes an output"),
        (on_a_device, ProgramAttributeError, r"'device'; code is made without a device at hand"),
        (made_contiguous, ProgramAttributeError, r"'contiguous'; .*jit\(contiguous=\"copy\"\)"),
        (by_torchs_dtype, ProgramTypeError, r"a dict does not have this dtype(.|\n)*A.dtype.as_torch\(\)(.|\n)*float16"),
        (by_a_plain_function, ProgramTypeError, r"`plain_function` launches a kernel through Triton itself(.|\n)*@T.macro"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_what_a_block_refuses(launch: Any, error: type[ProgramError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        traced(launch).get_tir()
    assert "test_bodies.py" in str(caught.value)


def test_strides_of_a_call_are_not_known() -> None:
    @tileops.jit
    def foreign_strided_rows(X):
        N, s = T.dynamic("N, s")
        X: T.StridedTensor((N,), (s,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            assert X.is_contiguous()
            kernels.doubled[(1,)](X, Y, N, BLOCK=64)
        return Y

    with pytest.raises(ProgramTypeError, match=r"the strides of `X` are known only at a call"):
        foreign_strided_rows.get_tir()


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float64", "int8", "int64", "uint8"]
)
def test_dtypes_are_equal_to_their_counterparts(name: str) -> None:
    own, torchs, tritons = T.dtype(name), getattr(torch, name), getattr(tl, name)
    for other in (torchs, tritons, name):
        assert own == other
        assert (own != other) is False
    assert torchs == own  # Triton's compare with texts themselves
    assert own not in (torch.complex64, tl.pi32_t, torch.int16, tl.int16, None, 3)
    assert hash(own) == hash(name)


def test_an_assert_outside_of_launches_is_checked_for_tile_programs_too() -> None:
    @tileops.jit
    def asserts_about_sizes(X, shift: T.int32 = 0):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        assert N % 8 == 0, "whole rows"
        assert shift < N
        with T.Kernel(1):
            for i in T.Parallel(8):
                Y[i] = X[i]
        return Y

    x = torch.ones(8)
    for _ in range(3):  # a repeated call is known to fit
        assert torch.equal(asserts_about_sizes(x), x)
    for _ in range(2):
        with pytest.raises(
            ArgumentError, match=r"asserts_about_sizes: whole rows; expected .*N % 8"
        ):
            asserts_about_sizes(torch.ones(9))
        with pytest.raises(ArgumentError, match=r"assertion failed; expected \(shift < N\)"):
            asserts_about_sizes(x, 8)

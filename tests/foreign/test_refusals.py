"""Misuses of foreign kernels: each is an error that says where, what is expected and what was found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.foreign import kernels, programs
from tests.foreign.launched import Launched
from tileops.errors import (
    ArgumentError,
    NoBuilderError,
    ProgramTypeError,
    ProgramValueError,
    ToolchainError,
    UnsupportedConstructError,
    UnsupportedOnTargetError,
)

_numbers = itertools.count()


def traced(launch: Callable[..., None], **options: Any) -> Any:
    """A program over X with the launch ``launch(X, Y, N, a)`` as its only one."""

    @tileops.jit(name=f"foreign_refused_{next(_numbers)}", **options)
    def program(X, a: T.float32 = 1.0):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            launch(X, Y, N, a)
        return Y

    return program


@T.macro
def too_few(X, Y, N, a):
    kernels.add[(1,)](X, X, Y, BLOCK=64)


@T.macro
def too_many(X, Y, N, a):
    kernels.add[(1,)](X, X, Y, N, 64, 3)


@T.macro
def unknown_option(X, Y, N, a):
    kernels.add[(1,)](X, X, Y, N, BLOCK=64, num_warp=4)


@T.macro
def given_twice(X, Y, N, a):
    kernels.add[(1,)](X, X, Y, N, n=N, BLOCK=64)


@T.macro
def float_expression(X, Y, N, a):
    kernels.optional_bias[(1,)](X, None, Y, N, a * 2, True, BLOCK=64)


@T.macro
def slice_of_a_tensor(X, Y, N, a):
    kernels.add[(1,)](X[0:4], X, Y, N, BLOCK=64)


@T.macro
def four_extents(X, Y, N, a):
    kernels.add[(1, 1, 1, 1)](X, X, Y, N, BLOCK=64)


@T.macro
def float_grid(X, Y, N, a):
    kernels.add[(N / 64,)](X, X, Y, N, BLOCK=64)


@T.macro
def option_of_a_size(X, Y, N, a):
    kernels.add[(1,)](X, X, Y, N, BLOCK=64, num_warps=N)


@T.macro
def a_set(X, Y, N, a):
    kernels.add[(1,)](X, X, Y, N, BLOCK={1, 2})


@pytest.mark.parametrize(
    ("launch", "error", "message"),
    [
        (too_few, ProgramTypeError, r"add takes 5 arguments\n *expected: x, y, z, n, BLOCK\n *found: +none for n"),
        (too_many, ProgramTypeError, r"add takes 5 arguments\n.*\n *found: +6 positional arguments"),
        (unknown_option, ProgramTypeError, r"add has no parameter `num_warp`, nor has a launch such an option"),
        (given_twice, ProgramTypeError, r"add got its argument `n` twice"),
        (float_expression, ProgramTypeError, r"`scale` of optional_bias is a float and must be a scalar parameter"),
        (slice_of_a_tensor, ProgramTypeError, r"`x` of add must be a tensor, a number or None(.|\n)*X\[...\]: float32\[4\]"),
        (four_extents, ProgramValueError, r"the grid of add has 4 extents\n *expected: 1 to 3"),
        (float_grid, ProgramTypeError, r"`/` on integers is ambiguous; use `//`"),
        (option_of_a_size, ProgramTypeError, r"`num_warps` of a launch must be known when code is made\n *expected: a number, from T.const"),
        (a_set, ProgramTypeError, r"`BLOCK` of a foreign kernel must be a number"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_misused_launches(launch: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        traced(launch).get_tir()
    assert "test_refusals.py" in str(caught.value)
    assert "kernels." in str(caught.value)  # the line's text


def test_a_choice_in_python_needs_a_size_that_is_known() -> None:
    @tileops.jit
    def foreign_chosen(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            warps = 4
            if N > 64:
                warps = 8
            kernels.add[(1,)](X, X, Y, N, BLOCK=64, num_warps=warps)
        return Y

    with pytest.raises(ProgramTypeError, match=r"asked for a Python truth value(.|\n)*if N > 64:"):
        foreign_chosen.get_tir()


def test_a_launch_outside_its_block() -> None:
    @tileops.jit
    def foreign_outside(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        kernels.add[(1,)](X, X, Y, N, BLOCK=64)
        return Y

    with pytest.raises(ProgramValueError, match=r"launched inside `with T.Extern\(\):`"):
        foreign_outside.get_tir()


def test_blocks_inside_blocks() -> None:
    @tileops.jit
    def foreign_nested(X):
        X: T.Tensor((64,), T.float32)
        with T.Kernel(1), T.Extern():
            pass

    @tileops.jit
    def foreign_empty(X):
        X: T.Tensor((64,), T.float32)
        with T.Extern():
            pass

    with pytest.raises(ProgramValueError, match=r"T.Extern cannot be inside T.Kernel"):
        foreign_nested.get_tir()
    with pytest.raises(
        ProgramValueError, match=r"the `with T.Extern\(\)` block launches no kernel"
    ):
        foreign_empty.get_tir()
    with pytest.raises(NoBuilderError, match=r"T.Extern was used outside a program"):
        T.Extern()


def test_wide_floats_are_not_narrowed() -> None:
    @tileops.jit
    def foreign_wide(X, a: T.float64):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            kernels.optional_bias[(1,)](X, None, Y, N, a, True, BLOCK=64)
        return Y

    with pytest.raises(
        ProgramTypeError, match=r"`scale` of optional_bias would lose bits(.|\n)*a: T.float32"
    ):
        foreign_wide.get_tir()


@T.macro
def in_place(X, Y, N, a):
    kernels.doubled[(1,)](X, X, N, BLOCK=64)


def test_what_a_kernel_writes_is_declared() -> None:
    op = Launched(traced(in_place))
    with pytest.raises(ToolchainError, match=r"doubled writes its argument `y`(.|\n)*mutates="):
        op.compiled(op.wanted({"N": 64}))
    declared = Launched(traced(in_place, mutates=("X",)))
    assert "Tensor(a!) X" in declared.op.spec.schema
    declared.compiled(declared.wanted({"N": 64}))


def test_a_number_that_code_needs_and_nobody_tells() -> None:
    op = Launched(programs.matmul)
    with pytest.raises(
        ArgumentError, match=r"for the number \(\(K.2 % 32\) == 0\), which only a call tells"
    ):
        op.compiled(op.wanted({}))


def test_where_no_gpu_is() -> None:
    with pytest.raises(
        UnsupportedOnTargetError, match=r"foreign_add launches foreign kernels \(add\)"
    ):
        programs.add(torch.ones(4), torch.ones(4))


def test_the_interpreter_does_not_run_them() -> None:
    @tileops.jit(target="interpreter")
    def foreign_interpreted(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            kernels.doubled[(4,)](X, Y, N, BLOCK=256)
        return Y

    with pytest.raises(
        UnsupportedOnTargetError, match=r"\(doubled\), which do not run on interpreter"
    ):
        foreign_interpreted(torch.ones(4))


def test_a_tensor_from_outside() -> None:
    kernels.OUTSIDE = torch.ones(1)
    try:
        with pytest.raises(
            UnsupportedConstructError, match=r"reads the tensor `OUTSIDE` from outside"
        ):
            traced(reads_outside).get_tir()
    finally:
        del kernels.OUTSIDE


@T.macro
def reads_outside(X, Y, N, a):
    kernels.reads_a_global[(1,)](X, N, BLOCK=64)

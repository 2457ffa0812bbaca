"""Divisions that round up and stepped loops: what compiles for each target, and what text they become."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tileops.language as T
from tests.kit.interpreted import CUDA
from tests.property import divisions, steps
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.frontend.trace import trace
from tileops.target import parse_target


def text_of(function: Any, target: str = "cuda:sm_90") -> KernelCode:
    program = trace(function, name=function.__name__, static={}, consts={})
    return generate(program, parse_target(target), Specialization())


@pytest.mark.parametrize("target", CUDA)
@pytest.mark.parametrize("dtype", divisions.DTYPES)
def test_divisions_compile(dtype: str, target: str) -> None:
    code = text_of(divisions.by_values(dtype), target)
    compile_kernel(code, parse_target(target), {})


@pytest.mark.parametrize("target", CUDA)
@pytest.mark.parametrize("form", ["both", "lanes"])
def test_loops_compile(form: str, target: str) -> None:
    chosen = (-1, 2, -2, 3, -(1 << 31), 1 << 40)
    code = text_of(steps.loops("int32", form, 0, chosen), target)
    compile_kernel(code, parse_target(target), {})


def of_sizes(X, Y):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
        for k in T.serial(T.ceildiv(N - bx * 128, 32)):
            for i in T.Parallel(32):
                Y[bx * 128 + k * 32 + i] = X[bx * 128 + k * 32 + i]
        for k in range(bx * 128, N, 64):
            Y[k] = 0.0


def of_scalars(Y, n: T.int32, d: T.int32):
    N = T.dynamic("N")
    Y: T.Tensor((N,), T.int32)
    with T.Kernel(1, threads=32):
        Y[0] = T.ceildiv(n, 128)
        Y[1] = T.ceildiv(n, d)
        for _ in range(0, n, 64):
            Y[2] += 1


def test_the_cheap_form_where_nothing_can_wrap() -> None:
    source = text_of(of_sizes).source
    assert "ceildiv" not in source
    assert "uint" not in source
    assert "N - bx * 128 + 31 >> 5" in source
    assert "tl.maximum(N - bx * 128 + 63 >> 6, 0)" in source


def test_the_exact_form_where_a_value_may_be_anything() -> None:
    source = text_of(of_scalars).source
    assert "_ceildiv(n, 128)" in source
    assert "_ceildiv_by_any(n, d)" in source
    assert "tl.uint32" in source


@pytest.mark.parametrize("form", ["start", "stop"])
@pytest.mark.parametrize("bound", [(1 << 31) - 1, 1 << 31, (1 << 32) - 2, 1 << 32])
def test_a_constant_bound_keeps_its_value(bound: int, form: str) -> None:
    """Triton takes a bare literal from 2^31 to 2^32 as uint32; beside int64 it would turn negative."""
    source = text_of(steps.loops("int64", form, bound, (1,))).source
    (head,) = [line for line in source.splitlines() if "range(" in line and str(bound) in line]
    wide = f"tl.full((), {bound}, tl.int64)"
    assert (wide in head) == (bound >= 1 << 31), head


@pytest.mark.parametrize(("divisor", "quotient"), [(100, -2), (128, -1)])
def test_a_block_number_that_is_always_0_is_no_python_number(divisor: int, quotient: int) -> None:
    """Triton makes a tensor of it, whose ``//`` rounds towards zero: its text rounds down."""

    def middle(Y):
        Y: T.Tensor((4, 2), T.int32)
        with T.Kernel(4, 1, 2, threads=32) as (bx, by, bz):
            Y[bx, bz] = (by * 256 - 127) // divisor

    code = text_of(middle)
    assert "by = 0" in code.source
    ptx = compile_kernel(code, parse_target("cuda:sm_90"), {}).files["launch0.ptx"].decode()
    moved = re.findall(r"mov\.[bu]32 \s*(%r\d+), (-?\d+);", ptx)
    (stored,) = re.findall(r"st\.global\.b32 .*\{ (%r\d+) \}", ptx)
    assert [int(value) for name, value in moved if name == stored] == [quotient]

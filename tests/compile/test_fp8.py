"""8-bit floats on targets without them: the same bits as the hardware's, made by integers."""

from __future__ import annotations

import pytest
import torch

import tileops.language as T
from tests.kit.interpreted import CUDA
from tests.programs.construct import Construct
from tests.programs.constructs import CONSTRUCTS
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.dtypes import DType
from tileops.errors import UnsupportedOnTargetError
from tileops.frontend.trace import trace
from tileops.ir.program import Program
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

DTYPES = ("float8_e4m3fn", "float8_e5m2")
CASES = [case for case in CONSTRUCTS if case.id in ("fp8_arithmetic", "constants_of_8_bits")]


def generated(func: object, target: str) -> tuple[Program, KernelCode]:
    program = trace(func, name="program", static={}, consts={})
    return program, generate(program, parse_target(target), Specialization())


def conversions(dtype: str, count: int) -> object:
    def program(A, B):
        A: T.Tensor((count,), T.float32)
        B: T.Tensor((256,), dtype)
        C = T.empty((count,), dtype)
        D = T.empty((256,), T.float32)
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_fragment((count,), T.float32)
            c = T.alloc_fragment((count,), dtype)
            b = T.alloc_shared((256,), dtype)
            d = T.alloc_fragment((256,), T.float32)
            T.copy(A, a)
            T.copy(a, c)
            T.copy(c, C)
            T.copy(B, b)
            T.copy(b, d)
            T.copy(d, D)
        return C, D

    return program


def numbers(dtype: str) -> torch.Tensor:
    """Every value of the dtype, the midpoints between neighbours, and what lies just beside those."""
    every = torch.arange(256).to(torch.uint8).view(getattr(torch, dtype)).float()
    finite = every[every.isfinite()].unique()
    middle = (finite[1:] + finite[:-1]) / 2
    inf = torch.tensor(torch.inf)
    beside = [torch.nextafter(x, y) for x in (finite, middle) for y in (inf, -inf)]
    top = torch.finfo(getattr(torch, dtype)).max
    found = torch.cat([finite, middle, *beside, torch.randn(400) * 0.01, torch.tensor([-0.0])])
    return found.clamp(-top, top)


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions_are_exact(dtype: str) -> None:
    torch_dtype = getattr(torch, dtype)
    x = numbers(dtype)
    every = torch.arange(256).to(torch.uint8).view(torch_dtype)
    program, code = generated(conversions(dtype, x.numel()), "cuda:sm_80")
    assert "float8" not in code.source
    c, d = interpret(code, program, x, every)
    assert torch.equal(c.view(torch.uint8), x.to(torch_dtype).view(torch.uint8))
    assert torch.equal(d.nan_to_num(nan=1e9), every.float().nan_to_num(nan=1e9))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_out_of_range_becomes_the_largest_value(dtype: str) -> None:
    torch_dtype = getattr(torch, dtype)
    top = torch.finfo(torch_dtype).max
    x = torch.tensor([top * 2, -top * 2, torch.inf, -torch.inf, torch.nan, 1e-30, -1e-30, 0.0])
    every = torch.zeros(256).to(torch_dtype)
    for target in ("cuda:sm_80", "cuda:sm_90"):
        program, code = generated(conversions(dtype, 8), target)
        c, _ = interpret(code, program, x, every)
        got = c.float()
        assert got[:4].tolist() == [top, -top, top, -top]
        assert got[4].isnan()
        assert got[5:].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_arithmetic_and_products_without_hardware(case: Construct) -> None:
    torch.manual_seed(4)
    inputs = case.inputs()
    program, code = generated(case.func, "cuda:sm_80")
    (out,) = interpret(code, program, *inputs)
    case.check(inputs, out)


@pytest.mark.parametrize("target", CUDA)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_arithmetic_compiles(case: Construct, target: str) -> None:
    _, code = generated(case.func, target)
    compile_kernel(code, parse_target(target), {})


def test_a_result_without_an_exact_form_is_refused() -> None:
    def program(A):
        A: T.Tensor((16, 64), T.float32)
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((16, 64), T.float32)
            s = T.alloc_fragment((16,), T.float8_e4m3fn)
            T.copy(A, a)
            T.reduce_sum(a, s, dim=1)
            for i in T.Parallel(16):
                A[i, 0] = s[i]

    with pytest.raises(UnsupportedOnTargetError, match="reduce"):
        generated(program, "cuda:sm_80")
    generated(program, "cuda:sm_90")


def test_the_table_of_targets() -> None:
    fp8, half = DType("float8_e4m3fn"), DType("float16")
    for name, has in (("cuda:sm_80", False), ("cuda:sm_89", True), ("cuda:sm_90", True)):
        assert parse_target(name).supports("convert", fp8) is has
        assert parse_target(name).supports("gemm", fp8) is has
        assert parse_target(name).supports("gemm", half)

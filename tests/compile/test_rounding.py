"""T.ieee_* on the Triton path: instructions of the named rounding, the same bits as exact fractions."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import tileops.language as T
from tests.kit.interpreted import TARGET, run
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.frontend.trace import trace
from tileops.interpreter.rounding import rounded

OPERATIONS = {
    "ieee_add": ("add", 2), "ieee_sub": ("sub", 2), "ieee_mul": ("mul", 2), "ieee_fdiv": ("div", 2),
    "ieee_fmaf": ("fma", 3), "ieee_fsqrt": ("sqrt", 1),
}  # fmt: skip


def operate(A, B, C, dtype: str):
    A: T.Tensor((64,), dtype)
    B: T.Tensor((64,), dtype)
    C: T.Tensor((64,), dtype)
    Y = T.empty((4, len(OPERATIONS), 64), dtype)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            _all_of_them(A, B, C, Y, i)
    return Y


def _all_of_them(A, B, C, Y, i) -> None:
    for m, mode in enumerate(("rn", "rz", "ru", "rd")):
        for n, (name, (_, count)) in enumerate(OPERATIONS.items()):
            Y[m, n, i] = getattr(T, name)(*(A[i], B[i], C[i])[:count], rounding_mode=mode)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_operation_in_every_mode(dtype: str) -> None:
    a, b = (torch.randn(64).to(getattr(torch, dtype)) for _ in range(2))
    c = torch.where(torch.rand(64) < 0.5, -(a * b), torch.randn(64).to(a.dtype))
    (got,) = run(operate, a, b, c, dtype=dtype)
    args = [x.numpy() for x in (a, b, c)]
    for m, mode in enumerate(("rn", "rz", "ru", "rd")):
        for n, (op, count) in enumerate(OPERATIONS.values()):
            want = rounded(f"{op}_{mode}")(*args[:count])
            np.testing.assert_array_equal(got[m, n].numpy(), want, err_msg=f"{op}_{mode}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_instructions_name_their_rounding(dtype: str) -> None:
    program = trace(operate, name="operate", static={"dtype": dtype}, consts={})
    code = generate(program, TARGET, Specialization())
    ptx = compile_kernel(code, TARGET, {}).files["launch0.ptx"].decode()
    kind = "f32" if dtype == "float32" else "f64"
    for op in ("add", "mul", "div", "fma", "sqrt"):
        for mode, suffix in (("rn", "rn"), ("rz", "rz"), ("ru", "rp"), ("rd", "rm")):
            assert re.search(rf"\b{op}\.{suffix}(\.ftz)?\.{kind}", ptx), (op, mode)


def test_reciprocal_square_root() -> None:
    def program(A):
        A: T.Tensor((64,), T.float32)
        Y = T.empty((64,), T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                Y[i] = T.ieee_frsqrt(A[i])
        return Y

    a = torch.rand(64) * 100
    (got,) = run(program, a)
    np.testing.assert_array_equal(got.numpy(), rounded("rsqrt_rn")(a.numpy()))


def test_extremes_of_fp8() -> None:
    """LLVM has no minimum of fp8; float32 holds each value."""

    def program(A, B):
        A: T.Tensor((64,), T.float8_e4m3fn)
        B: T.Tensor((64,), T.float8_e4m3fn)
        Y = T.empty((2, 64), T.float8_e4m3fn)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                Y[0, i] = T.min(A[i], B[i])
                Y[1, i] = T.clamp(A[i], T.float8_e4m3fn(-0.5), T.float8_e4m3fn(0.5))
        return Y

    a, b = (torch.randn(64).to(torch.float8_e4m3fn) for _ in range(2))
    (got,) = run(program, a, b)
    assert torch.equal(got[0].float(), torch.minimum(a.float(), b.float()))
    assert torch.equal(got[1].float(), a.float().clamp(-0.5, 0.5))

"""Quotients by a divisor that elements share: the interpreter agrees with torch, and what compiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.interpreted import run
from tileops.codegen import gpu
from tileops.codegen.kernel_code import Specialization
from tileops.compiler.triton_stages import compile_triton
from tileops.target import parse_target


def quotients(A, B):
    A: T.Tensor((8, 200), T.float32)
    B: T.Tensor((8,), T.float32)
    C = T.empty((3, 8, 200), T.float32)
    with T.Kernel(1):
        for i, j in T.Parallel(8, 200):
            C[0, i, j] = A[i, j] / B[i]
            C[1, i, j] = A[i, j] / 3.0
            C[2, i, j] = B[i] / A[i, j]
    return C


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of all sizes, both zeros, infinities, NaN and subnormal numbers."""
    generator = torch.Generator().manual_seed(0)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-44, -3e38, 2.0**-126])
    a = torch.randint(-(2**31), 2**31, (8, 200), generator=generator, dtype=torch.int32)
    a = a.view(torch.float32).clone()
    a[:, :100] = torch.randn(8, 100, generator=generator)
    a[:, :8] = special
    b = torch.tensor([3.0, -7.0, 2.0**-31, 2.0**31, 0.0, -torch.inf, torch.nan, 1e-40])
    return a, b


def test_the_interpreter_divides_as_torch_does() -> None:
    a, b = inputs()
    (got,) = run(quotients, a, b)
    expected = torch.stack([a / b[:, None], a / 3.0, b[:, None] / a])
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(got.signbit()[numbers], expected.signbit()[numbers])


def code_for(target: str, **options: Any) -> Any:
    program = tileops.jit(name="shared_divisors", **options)(quotients).get_tir(*inputs())
    return gpu.generate(program, parse_target(target), Specialization(fast=True))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90", "cuda:sm_120"])
def test_quotients_of_a_shared_divisor_share_their_checks(target: str) -> None:
    code = code_for(target)
    assert code.source.count("_shared_quotient(") == 3  # its definition, and the first two
    assert code.source.count("tl.div_rn(") == 1
    artifact = compile_triton(code, parse_target(target), {})
    # A tile of 8 x 256 in four warps: 16 elements a thread. Each calls the assembler's division
    # from within a branch, which four share.
    ptx = artifact.files["launch0.ptx"].decode()
    assert ptx.count("rcp.approx.ftz.f32") >= 2
    assert ptx.count("@!far bra") == 2 * 16 // 4


def test_fast_arithmetic_and_other_cards_have_their_own_division() -> None:
    fast = code_for("cuda:sm_90", pass_configs={"tl.enable_fast_math": True})
    assert "_shared_quotient" not in fast.source
    assert "_shared_quotient" not in code_for("hip:gfx942").source


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_tiles_of_few_elements_compile(rows: int) -> None:
    def means(A):
        A: T.Tensor((rows, 64), T.float32)
        B = T.empty((rows,), T.float32)
        with T.Kernel(1):
            tile = T.alloc_fragment((rows, 64), T.float32)
            sums = T.alloc_fragment((rows,), T.float32)
            T.copy(A, tile)
            T.reduce_sum(tile, sums, dim=1)
            for i in T.Parallel(rows):
                B[i] = sums[i] / 3.0
        return B

    a = torch.randn(rows, 64)
    traced = tileops.jit(means, name=f"means_of_{rows}").get_tir(a)
    code = gpu.generate(traced, parse_target("cuda:sm_90"), Specialization(fast=True))
    assert compile_triton(code, parse_target("cuda:sm_90"), {}).launches
    assert ("_shared_quotient" in code.source) == (rows > 2)  # three rows are padded to four

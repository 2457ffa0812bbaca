"""Numbers of four bits, two in a byte: read once, converted in pairs, on the interpreter and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.interpreted import run
from tileops.codegen import gpu
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.compiler.triton_stages import compile_triton
from tileops.target import parse_target


def unpacked(W, S, dtype: str):
    W: T.Tensor((16, 32), T.uint8)
    S: T.Tensor((16,), dtype)
    C = T.empty((5, 16, 64), dtype)
    with T.Kernel(1):
        tile = T.alloc_fragment((16, 32), T.uint8)
        T.copy(W, tile)
        for i, j in T.Parallel(16, 64):
            number = (tile[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.cast(15, "uint8")
            C[0, i, j] = (T.cast(number, dtype) - T.cast(8, dtype)) * S[i]
            C[1, i, j] = T.cast(number, dtype) - T.cast(0.5, dtype)
            # The bytes of a tensor; what is not converted; the upper halves alone.
            other = (W[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.cast(15, "uint8")
            C[2, i, j] = T.cast(other, dtype)
            C[3, i, j] = T.cast(T.cast(number, T.int32) * 3, dtype)
            C[4, i, j] = T.cast((W[i, j // 2] >> T.cast(4, "uint8")) & T.cast(15, "uint8"), dtype)
    return C


def inputs(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    W = torch.randint(0, 256, (16, 32), dtype=torch.uint8, generator=generator)
    return W, torch.randn(16, generator=generator).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_interpreter_unpacks_as_torch_does(dtype: str) -> None:
    W, S = inputs(dtype)
    (got,) = run(unpacked, W, S, dtype=dtype)
    number = torch.stack([W & 15, W >> 4], -1).flatten(1).to(S.dtype)
    upper = (W >> 4).repeat_interleave(2, 1).to(S.dtype)
    expected = [(number - 8) * S[:, None], number - 0.5, number, (number.int() * 3).to(S.dtype)]
    torch.testing.assert_close(got, torch.stack([*expected, upper]), rtol=0, atol=0)


def code_for(dtype: str, target: str) -> KernelCode:
    program: Any = tileops.jit(unpacked, name=f"unpacked_{dtype}")
    traced = program.get_tir(*inputs(dtype), dtype=dtype)
    return gpu.generate(traced, parse_target(target), Specialization(fast=True))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90", "cuda:sm_120"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_are_converted_in_pairs(dtype: str, target: str) -> None:
    code = code_for(dtype, target)
    assert code.source.count(f"_numbers_as_{dtype}(") == 4  # its definition and the first three
    assert " - 8.0" not in code.source
    assert " - tl.cast(0.5, " in code.source
    assert "gather" not in code.source.split("C + 4096")[0]
    ptx = compile_triton(code, parse_target(target), {}).files["launch0.ptx"].decode()
    kind = "f16x2" if dtype == "float16" else "bf16x2"
    assert f"fma.rn.{kind}" in ptx


def test_other_dtypes_and_cards_convert_each_number() -> None:
    assert "_numbers_as" not in code_for("float32", "cuda:sm_90").source
    assert "tl.join(" in code_for("float32", "cuda:sm_90").source
    assert "tl.join(" not in code_for("float16", "hip:gfx942").source


@pytest.mark.parametrize("columns", [4, 8])
def test_tiles_of_few_bytes_compile(columns: int) -> None:
    def few(W):
        W: T.Tensor((columns // 2,), T.uint8)
        C = T.empty((columns,), T.float16)
        with T.Kernel(1):
            for j in T.Parallel(columns):
                number = (W[j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.cast(15, "uint8")
                C[j] = T.cast(number, T.float16) - T.cast(8, T.float16)
        return C

    W = torch.arange(columns // 2, dtype=torch.uint8)
    traced = tileops.jit(few, name=f"few_bytes_{columns}").get_tir(W)
    code = gpu.generate(traced, parse_target("cuda:sm_90"), Specialization(fast=True))
    assert compile_triton(code, parse_target("cuda:sm_90"), {}).launches
    assert ("_numbers_as_float16" in code.source) == (columns > 4)

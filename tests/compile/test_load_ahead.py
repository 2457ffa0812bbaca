"""Tiles that no asynchronous copy can fetch are loaded an iteration ahead; others are not."""

from __future__ import annotations

# mypy: ignore-errors
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

import tileops.language as T
from tests.kit.traced import program_of
from tileops.codegen import gpu
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.compiler import compile_kernel
from tileops.ir.program import Program
from tileops.target import Target, parse_target
from tileops.testing.interpreter import interpret

HOPPER = parse_target("cuda:sm_90")
FAST, GENERAL = Specialization(fast=True), Specialization()


def product(A, B, first, stages: int = 2, dtype: Any = "float16", keep: bool = False):
    M, K, N = T.const("M, K, N")
    A: T.Tensor((M, K), dtype)
    B: T.Tensor((K, N), dtype)
    first: T.int32
    C = T.empty((M, N), T.float32)
    last = T.empty((32, 16), dtype)
    with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=128) as (bx, by):
        A_s = T.alloc_shared((32, 16), dtype)
        B_s = T.alloc_shared((16, 32), dtype)
        acc = T.alloc_fragment((32, 32), T.float32)
        T.clear(acc)
        if keep:
            T.clear(A_s)
        for k in T.Pipelined(first, T.ceildiv(K, 16), num_stages=stages):
            T.copy(A[by * 32, k * 16], A_s)
            T.copy(B[k * 16, bx * 32], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 32, bx * 32])
        if keep:
            T.copy(A_s, last)
    return C, last


def gathered(A, B, rows):
    """The row of a tensor says where a tile is: the one after the last must not be read."""
    A: T.Tensor((32, 33), T.float16)
    B: T.Tensor((3, 33, 33), T.float16)
    rows: T.Tensor((3,), T.int32)
    C = T.empty((32, 33), T.float32)
    with T.Kernel(1, threads=128):
        A_s = T.alloc_shared((32, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((32, 64), T.float32)
        T.clear(acc)
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[0:32, 0:64], A_s)
            T.copy(B[rows[k], 0:64, 0:64], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[0:32, 0:64])
    return C


def code_of(program: Program, spec: Specialization, target: Target = HOPPER) -> KernelCode:
    return gpu.generate(program, target, spec)


def sized(M: int, K: int, N: int, **static: Any) -> Program:
    return program_of(product, {"M": M, "K": K, "N": N}, **static)


@pytest.mark.parametrize(
    ("sizes", "dtype", "spec", "ahead"),
    [
        ((64, 48, 64), "float16", FAST, ""),
        ((64, 33, 64), "float16", FAST, "A"),
        ((64, 48, 33), "bfloat16", FAST, "B"),
        ((64, 33, 33), "float16", FAST, "AB"),
        ((64, 34, 34), "float16", FAST, ""),  # rows of 4 bytes and more
        ((64, 34, 34), "float8_e5m2", FAST, "AB"),
        ((64, 33, 33), "float32", FAST, ""),
        ((64, 48, 64), "float16", GENERAL, "AB"),  # the tensors may begin anywhere
        ((64, 33, 33), "float32", GENERAL, ""),
    ],
)
def test_what_is_loaded_ahead(sizes: Any, dtype: str, spec: Specialization, ahead: str) -> None:
    text = code_of(sized(*sizes, dtype=dtype), spec).source
    assert "".join(name for name in "AB" if f"{name}_s_next = tl.load(" in text) == ahead


@pytest.mark.parametrize("stages", [0, 1])
def test_a_loop_without_stages_stays(stages: int) -> None:
    assert "_next" not in code_of(sized(64, 33, 33, stages=stages), FAST).source


def test_only_nvidia_gpus_have_such_copies() -> None:
    program = sized(64, 33, 33)
    assert "_next" in code_of(program, FAST, parse_target("cuda:sm_80")).source
    assert "_next" not in code_of(program, FAST, parse_target("hip:gfx942")).source


def test_what_is_loaded_after_the_last_round_is_masked() -> None:
    """Also where no tile of the loop itself passes the end of the tensor."""
    text = code_of(sized(64, 64, 33), FAST).source
    (within,) = [line for line in text.splitlines() if line.startswith("        B_s_next = ")]
    assert re.search(r"\+ 1\) \* 16 \+ iota_16_col\.to\(tl\.int64\) < 64\)", within)


def test_tiles_that_would_take_too_many_registers_stay() -> None:
    def wide(A, B):
        A: T.Tensor((128, 4095), T.float16)
        B: T.Tensor((4095, 255), T.float16)
        C = T.empty((128, 255), T.float32)
        with T.Kernel(1, threads=128):
            A_s = T.alloc_shared((128, 64), T.float16)
            B_s = T.alloc_shared((64, 256), T.float16)
            acc = T.alloc_fragment((128, 256), T.float32)
            T.clear(acc)
            for k in T.Pipelined(64, num_stages=2):
                T.copy(A[0, k * 64], A_s)
                T.copy(B[k * 64, 0], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[0:128, 0:256])
        return C

    assert "_next" not in code_of(program_of(wide), FAST).source


def test_an_index_from_a_tensor_is_not_read_ahead() -> None:
    text = code_of(program_of(gathered), FAST).source
    assert "A_s_next = tl.load(" in text
    assert "B_s_next" not in text


def integers(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("spec", [FAST, GENERAL], ids=["fast", "general"])
@pytest.mark.parametrize(
    ("M", "K", "N", "first"),
    [(40, 33, 47, 0), (33, 64, 65, 0), (32, 15, 33, 0), (40, 33, 47, 2), (40, 33, 47, 3)],
)
def test_results(M: int, K: int, N: int, first: int, spec: Specialization) -> None:
    """Sums of small integers are exact; with ``first`` = 3 the loop runs no round."""
    program = sized(M, K, N, keep=True)
    code = code_of(program, spec)
    assert "_next" in code.source
    if (M, first) == (33, 0):
        compile_kernel(code, HOPPER, {})
    a, b = integers(M, K), integers(K, N)
    out, last = interpret(code, program, a, b, first)
    assert torch.equal(out, (a[:, first * 16 :].double() @ b[first * 16 :].double()).float())
    # What the last round loaded stays in the tile, not what was loaded ahead.
    rounds = -(-K // 16)
    block = torch.zeros(32, 16, dtype=torch.float16)
    if first < rounds:
        # Blocks write the same place in order; the last one's rows are the last of A.
        rows = a[(M - 1) // 32 * 32 :, (rounds - 1) * 16 :]
        block[: rows.shape[0], : rows.shape[1]] = rows
    assert torch.equal(last, block)


def odd(A, B, threads: int):
    """Tiles of 128 x 128 whose rows no asynchronous copy takes."""
    A: T.Tensor((128, 65), T.float16)
    B: T.Tensor((65, 129), T.float16)
    C = T.empty((128, 129), T.float32)
    with T.Kernel(1, threads=threads):
        A_s = T.alloc_shared((128, 32), T.float16)
        B_s = T.alloc_shared((32, 128), T.float16)
        acc = T.alloc_fragment((128, 128), T.float32)
        T.clear(acc)
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[0, k * 32], A_s)
            T.copy(B[k * 32, 0], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[0:128, 0:128])
    return C


def bounded(code: KernelCode, registers: int) -> KernelCode:
    launches = tuple(replace(x, max_registers=registers) for x in code.launches)
    return replace(code, launches=launches)


@pytest.mark.parametrize(("threads", "bound"), [(128, 0), (256, 128), (512, 64)])
def test_two_blocks_fit_in_the_registers_of_a_multiprocessor(threads: int, bound: int) -> None:
    code = code_of(program_of(odd, {}, threads=threads), FAST)
    assert code.launches[0].max_registers == bound
    (image,) = compile_kernel(code, HOPPER, {}).launches
    assert image.registers <= (bound or 255)
    assert image.spills <= 128


@pytest.mark.parametrize("bound", [24, 48])  # the assembler refuses the first
def test_a_bound_that_spills_much_is_given_up(bound: int) -> None:
    code = code_of(program_of(odd, {}, threads=256), FAST)
    (tried,) = compile_kernel(bounded(code, bound), HOPPER, {}).launches
    (free,) = compile_kernel(bounded(code, 0), HOPPER, {}).launches
    assert (tried.registers, tried.spills) == (free.registers, free.spills)
    assert tried.registers > bound

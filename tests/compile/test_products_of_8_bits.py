"""Products of fp8 and int8 in roles: what the tensor cores take, and how sums are formed."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tileops
import tileops.language as T
from benchmarks.pair import all_pairs
from tests.compile.test_roles import HOPPER, code_of, languages
from tests.kit import goldens
from tileops.codegen.kernel_code import KernelCode
from tileops.compiler import compile_kernel

SUMS = {"float8_e4m3fn": "float32", "float8_e5m2": "float32", "int8": "int32", "uint8": "int32"}


def product(
    dtype: str, n: int = 128, k: int = 128, ta: bool = False, tb: bool = True, held: bool = False
) -> Any:
    """A product of 8-bit operands; ``held``: the first one is in registers, the same throughout."""

    def program(A, B):
        A: T.Tensor((256, 256), dtype)
        B: T.Tensor((256, 256), dtype)
        C = T.empty((256, 256), SUMS[dtype])
        with T.Kernel(256 // n, 2, threads=128) as (bx, by):
            A_s = T.alloc_shared((k, 128) if ta else (128, k), dtype)
            A_f = T.alloc_fragment((128, k), dtype)
            B_s = T.alloc_shared((n, k) if tb else (k, n), dtype)
            acc = T.alloc_fragment((128, n), SUMS[dtype])
            T.clear(acc)
            T.copy(A[by * 128, 0], A_f)
            for ko in T.Pipelined(256 // k, num_stages=2):
                if ta:
                    T.copy(A[ko * k, by * 128], A_s)
                elif not held:
                    T.copy(A[by * 128, ko * k], A_s)
                if tb:
                    T.copy(B[bx * n, ko * k], B_s)
                else:
                    T.copy(B[ko * k, bx * n], B_s)
                if held:
                    T.gemm(A_f, B_s, acc, transpose_B=True)
                else:
                    T.gemm(A_s, B_s, acc, transpose_A=ta, transpose_B=tb)
            T.copy(acc, C[by * 128, bx * n])
        return C

    return program


def code(dtype: str, **changes: Any) -> KernelCode:
    named = "_".join(f"{k}{v}" for k, v in changes.items())
    program = tileops.jit(product(dtype, **changes), name=f"narrow_{dtype}_{named}")
    return code_of(program.get_tir())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tb": False}, "the sum over {} runs down columns of `B_s`"),
        ({"ta": True}, "the sum over {} runs down columns of `A_s`"),
        ({"k": 16}, "a row of the box of `A` has 16 bytes"),
    ],
)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_operands_that_the_tensor_cores_cannot_read(
    dtype: str, changes: dict[str, Any], reason: str
) -> None:
    (launch,) = code(dtype, **changes).launches
    assert launch.language == "triton"
    assert re.search(rf"line \d+: {re.escape(reason.format(dtype))}", launch.notes[0]), launch.notes


def test_unsigned_operands_stay_with_triton() -> None:
    (launch,) = code("uint8").launches
    assert "a product of uint8 and uint8 into int32" in launch.notes[0]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [
        ("float8_e4m3fn", "m64n128k32.f32.e4m3.e4m3"),
        ("float8_e5m2", "m64n128k32.f32.e5m2.e5m2"),
        ("int8", "m64n128k32.s32.s8.s8"),
    ],
)
def test_instructions(dtype: str, instruction: str, held: bool) -> None:
    made = code(dtype, held=held)
    assert languages(made) == ["gluon"]
    artifact = compile_kernel(made, HOPPER, {})
    used = set(
        re.findall(
            r"wgmma\.mma_async\.sync\.aligned\.(\S+)", artifact.files["launch0.ptx"].decode()
        )
    )
    assert used == {instruction}
    assert artifact.launches[0].spills == 0


@pytest.mark.parametrize("n", [64, 128, 256])
@pytest.mark.parametrize(("k", "trips"), [(32, 8), (64, 4), (128, 2), (256, 1)])
def test_sums_of_fp8_tiles_are_formed_in_float32(n: int, k: int, trips: int) -> None:
    """Two tiles at most are summed from zero, then what they give is added."""
    text = code("float8_e4m3fn", n=n, k=k).source
    products = re.findall(r"(\w+) = hopper\.warpgroup_mma\(.*", text)
    begun = [line for line in re.findall(r".*warpgroup_mma\(.*", text) if "use_acc=False" in line]
    parts = max(1, n // 128)
    assert (len(products), len(begun)) == (min(2, trips) * parts, parts)
    assert all(name.startswith("part") for name in products)
    assert len(re.findall(r"acc\w* = _laid\(acc\w* \+ part", text)) == parts


def test_sums_of_int8_stay_in_the_tensor_cores() -> None:
    text = code("int8").source
    assert "use_acc=False" not in text


@pytest.mark.parametrize(
    "name", ["matmul fp8 8192", "matmul fp8 block scales 4096x4096x7168", "decode mla bf16 64x8192"]
)
def test_text_is_golden(name: str) -> None:
    pair = next(p for _, p in all_pairs() if p.name == name)
    made = code_of(pair.build(T).program)
    assert languages(made) == ["gluon"]
    label = "_".join(word for word in name.split() if word.isalnum() and not word[0].isdigit())
    goldens.check("roles", label, "\n".join(made.launches[0].notes) + "\n\n" + made.source)
    assert compile_kernel(made, HOPPER, {}).launches[0].spills == 0

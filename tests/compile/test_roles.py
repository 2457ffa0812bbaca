"""Which launches run in roles on Hopper, why others do not, and what becomes of those that do."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tileops
import tileops.language as T
from tests.kit import goldens
from tests.programs.typical import PROGRAMS
from tileops.codegen import gpu
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.compiler import compile_kernel
from tileops.ir.program import Program
from tileops.target import parse_target

HOPPER = parse_target("cuda:sm_90")


def code_of(program: Program, target: str = "cuda:sm_90", **facts: bool) -> KernelCode:
    return gpu.generate(program, parse_target(target), Specialization(**{"fast": True, **facts}))


def languages(code: KernelCode) -> list[str]:
    return [launch.language for launch in code.launches]


def product(
    m: int = 128,
    n: int = 128,
    k: int = 64,
    size: int = 256,
    dtype: str = "float16",
    acc: str = "float32",
    copies: int = 1,
    nest: bool = False,
    rows: int | None = None,
    scaled: bool = False,
    shift: int = 0,
) -> Any:
    """A matrix product of one tile size; ``copies`` are the copies that fill the second operand.

    A ``nest`` fills the first one instead of a copy. ``rows`` are those of A where they are not
    ``size``; its tiles begin ``shift`` columns further. A ``scaled`` product loads a tile of its
    result's extents in each step.
    """

    M = size if rows is None else rows

    def program(A, B):
        A: T.Tensor((M, size), dtype)
        B: T.Tensor((size, size), dtype)
        C = T.empty((M, size), acc)
        with T.Kernel(T.ceildiv(size, n), T.ceildiv(M, m), threads=128) as (bx, by):
            A_s = T.alloc_shared((m, k), dtype)
            B_s = T.alloc_shared((k, n), dtype)
            scale = T.alloc_fragment((k, n), dtype)
            sums = T.alloc_fragment((m, n), acc)
            T.clear(sums)
            for ko in T.Pipelined(T.ceildiv(size, k), num_stages=2):
                if nest:
                    for i, j in T.Parallel(m, k):
                        A_s[i, j] = A[by * m + i, ko * k + j]
                else:
                    T.copy(A[by * m, ko * k + shift], A_s)
                T.copy(B[ko * k, bx * n], B_s)
                if copies > 1:
                    T.copy(B[ko * k, bx * n], B_s)
                T.gemm(A_s, B_s, sums)
                if scaled:
                    T.copy(B[ko * k, bx * n], scale)
                    for i, j in T.Parallel(k, n):
                        sums[i, j] *= T.cast(scale[i, j], acc)
            T.copy(sums, C[by * m, bx * n])
        return C

    return program


def traced(function: Any, name: str = "program") -> Program:
    return tileops.jit(function, name=f"roles_{name}").get_tir()


# What of a product to what keeps it from running in roles; None where nothing does.
REASONS = {
    "whole": ({}, None),
    "small": ({"m": 32}, "the products have 32 rows, wgmma has 64"),
    "odd": ({"size": 250}, "a stride of `A` is not a multiple of 16 bytes"),
    "shifted": ({"shift": 8}, None),
    "inside": ({"shift": 4}, "the first column of the box of `A` is not a multiple of 16 bytes"),
    "float32": ({"dtype": "float32"}, "a product of float32 and float32 into float32"),
    "half": ({"acc": "float16"}, "a product of float16 and float16 into float16"),
    "few_rows": ({"m": 64, "rows": 48}, "the product has 48 rows"),
    "some_rows": ({"m": 64, "rows": 80}, None),
    "tile_beside": ({"scaled": True}, "`scale` comes from a tensor, and not by TMA"),
    "gathered": ({"nest": True}, "`A_s` comes from a tensor, and not by TMA"),
    "twice": ({"copies": 2}, "`B_s` is not filled by one copy from a tensor"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_keeps_a_product_from_roles_is_noted(name: str) -> None:
    changes, reason = REASONS[name]
    code = code_of(traced(product(**changes), name))
    (launch,) = code.launches
    (note,) = launch.notes
    if reason is None:
        assert launch.language == "gluon"
        assert note.startswith("schedule")
    else:
        assert launch.language == "triton"
        assert re.search(rf"Triton path: line \d+: {re.escape(reason)}", note), note


def test_products_of_two_widths_have_no_roles() -> None:
    """An instruction of the one sums twice as many terms: Triton's compiler stops at such a text."""

    def program(A, B, A2, B2):
        A: T.Tensor((128, 256), T.float8_e4m3fn)
        B: T.Tensor((128, 256), T.float8_e4m3fn)
        A2: T.Tensor((128, 256), T.float16)
        B2: T.Tensor((256, 128), T.float16)
        C = T.empty((128, 128), T.float32)
        with T.Kernel(1, threads=128):
            A_s = T.alloc_shared((128, 64), T.float8_e4m3fn)
            B_s = T.alloc_shared((128, 64), T.float8_e4m3fn)
            A2_s = T.alloc_shared((128, 64), T.float16)
            B2_s = T.alloc_shared((64, 128), T.float16)
            sums = T.alloc_fragment((128, 128), T.float32)
            T.clear(sums)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], A_s)
                T.copy(B[0, k * 64], B_s)
                T.gemm(A_s, B_s, sums, transpose_B=True)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A2[0, k * 64], A2_s)
                T.copy(B2[k * 64, 0], B2_s)
                T.gemm(A2_s, B2_s, sums)
            T.copy(sums, C)
        return C

    (launch,) = code_of(traced(program, "widths")).launches
    assert launch.language == "triton"
    assert "the products read elements of 8 and 16 bits" in launch.notes[0]


@pytest.mark.parametrize(
    ("target", "facts"),
    [("cuda:sm_80", {}), ("cuda:sm_100", {}), ("hip:gfx942", {}), ("cuda:sm_90", {"fast": False}),
     ("cuda:sm_90", {"index64": True})],
)  # fmt: skip
def test_roles_are_for_hopper_and_aligned_tensors(target: str, facts: dict[str, bool]) -> None:
    assert languages(code_of(PROGRAMS["matmul_relu"](), target, **facts)) == ["triton"]


@pytest.mark.parametrize("key", ["tl.disable_warp_specialized", "tl.disable_tma_lower"])
def test_pass_configs_ask_for_ordinary_kernels(key: str) -> None:
    program = tileops.jit(product(), name="roles_off", pass_configs={key: True}).get_tir()
    assert languages(code_of(program)) == ["triton"]


def with_more(more: str) -> Any:  # noqa: C901 - a branch for each case
    """A product whose launch also does what ``more`` names."""

    def program(A, B, N, S):  # noqa: C901
        A: T.Tensor((256, 256), T.float16)
        B: T.Tensor((256, 256), T.float16)
        N: T.Tensor((4,), T.int32)
        S: T.Tensor((256, 256), T.float32)
        C = T.empty((256, 256), T.float32)
        with T.Kernel(2, 2, threads=128) as (bx, by):
            A_s = T.alloc_shared((128, 64), T.float16)
            B_s = T.alloc_shared((64, 128), T.float16)
            sums = T.alloc_fragment((128, 128), T.float32)
            if more == "view":
                V = T.view(A, (65536,))
                V[0] = T.float16(1)
            T.clear(sums)
            for ko in T.Pipelined(4, num_stages=2):
                T.copy(A[by * 128, ko * 64], A_s)
                T.copy(B[ko * 64, bx * 128], B_s)
                T.gemm(A_s, B_s, sums)
                if more == "in a loop":
                    T.copy(sums, C[by * 128, bx * 128])
            if more == "atomic":
                T.atomic_add(N[0], 1)
            if more == "store":
                N[0] = N[0] + 1
            if more == "part":
                for i, j in T.Parallel(64, 128):
                    sums[i, j] = 0.0
            if more == "print":
                T.print(N[0])
            if more == "columns":
                for j in T.Parallel(128):
                    T.atomic_add(S[0, j], 1.0)
            if more == "vector":
                row = T.alloc_fragment((128,), T.float32)
                T.reduce_sum(sums, row, dim=1)
                T.copy(row, S[bx, by * 128])
            if more == "twice":
                T.copy(sums, C[by * 128, bx * 128])
            T.copy(sums, C[by * 128, bx * 128])
        return C

    return program


# What a launch does besides its product, to the groups that it may have and whether C is staged.
BESIDE = {
    "nothing": (2, True),
    "atomic": (1, True),
    "store": (1, True),
    "part": (1, True),
    "print": (1, True),
    "columns": (1, True),
    "vector": (2, True),
    "twice": (2, False),
    "in a loop": (2, False),
}


@pytest.mark.parametrize("more", BESIDE)
def test_what_one_group_should_do_keeps_a_launch_in_one(more: str) -> None:
    (launch,) = code_of(traced(with_more(more), "beside_" + more.replace(" ", "_"))).launches
    groups, staged = BESIDE[more]
    if launch.language == "gluon":
        assert f"math {groups} x" in launch.notes[0]
        assert ("staged %C" in launch.notes[0]) == staged
        assert "staged %S" not in launch.notes[0]  # eight rows make a pattern of shared memory
    else:
        assert (groups, "Triton path" in launch.notes[0]) == (1, True)


def test_a_tensor_written_through_a_view_is_not_loaded_by_tma() -> None:
    (launch,) = code_of(traced(with_more("view"), "beside_view")).launches
    assert launch.language == "triton"
    assert "`A` is written in this launch" in launch.notes[0]


SCHEDULED = ("matmul_relu", "attention", "attention_causal_odd")


@pytest.mark.parametrize("name", SCHEDULED)
def test_text_of_roles_is_golden(name: str) -> None:
    code = code_of(PROGRAMS[name]())
    assert languages(code) == ["gluon"]
    goldens.check("roles", name, "\n".join(code.launches[0].notes) + "\n\n" + code.source)


@pytest.mark.parametrize("name", SCHEDULED)
def test_roles_compile_without_spills(name: str) -> None:
    code = code_of(PROGRAMS[name]())
    artifact = compile_kernel(code, HOPPER, {})
    ptx = artifact.files["launch0.ptx"].decode()
    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor" in ptx
    assert "setmaxnreg" in ptx
    assert artifact.launches[0].spills == 0


def test_several_launches_of_one_text_keep_their_layouts() -> None:
    """Triton reads the globals of a text when it compiles: each launch has names of its own."""

    def program(A, B, D):
        A: T.Tensor((256, 256), T.float16)
        B: T.Tensor((256, 256), T.float16)
        D: T.Tensor((256, 256), T.float16)
        C = T.empty((256, 256), T.float16)
        E = T.empty((256, 256), T.float16)
        with T.Kernel(4, 2, threads=128) as (bx, by):
            A_s = T.alloc_shared((128, 64), T.float16)
            B_s = T.alloc_shared((64, 64), T.float16)
            sums = T.alloc_fragment((128, 64), T.float32)
            T.clear(sums)
            for ko in T.Pipelined(4, num_stages=2):
                T.copy(A[by * 128, ko * 64], A_s)
                T.copy(B[ko * 64, bx * 64], B_s)
                T.gemm(A_s, B_s, sums)
            T.copy(sums, C[by * 128, bx * 64])
        with T.Kernel(2, 4, threads=128) as (bx, by):
            B_s = T.alloc_shared((64, 64), T.float16)
            D_s = T.alloc_shared((64, 128), T.float16)
            sums = T.alloc_fragment((64, 128), T.float32)
            T.clear(sums)
            for ko in T.Pipelined(4, num_stages=2):
                T.copy(B[by * 64, ko * 64], B_s)
                T.copy(D[ko * 64, bx * 128], D_s)
                T.gemm(B_s, D_s, sums)
            T.copy(sums, E[by * 64, bx * 128])
        return C, E

    code = code_of(traced(program, "two"))
    assert languages(code) == ["gluon", "gluon"]
    defined = re.findall(r"^(\w+) = tl\.constexpr\(gl\.", code.source, re.MULTILINE)
    assert len(defined) == len(set(defined))
    compile_kernel(code, HOPPER, {})


def test_a_refusal_of_triton_leads_to_an_ordinary_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Gluon cannot compile is compiled without roles, and the entry says why."""
    from tileops.codegen.gluon import module
    from tileops.jit import compiling

    wrong = module._HELPERS.replace("gl.set_auto_layout", "gl.no_such_function")
    monkeypatch.setattr(module, "_HELPERS", wrong)
    request = compiling.Request(
        traced(product(), "refused"), HOPPER, Specialization(fast=True), "refused", "test"
    )
    entry = compiling.obtain(request)
    assert "no_such_function" in str(entry.manifest)
    assert "@gluon.jit" not in entry.text("kernel.py")

"""``python -m tileops analyze`` and the counts behind it: operations, bytes, least times."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import explicit, matrices
from tileops.cli.main import main
from tileops.ir.node import Stmt
from tileops.ir.schedule import RingStep, Settle
from tileops.ir.stmt import Launch
from tileops.roofline import analyze, machine_of, work, work_of
from tileops.target import parse_target

FILE = """
import tileops, tileops.language as T

@tileops.jit
def scaled(A, factor: float = 1.0):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = A[bx * 128 + i] * factor
    return B

@tileops.jit
def lazy(N, dtype="float16"):
    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                B[i] = T.exp(A[i])
    return main
"""


@tileops.jit
def product(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        a = T.alloc_shared((block_M, block_K), T.float16)
        b = T.alloc_shared((block_K, block_N), T.float16)
        c = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(c)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], a)
            T.copy(B[k * block_K, bx * block_N], b)
            T.gemm(a, b, c)
        T.copy(c, C[by * block_M, bx * block_N])
    return C


@tileops.jit
def causal(A, block: int = 16):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(N // block, threads=128) as bx:
        total = T.alloc_fragment((block,), T.float32)
        tile = T.alloc_shared((block,), T.float32)
        T.clear(total)
        for k in T.serial(bx + 1):
            T.copy(A[k * block], tile)
            for i in T.Parallel(block):
                total[i] += tile[i]
        T.copy(total, B[bx * block])
    return B


@tileops.jit
def rows(A, row):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    row: T.Tensor((N,), T.float32)
    with T.Kernel(M // 4, threads=128) as bx:
        for i, j in T.Parallel(4, N):
            if j > 2:
                A[bx * 4 + i, j] = -row[j]


def test_a_matrix_product() -> None:
    work = work_of(product.get_tir(M=256, N=128, K=96))
    assert dict(work.products) == {"float16": 2 * 256 * 128 * 96}
    # Each of the 4 x 2 blocks reads its rows and columns: A twice, B four times.
    assert work.read_bytes == 2 * (256 * 96 * 2) + 4 * (96 * 128 * 2)
    assert work.written_bytes == 256 * 128 * 4
    assert work.tensor_bytes == 256 * 96 * 2 + 96 * 128 * 2 + 256 * 128 * 4
    assert work.notes == ()


@T.prim_func
def largest(A: T.Tensor((64, 32), T.float32), out: T.Tensor((64,), T.int32)):
    with T.Kernel(1, threads=128):
        tile = T.alloc_fragment((64, 32), T.float32)
        index = T.alloc_fragment((64,), T.int32)
        T.copy(A, tile)
        T.argmax(tile, index, dim=1)
        T.copy(index, out)


def test_the_place_of_a_maximum_takes_as_many_comparisons_as_the_maximum() -> None:
    assert work_of(largest.program).elementwise == {"float32": 64 * 32}


def test_roles_that_a_program_has_of_its_own_are_counted() -> None:
    case = next(case for case in explicit.CASES if case.id == "explicit_threads")
    a, b = case.inputs()
    (m, k), n = a.shape, len(b)
    done = work_of(case.impl.get_tir(a, b))
    assert done.products == {"float16": 2 * m * n * k}
    assert done.read_bytes == 2 * (m * k * (n // 64) + n * k * (m // 64))


def test_matrix_instructions_by_hand_are_counted_once_a_warp() -> None:
    a, b, c = (torch.empty(s, dtype=torch.float16) for s in ((2, 16, 16), (2, 8, 16), (2, 16, 8)))
    program = tileops.jit(matrices.instructions_by_hand, name="by_hand_analyzed").get_tir(a, b, c)
    two_of_each_warp = 2 * 2 * (2 * 16 * 8 * 16)
    assert work_of(program).products == {"float16": two_of_each_warp}


def test_every_statement_is_counted_or_known_to_be_free() -> None:
    tree = ast.parse(Path(work.__file__).read_text())
    patterns = {n.cls.id for n in ast.walk(tree) if isinstance(n, ast.MatchClass)}
    known = (*work.FREE, RingStep, Settle)
    for kind in _kinds(Stmt):
        named = any(base.__name__ in patterns for base in kind.__mro__)
        assert named or issubclass(kind, (*known, Launch)), kind.__name__


def _kinds(kind: type[Stmt]) -> Iterator[type[Stmt]]:
    """The kinds of statements that have no kinds of their own."""
    below = kind.__subclasses__()
    if not below:
        yield kind
    for one in below:
        yield from _kinds(one)


def test_tiles_past_the_end_count_as_whole_ones() -> None:
    assert work_of(product.get_tir(M=65, N=64, K=32)).flops == 2 * 128 * 64 * 32


def test_loops_that_a_block_decides_are_counted_block_by_block() -> None:
    work = work_of(causal.get_tir(N=64))
    assert dict(work.elementwise) == {"float32": 16 * (1 + 2 + 3 + 4)}
    assert work.read_bytes == 16 * (1 + 2 + 3 + 4) * 4


def test_a_variable_of_many_values_is_sampled_and_said() -> None:
    work = work_of(causal.get_tir(N=16 * 1000))
    exact = 16 * 1000 * 1001 // 2
    assert abs(work.flops - exact) <= exact / 100
    assert work.notes == ("'bx' is sampled",)


def test_elements_that_points_share_are_read_once() -> None:
    work = work_of(rows.get_tir(M=8, N=10))
    assert work.read_bytes == 2 * 10 * 4  # two blocks read the row
    assert work.written_bytes == 8 * 10 * 4
    assert dict(work.elementwise) == {"float32": 80}


def test_the_estimate_is_the_greater_of_two_times() -> None:
    estimate = analyze(product.get_tir(M=4096, N=4096, K=4096), parse_target("cuda:sm_90"))
    assert estimate.machine is not None
    assert estimate.compute_seconds == 2 * 4096**3 / estimate.machine.products["float16"]
    assert estimate.seconds == estimate.compute_seconds
    small = analyze(product.get_tir(M=64, N=64, K=32), parse_target("cuda:sm_90"))
    assert small.seconds == small.memory_seconds == small.work.tensor_bytes / 3.35e12
    on_cpu = analyze(product.get_tir(M=64, N=64, K=32), parse_target("cpu"))
    assert on_cpu.seconds is on_cpu.machine is None


def test_a_device_of_the_same_kind_has_its_own_memory() -> None:
    usual, other = (machine_of(parse_target("cuda:sm_90"), n) for n in ("", "NVIDIA H200"))
    assert usual is not None
    assert other is not None
    assert other.products == usual.products
    assert other.bandwidth > usual.bandwidth


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "programs.py"
    path.write_text(FILE)
    return path


def test_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(file), "--with", "N=1000"]) == 0
    assert capsys.readouterr().out == (
        "scaled\n"
        "  elementwise in float32: 1024 operations\n"
        "  tensors: 8000 bytes\n"
        "  blocks read 4096 and write 4096 bytes\n"
        "  intensity: 0.128 operations a byte\n"
        "  at least 0.002388 us on H100 SXM, bound by memory\n"
        "  (arithmetic 1.528e-05 us, each tensor once 0.002388 us, all that blocks ask for "
        "0.002445 us)\n"
        "\n"
        "lazy\n"
        "  elementwise in float16: 1000 operations\n"
        "  tensors: 4000 bytes\n"
        "  blocks read 2000 and write 2000 bytes\n"
        "  intensity: 0.25 operations a byte\n"
        "  at least 0.001194 us on H100 SXM, bound by memory\n"
        "  (arithmetic 1.493e-05 us, each tensor once 0.001194 us, all that blocks ask for "
        "0.001194 us)\n"
    )


def test_the_command_says_what_is_missing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(file), "--json"]) == 1
    scaled, lazy = json.loads(capsys.readouterr().out)
    assert scaled["error"] == "scaled: the run-time size 'N' has no value; give N=..."
    assert lazy["error"] == "missing a required argument: 'N'; give it by --with NAME=VALUE"
    arguments = ["analyze", str(file), "--program", "lazy", "--with", "N=8", "dtype=float32"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["elementwise"] == {"float32": 8}
    assert main([*arguments[:3], "other"]) == 2
    assert "has no program named 'other' (scaled, lazy)" in capsys.readouterr().err
    assert main([*arguments[:2], "--with", "N"]) == 2
    assert "expected NAME=VALUE, got 'N'" in capsys.readouterr().err

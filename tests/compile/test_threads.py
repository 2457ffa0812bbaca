"""Launches of threads in CUDA C++: compiled for each architecture, and where they have no form."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.interpreted import run
from tests.programs.clusters import CLUSTERS
from tests.programs.construct import Construct
from tests.programs.sources import SOURCES
from tests.programs.threads import THREADS, wrapped_numbers
from tileops.cli.main import main
from tileops.codegen import gpu
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import Artifact, StageError, compile_kernel
from tileops.errors import (
    ArgumentError,
    SharedMemoryError,
    UnsupportedConstructError,
    UnsupportedOnTargetError,
)
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.ir.stmt import ExternCall
from tileops.ir.walk import walk
from tileops.target import parse_target


def program_of(func: Any, *inputs: torch.Tensor) -> Program:
    return tileops.jit(func).get_tir(*inputs)


def compiled(program: Program, target: str = "cuda:sm_90", **facts: bool) -> Artifact:
    chosen = parse_target(target)
    code = gpu.generate(program, chosen.text_target, Specialization(**facts))
    return compile_kernel(code, chosen, dict(program.options))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("case", [*THREADS, *SOURCES], ids=lambda c: c.id)
def test_each_program_compiles(case: Construct, target: str) -> None:
    artifact = compiled(program_of(case.func, *case.inputs()), target)
    image = artifact.launches[-1]
    assert artifact.files[image.image].startswith(b"\x7fELF")
    assert image.spills == 0
    (note,) = image.notes
    assert "CUDA path: line " in note


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda c: c.id)
def test_clusters_compile_where_there_are_some(case: Construct) -> None:
    program = program_of(case.func, *case.inputs())
    target = parse_target("cuda:sm_90")
    (launch,) = gpu.generate(program, target.text_target, Specialization()).launches
    blocks = math.prod(program.launches[0].cluster)
    assert launch.cluster == blocks > 1
    image = compiled(program).launches[0]
    assert image.spills == 0
    with pytest.raises(UnsupportedOnTargetError, match="needs sm_90, not cuda:sm_80"):
        compiled(program, "cuda:sm_80")


def test_a_cluster_that_nothing_uses_is_a_hint() -> None:
    def program(X):
        X: T.Tensor((4, 64), T.float32)
        with T.Kernel(4, threads=64, cluster_dims=2) as bx:
            for i in T.Parallel(64):
                X[bx, i] = X[bx, i] * 2

    x = torch.randn(4, 64)
    target = parse_target("cuda:sm_80")
    (launch,) = gpu.generate(program_of(program, x), target, Specialization()).launches
    assert (launch.language, launch.cluster) == ("triton", 1)


def test_clusters_that_do_not_divide_a_grid_are_refused_before_the_launch() -> None:
    (case,) = (c for c in CLUSTERS if c.id == "handed_around")
    with pytest.raises(ArgumentError, match="clusters of 4 blocks do not divide a grid of N"):
        tileops.jit(case.func)(torch.zeros(6, 64, dtype=torch.int32))


def test_integers_wrap_where_the_compiler_has_no_overflow() -> None:
    """NVRTC takes ``x + 1 > x`` of signed integers for true."""
    artifact = compiled(program_of(wrapped_numbers, torch.zeros(64, dtype=torch.int32)))
    text = artifact.files["launch0.cu"].decode()
    for call in ("wrapping_add", "wrapping_sub", "wrapping_mul", "shift_left", "absolute"):
        assert f"{call}<i32>(" in text


def tiles_then_threads(X):
    """A launch of tiles, one of threads, and one of tiles."""
    X: T.Tensor((64,), T.float32)
    Y = T.empty((64,), T.float32)
    Z = T.empty((64,), T.float32)
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            Y[i] = X[i] * 2
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        value = T.alloc_var(T.float32)
        value = Y[tx]
        while value > 1:
            value = value * 0.5
        Y[tx] = value
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            Z[i] = Y[i] + 1
    return Y, Z


def test_launches_keep_their_order() -> None:
    program = program_of(tiles_then_threads, torch.randn(64))
    target = parse_target("cuda:sm_90")
    code = gpu.generate(program, target.text_target, Specialization())
    assert [launch.language for launch in code.launches] == ["triton", "cuda", "triton"]
    images = compile_kernel(code, target, {}).launches
    assert [image.image for image in images] == [f"launch{n}.cubin" for n in range(3)]


def test_the_cpu_runs_them_in_order() -> None:
    x = torch.rand(64) * 4
    y, z = tileops.jit(tiles_then_threads)(x)
    expected = x * 2
    while (expected > 1).any():
        expected = torch.where(expected > 1, expected * 0.5, expected)
    assert torch.equal(y, expected)
    assert torch.equal(z, expected + 1)


def test_what_has_no_form_is_refused_with_its_line() -> None:
    program = program_of(tiles_then_threads, torch.randn(64))
    hip = parse_target("hip:gfx942")
    with pytest.raises(UnsupportedOnTargetError, match="for NVIDIA's GPUs and the CPU") as caught:
        gpu.generate(program, hip, Specialization())
    assert "while value > 1" in str(caught.value)
    with pytest.raises(UnsupportedConstructError, match="have no Triton form") as refused:
        run(tiles_then_threads, torch.randn(64))
    assert "while value > 1" in str(refused.value)
    with tileops.option.check(), pytest.raises(UnsupportedOnTargetError, match="no checks"):
        tileops.compile(program, target="cuda:sm_90")


def test_too_much_shared_memory_names_the_tiles() -> None:
    def program(X):
        X: T.Tensor((64,), T.float32)
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((64, 1024), T.float32)
            while X[tx] > 1:
                tile[tx, 0] = X[tx]
                X[tx] = tile[tx, 0] - 1

    with pytest.raises(SharedMemoryError, match=r"tile \(64, 1024\) float32: 262144"):
        compiled(program_of(program, torch.randn(64)))


def lanes_that_run_together(X):
    X: T.Tensor((32,), T.int64)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        if X[tx] > 0:
            X[tx] = T.cast(T.activemask(), T.int64)


def test_the_mask_of_lanes_that_run_together_is_for_gpus_alone() -> None:
    x = torch.ones(32, dtype=torch.int64)
    (launch,) = compiled(program_of(lanes_that_run_together, x)).launches
    assert launch.notes == (f"{launch.entry}: CUDA path: line {line_of('T.activemask')}: "
                            "T.activemask",)  # fmt: skip
    with pytest.raises(UnsupportedOnTargetError, match=r"T\.activemask on the CPU"):
        tileops.jit(lanes_that_run_together)(x)


def line_of(text: str) -> int:
    """The number of the first line of this file with ``text``."""
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize("case", SOURCES, ids=lambda c: c.id)
def test_what_is_for_gpus_alone_is_refused_on_the_cpu(case: Construct) -> None:
    why = (
        r"on the CPU(: its source is CUDA C\+\+|, where the blocks of a launch do not run at once)"
    )
    with pytest.raises(UnsupportedOnTargetError, match=why):
        tileops.jit(case.func)(*case.inputs())


def with_source(source: str) -> Program:
    def program(X):
        X: T.Tensor((32,), T.int32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            T.import_source(source)
            X[tx] = T.call_extern("int32", "twice", X[tx])

    return program_of(program, torch.ones(32, dtype=torch.int32))


def test_a_source_that_does_not_compile_is_an_error_with_its_line() -> None:
    with pytest.raises(StageError, match='"twice"') as caught:
        compiled(with_source("__device__ int thrice(int x) { return 3 * x; }"))
    program = with_source("")
    (call,) = (s for s in walk(program.launches) if isinstance(s, ExternCall))
    assert caught.value.statement == call.origin


def test_an_edit_of_a_source_is_another_program() -> None:
    texts = [f"__device__ int twice(int x) {{ return {n} * x; }}" for n in (2, 4)]
    first, second = (print_program(with_source(text)) for text in texts)
    assert first != second
    assert first == print_program(with_source(texts[0]))


def test_a_launch_with_a_barrier_of_the_grid_is_cooperative() -> None:
    target = parse_target("cuda:sm_90")
    (case,) = (c for c in SOURCES if c.id == "rounds_of_the_grid")
    program = program_of(case.func, *case.inputs())
    launches = gpu.generate(program, target.text_target, Specialization()).launches
    assert [(launch.language, launch.cooperative) for launch in launches] == [
        ("triton", False),
        ("cuda", True),
    ]


def test_a_kernel_shows_its_cuda_text(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tileops.compile(program_of(tiles_then_threads, torch.randn(64)), target="cuda:sm_90")
    source = kernel.get_kernel_source()
    assert "@triton.jit" in source
    assert "__launch_bounds__(64) tiles_then_threads_threads0(" in source
    assert main(["cache", "show", kernel.artifact.hash[:12]]) == 0
    shown = capsys.readouterr().out
    assert "CUDA path: line " in shown
    assert "--- launch1.cu\n// tiles_then_threads: generated by tileops" in shown

"""JITKernel: what it tells of itself, its files, compiling for other targets, measuring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, ToolchainError
from tileops.jit import kernel as kernels


def test_an_eager_program_compiles_without_tensors() -> None:
    kernel = samples.sum_difference.compile(M=4, N=70)
    x, y = torch.randn(4, 70), torch.randn(4, 70)
    d, s = kernel(x, y)
    assert torch.equal(s, x + y)
    assert torch.equal(d, (x - y).t().half())
    with pytest.raises(ArgumentError, match="expected dimension 0 to be 4"):
        kernel(torch.randn(5, 70), torch.randn(5, 70))
    assert samples.sum_difference.compile(x, y).name == kernel.name
    assert samples.sum_difference.get_tir(x, N=70).name == "sample_sum_difference"


def test_parameters() -> None:
    kernel = samples.sum_difference.compile(M=4, N=70)
    shown = [(p.name, p.dtype, p.shape, p.is_output) for p in kernel.params]
    assert shown == [
        ("X", torch.float32, (4, 70), False),
        ("Y", torch.float32, (4, 70), False),
        ("S", torch.float32, (4, 70), True),
        ("D", torch.float16, (70, 4), True),
    ]
    assert kernel.out_idx == [3, 2]
    assert kernel.config is None
    assert kernel.latency is None
    assert kernel.n_spills == 0


def test_the_op_of_a_kernel_is_named_after_its_content() -> None:
    kernel = samples.lazy_add(90)
    assert kernel.name.startswith("lazy_add__")
    assert len(kernel.name) == len("lazy_add__") + 10
    assert kernel.op.name() == f"tileops::{kernel.name}"
    assert kernel.op._schema.arguments[0].name == "A"


def test_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = samples.lazy_add(91)
    source = kernel.get_kernel_source()
    assert source == kernel.kernel_source
    assert json.loads(kernel.get_host_source())["launches"][0]["op_label"] == "lazy_add"
    kernel.show_source()
    assert capsys.readouterr().out == source
    kernel.show_source("both")
    assert source in capsys.readouterr().out
    with pytest.raises(ArgumentError, match="which"):
        kernel.show_source("all")
    kernel.export_sources(tmp_path / "k.cpp", tmp_path / "h.json")
    assert (tmp_path / "k.cpp").read_text() == source
    with pytest.raises(ArgumentError, match="kernel_path"):
        kernel.export_sources()
    with pytest.raises(ArgumentError, match="no ptx"):
        kernel.get_ptx()


def test_a_gpu_kernel_needs_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tileops.compile(samples.lazy_add.func(64), out_idx=[2], target="cuda:sm_90")
    assert str(kernel.target) == "cuda:sm_90a"
    assert "@triton.jit" in kernel.get_kernel_source()
    assert ".target sm_90a" in kernel.get_ptx()
    assert kernel.n_regs > 0
    kernel.export_ptx(tmp_path / "k.ptx")
    assert (tmp_path / "k.ptx").read_text() == kernel.get_ptx()
    assert "EXIT" in kernel.get_sass()
    monkeypatch.setattr(kernels.settings, "find_program", lambda name: None)
    monkeypatch.setattr(kernels, "_beside_triton", lambda name: None)
    with pytest.raises(ToolchainError, match="install"):
        kernel.get_sass()


def test_other_targets_are_other_kernels() -> None:
    func = samples.lazy_add.func(65)
    names = {
        tileops.compile(func, out_idx=[2], target=t).name
        for t in ("cpu", "cuda:sm_80", "cuda:sm_90")
    }
    assert len(names) == 3


def test_debug_root_path_gets_a_copy(tmp_path: Path) -> None:
    @tileops.jit(name="kernel_debugged", debug_root_path=str(tmp_path))
    def program(X):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i]
        return Y

    program(vector(10))
    files = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert {"program.txt", "device_kernel.cpp"} <= files


def test_a_debug_root_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    @tileops.jit(name="kernel_undebugged", debug_root_path=str(tmp_path / "file"))
    def program(X):
        X: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            T.clear(X)

    with pytest.raises(ArgumentError, match=r"op kernel_undebugged: debug_root_path='.*/file' can"):
        program(vector(4))


def test_profiler() -> None:
    kernel = samples.lazy_add(92)
    profiler = kernel.get_profiler()
    profiler.assert_allclose(lambda a, b: a + b)
    profiler.assert_consistent(repeat=3)
    with pytest.raises(AssertionError, match="elements differ"):
        profiler.assert_allclose(lambda a, b: a - b)
    assert 0 < profiler.do_bench(warmup=1, rep=2) < 1000
    assert profiler.run_once().shape == (92,)
    assert kernel.run_once().shape == (92,)


def test_profiler_compares_what_a_kernel_writes() -> None:
    def reference(x: torch.Tensor, p: torch.Tensor, q: torch.Tensor) -> None:
        p.copy_(x.relu())
        q.copy_(-(-x).relu())

    samples.lazy_split(30).get_profiler().assert_allclose(reference)


def test_verbose(capfd: pytest.CaptureFixture[str]) -> None:
    tileops.compile(samples.lazy_add.func(93), out_idx=[2], verbose=True)
    assert "compiled main for cpu" in capfd.readouterr().err

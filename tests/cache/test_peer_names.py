"""The names of other systems' caches: each does what its document says, or says why it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tileops import counters, option
from tileops.cache import cubin_cache, kernel_cache, store
from tileops.cache.kernel_cache import KernelCache
from tileops.compiler import gxx
from tileops.errors import ArgumentError, CacheError


@tileops.jit(out_idx=[-1])
def quadrupled(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 4.0

    return main


@pytest.fixture(autouse=True)
def _clean_memory() -> None:
    store().clear_memory()


def unfinished(N, block):
    """A function that returns a prim_func when called."""

    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 5.0

    return main


def test_cached_takes_a_function_and_its_arguments(root: Path) -> None:
    x = torch.randn(401)
    kernel = KernelCache().cached(unfinished, [-1], 401, 32, target="cpu")
    assert torch.equal(kernel(x), x * 5.0)
    counters.stats(reset=True)
    again = kernel_cache.cached(unfinished, [-1], 401, 32, target="cpu")
    assert torch.equal(again(x), x * 5.0)
    assert counters.stats()["compiles"] == 0


def test_cached_takes_every_documented_argument(root: Path) -> None:
    x = torch.randn(402)
    program = quadrupled.get_tir(402)
    fast = KernelCache().cached(
        program, target="cpu", target_host="c", execution_backend="cython", verbose=False,
        pass_configs={"tl.enable_fast_math": True}, compile_flags=["-O1"],
    )  # fmt: skip
    assert torch.equal(fast(x), x * 4.0)
    assert len(list((root / "programs").iterdir())) == 1
    for backend in ("auto", "tvm_ffi", "dlpack", "ctypes", "nvrtc", "torch", "cutedsl", None):
        kernel = KernelCache().cached(program, target="cpu", execution_backend=backend)
        assert torch.equal(kernel(x), x * 4.0)
    with pytest.raises(ArgumentError, match=r"execution_backend: expected one of auto, .* got 'x'"):
        KernelCache().cached(program, target="cpu", execution_backend="x")
    with pytest.raises(ArgumentError, match="execution_backend"):
        tileops.jit(execution_backend="x")(lambda: None)


def test_clear_cache_forgets_memory_and_disk(root: Path) -> None:
    program = quadrupled.get_tir(403)
    KernelCache().cached(program, target="cuda:sm_80")
    KernelCache().clear_cache()
    assert list((root / "programs").iterdir()) == []
    assert not (root / "scripts").exists()
    counters.stats(reset=True)
    KernelCache().cached(quadrupled.get_tir(403, block=32), target="cuda:sm_80")
    assert counters.stats()["compiles"] == 1


def test_the_file_names_are_those_of_an_entry(root: Path) -> None:
    program = quadrupled.get_tir(404)
    cpu = KernelCache().cached(program, target="cpu").cache_path
    gpu = KernelCache().cached(program, target="cuda:sm_80").cache_path
    assert cpu is not None
    assert gpu is not None
    for name in ("DEVICE_KERNEL_PATH", "KERNEL_LIB_PATH", "PARAMS_PATH"):
        assert (cpu / getattr(kernel_cache, name)).is_file(), name
    for name in ("KERNEL_CUBIN_PATH", "KERNEL_PY_PATH", "PARAMS_PATH"):
        assert (gpu / getattr(kernel_cache, name)).is_file(), name
    assert KernelCache.execution_backend == "auto"


@pytest.mark.parametrize("name", ["HOST_KERNEL_PATH", "EXECUTABLE_PATH"])
def test_a_file_that_no_entry_has_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(CacheError, match=f"{name}: an entry has no "):
        exec(f"from tileops.cache.kernel_cache import {name}")
    with pytest.raises(AttributeError):
        _ = kernel_cache.NO_SUCH_NAME


def test_the_directory_that_an_option_names_can_be_read_and_deleted(tmp_path: Path) -> None:
    """Sources, IR after each pass, links, table and command, where the document says; then gone."""
    program = quadrupled.get_tir(405)
    x = torch.randn(405)
    with option.cache_dir(tmp_path / "cache"), option.debug.dump_ir():
        kernel = tileops.compile(program, target="cpu")
        assert torch.equal(kernel(x), x * 4.0)
    (folder,) = (tmp_path / "cache" / "programs").iterdir()
    assert re.fullmatch("[0-9a-f]{64}", folder.name)
    assert "launch" in (folder / "program.txt").read_text()
    assert "target" in (folder / "options.txt").read_text()
    assert len(list((folder / "ir").glob("[0-9][0-9]_*.txt"))) >= 2
    (script,) = (tmp_path / "cache" / "scripts").glob("*/*")
    link = script / "programs" / "0"
    assert link.is_symlink()
    assert not Path(os.readlink(link)).is_absolute()  # noqa: PTH115
    assert link.resolve() == folder.resolve()
    assert folder.name[:12] in (script / "dispatch_table.txt").read_text()
    again = tmp_path / "again"
    again.mkdir()
    for name in ("compile.sh", "device_kernel.cpp"):
        shutil.copy(folder / name, again)
    subprocess.run(
        ["sh", "compile.sh"], cwd=again, check=True,
        env=os.environ | {"TILEOPS_INCLUDE": str(gxx.include_folder())},
    )  # fmt: skip
    assert (again / "kernel_lib.so").read_bytes() == (folder / "kernel_lib.so").read_bytes()
    shutil.rmtree(tmp_path / "cache")
    assert torch.equal(kernel(x), x * 4.0)
    store().clear_memory()
    with option.cache_dir(tmp_path / "cache"):
        assert torch.equal(quadrupled(406)(x[:0].new_ones(406)), torch.full((406,), 4.0))
    assert len(list((tmp_path / "cache" / "programs").iterdir())) == 1


def test_the_names_of_the_cubin_cache() -> None:
    documented = (
        "CacheKey", "CacheEntry", "CubinCache", "get_global_cache", "set_global_cache",
        "DEFAULT_CACHE_DIR",
    )  # fmt: skip
    assert all(hasattr(cubin_cache, name) for name in documented)
    key = cubin_cache.CacheKey(
        fn_id="f", template_kwargs=(("n", 1),), input_shapes=(((2, 3), "float32"),), arch="sm_90a"
    )
    assert re.fullmatch("[0-9a-f]{64}", key.hash())
    entry = cubin_cache.CacheEntry(key=key, ptx_source="// ptx", cubin_bytes=None)
    assert entry.metadata == {}
    cache = cubin_cache.CubinCache(enable_disk=False)
    assert cache.put(entry) is None
    assert cache.get(key) is entry
    assert cache.clear() is None
    assert cache.get(key) is None

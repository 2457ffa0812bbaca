"""dump_ir: the IR after each pass beside the program, with the same key and the same code."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import tileops
import tileops.language as T
from tileops import counters, log, option
from tileops.cache import catalog, store
from tileops.passes.pipeline import CPU, TRITON, Pass


@tileops.jit(out_idx=[-1])
def dumped(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            total = T.alloc_var(T.float32, 0.0)
            for k in T.serial(8):
                if k > 4:
                    break
                total += 1.0
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + total

    return main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    store().clear_memory()
    log._warned.clear()
    with option.cache_dir(tmp_path / "cache"):
        counters.stats(reset=True)
        yield tmp_path / "cache"
    store().clear_memory()


def _compile(count: int, target: str) -> tuple[Path, str]:
    store().clear_memory()
    kernel = tileops.compile(dumped.get_tir(count), target=target)
    assert kernel.cache_path is not None
    return kernel.cache_path, kernel.artifact.hash


def _names(path: Path) -> list[str]:
    return sorted(p.name for p in (path / "ir").iterdir())


def _numbered(*names: str) -> list[str]:
    return [f"{number:02d}_{name}.txt" for number, name in enumerate(names)]


def _steps(passes: tuple[Pass, ...]) -> list[str]:
    return [step.__name__ for step in passes]


def test_every_pass_has_a_file_in_order() -> None:
    with option.debug.dump_ir():
        path, _ = _compile(200, "cuda:sm_90")
    stages = [f"launch0_{stage}" for stage in ("ttir", "ttgir", "llir", "ptx")]
    assert _names(path) == _numbered("trace", *_steps(TRITON), "generate", *stages)
    read = {p.stem[3:]: p.read_text() for p in (path / "ir").iterdir()}
    assert read["trace"] == (path / "program.txt").read_text()
    assert "break" in read["trace"]
    assert "break" not in read["lower_escapes"]
    assert read["generate"] == (path / "kernel.py").read_text()
    assert ".target sm_90a" in read["launch0_ptx"]


def test_an_entry_that_exists_gets_its_dump_without_a_compile(folder: Path) -> None:
    path, before = _compile(201, "cpu")
    assert not (path / "ir").exists()
    manifest = (path / "manifest.json").read_bytes()
    with option.debug.dump_ir():
        again, after = _compile(201, "cpu")
    assert (again, after) == (path, before)
    assert counters.stats()["compiles"] == 1
    assert _names(path) == _numbered("trace", *_steps(CPU), "generate")
    assert (path / "manifest.json").read_bytes() == manifest
    assert all(problem is None for _, problem in catalog.verify())
    assert list((folder / ".state" / "staging").iterdir()) == []


def test_the_key_is_the_same_with_and_without(tmp_path: Path) -> None:
    _, plain = _compile(202, "cpu")
    with option.cache_dir(tmp_path / "other"), option.debug.dump_ir():
        _, dumping = _compile(202, "cpu")
    assert plain == dumping


def test_the_environment_asks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEOPS_DUMP_IR", "1")
    path, _ = _compile(203, "cpu")
    assert _names(path)[0] == "00_trace.txt"


def test_without_a_directory_it_warns_once_and_goes_on() -> None:
    store().clear_memory()
    with option.cache_disable(), option.debug.dump_ir():
        with pytest.warns(RuntimeWarning, match="dump_ir"):
            tileops.compile(dumped.get_tir(204), target="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tileops.compile(dumped.get_tir(205), target="cpu")


def test_a_fault_leaves_nothing_and_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = _compile(206, "cpu")
    real = os.fsync

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with option.debug.dump_ir(), pytest.warns(RuntimeWarning, match="No space left"):
        _compile(206, "cpu")
    assert not (path / "ir").exists()
    assert list((folder / ".state" / "staging").iterdir()) == []
    monkeypatch.setattr(os, "fsync", real)
    with option.debug.dump_ir():
        _compile(206, "cpu")
    assert _names(path)

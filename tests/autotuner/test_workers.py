"""Compile workers: what they get, what they answer, and how they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.processes import ends_within
from tests.programs import samples
from tileops.autotuner.benches import LocalBench
from tileops.child import Child, ChildEndedError, ChildTimeoutError
from tileops.codegen.kernel_code import Specialization
from tileops.jit.compile_workers import CompilePool, answer, worker_count
from tileops.jit.compiling import Request
from tileops.target import parse_target

ROOT = Path(__file__).resolve().parents[2]


def job(program: object, target: str = "cpu") -> Request:
    spec = Specialization(fast=True)
    return Request(program, parse_target(target), spec, "sample", "tuning")  # type: ignore[arg-type]


def compiled(pool: CompilePool, *jobs: Request) -> list:
    found = dict(pool.compile(dict(enumerate(jobs))))
    return [found[n] for n in range(len(jobs))]


@tileops.jit(name="tuning_too_much_shared", target="cuda:sm_80")
def too_much_shared(A, B, block: int = 1024):
    A: T.Tensor((64, 1024), T.float16)
    B: T.Tensor((1024, 64), T.float16)
    C = T.empty((64, 64), T.float32)
    with T.Kernel(1, threads=128) as _:
        left = T.alloc_shared((64, block), T.float16)
        right = T.alloc_shared((block, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.copy(A, left)
        T.copy(B, right)
        T.clear(acc)
        T.gemm(left, right, acc)
        T.copy(acc, C)
    return C


def test_configs_compile_into_the_cache_and_run_from_there(tmp_path: Path) -> None:
    x = torch.randn(1000)
    with CompilePool(str(tmp_path), 120, workers=2) as pool:
        programs = [samples.scaled.get_tir(x, block_N=block) for block in (64, 128)]
        first = compiled(pool, *map(job, programs))
        again = compiled(pool, *map(job, programs))
    assert [c.status for c in first] == ["ok", "ok"], [c.reason for c in first]
    assert len({c.hash for c in first}) == 2
    assert [c.hash for c in again] == [c.hash for c in first]
    assert all(c.compile_s > 0 for c in first)
    assert all(c.compile_s == 0 for c in again)
    assert all((tmp_path / "programs" / c.hash / "manifest.json").is_file() for c in first)
    bench = LocalBench(torch.device("cpu"), [x])
    for c in first:
        (result,) = bench.run(c.hash, c.loadable, 10.0)
        assert torch.equal(result, 2 * x)
    bench.close()


def test_the_parent_finds_what_a_worker_compiled(tmp_path: Path) -> None:
    x = torch.randn(777)
    with tileops.option.cache_dir(tmp_path), CompilePool(str(tmp_path), 120, workers=1) as pool:
        (done,) = compiled(pool, job(samples.scaled.get_tir(x, block_N=32)))
        kernel = samples.scaled.compile(x, block_N=32)
        assert kernel.artifact.hash == done.hash


def test_without_a_directory_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with CompilePool("", 120, workers=1) as pool:
        (done,) = compiled(pool, job(samples.scaled.get_tir(torch.zeros(8))))
        assert done.status == "ok"
        (image,) = done.loadable["images"].values()
        assert Path(image["path"]).is_file()
    assert list(tmp_path.iterdir()) == []


def test_failures_are_classified(tmp_path: Path) -> None:
    x = torch.randn(64)
    bad_flags = tileops.jit(name="tuning_bad_flags", compile_flags=["-fno-such-flag"])(
        samples.scaled.func
    )
    with CompilePool(str(tmp_path), 100, workers=1) as pool:
        found = compiled(
            pool,
            job(bad_flags.get_tir(x)),
            job(too_much_shared.get_tir(), "cuda:sm_80"),
            job(samples.scaled.get_tir(x)),
        )
    assert [c.status for c in found] == ["compile_error", "shared_memory", "ok"]
    assert "no-such-flag" in found[0].reason
    assert "bytes" in found[1].reason
    unreadable = answer({**job(samples.scaled.get_tir(x)).to_json(), "program": "{"})
    assert unreadable["status"] == "compile_error"
    assert "InternalError" in unreadable["reason"]


def test_a_compile_that_takes_too_long_is_ended_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "slow++"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *dumpversion*) exec g++ "$@";; esac\n'
        f"echo $$ >> {tmp_path}/pids\nexec sleep 600\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("TILEOPS_CXX", str(compiler))
    program = samples.scaled.get_tir(torch.zeros(8))
    with CompilePool(str(tmp_path / "cache"), 3.0, workers=1) as pool:
        start = time.monotonic()
        (found,) = compiled(pool, job(program))
        assert found.status == "timeout"
        assert "3 s" in found.reason
        assert time.monotonic() - start < 60
    # The compiler that the worker had started ends too; the kernel needs a moment for it.
    for pid in (tmp_path / "pids").read_text().split():
        assert ends_within(int(pid), 30)


def test_workers_are_as_many_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_count() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("TILEOPS_TUNE_WORKERS", "3")
    assert worker_count() == 3


def test_a_worker_imports_nothing_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module in the working directory that has the name of a standard one is not imported."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    with CompilePool(str(tmp_path / "cache"), 120, workers=1) as pool:
        (found,) = compiled(pool, job(samples.scaled.get_tir(torch.zeros(8))))
    assert found.status == "ok", found.reason


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
def test_a_worker_does_not_wait_for_torch(tmp_path: Path, target: str) -> None:
    """Importing torch takes longer than all that a worker needs."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, sys\n"
        "from tileops.jit.compile_workers import answer\n"
        "found = answer(json.loads(sys.argv[1]))\n"
        "assert found['status'] == 'ok', found\n"
        "print('torch' in sys.modules)\n"
    )
    message = json.dumps(job(samples.scaled.get_tir(torch.zeros(8)), target).to_json())
    done = subprocess.run(
        [sys.executable, str(script), message],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEOPS_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["False"], done.stderr


def test_a_child_that_ends_says_how() -> None:
    child = Child("platform")  # a module that prints and ends
    with pytest.raises((ChildEndedError, ChildTimeoutError)):
        child.ask({}, 0.5)
    child.kill()
    child = Child("tileops.autotuner.no_such_module")
    with pytest.raises(ChildEndedError, match=r"ended with status 1: .*no_such_module"):
        child.ask({}, 30.0)

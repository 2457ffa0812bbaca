"""A warm start: a process that finds its program in the cache imports no Triton and no compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT

PROGRAM = """
import json, sys, time
import torch
started = set(sys.modules)
import tileops
import tileops.language as T

@tileops.jit
def scale(A, block_N: int = 256):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
        for i in T.Parallel(block_N):
            B[bx * block_N + i] = A[bx * block_N + i] * 2.0
    return B

a = torch.arange(1000.0)
start = time.perf_counter()
b = scale(a)
first = time.perf_counter()
scale(a)
again = time.perf_counter()
print(json.dumps({
    "right": torch.equal(b, a * 2),
    "stats": tileops.stats(),
    "modules": sorted(set(sys.modules) - started),
    "first_ms": (first - start - (again - first)) * 1e3,
}))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """The same program in three processes with one cache: a cold start and two warm ones."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "program.py").write_text(PROGRAM)
    return [_run(folder) for _ in range(3)]


def _run(folder: Path) -> dict[str, object]:
    import os

    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TILEOPS_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, str(folder / "program.py")],
        env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_second_process_compiles_nothing(runs: list[dict[str, object]]) -> None:
    assert [run["right"] for run in runs] == [True] * 3
    assert [run["stats"]["compiles"] for run in runs] == [1, 0, 0]  # type: ignore[index]
    assert [run["stats"]["disk_hits"] for run in runs] == [0, 1, 1]  # type: ignore[index]


def test_neither_triton_nor_the_compiler_is_imported(runs: list[dict[str, object]]) -> None:
    for run in runs[1:]:
        modules = run["modules"]
        assert isinstance(modules, list)
        wrong = [m for m in modules if m.split(".")[0] == "triton" or "tileops.compiler" in m]
        assert wrong == [], wrong[:5]


def test_it_does_not_pull_in_the_graph_compiler(runs: list[dict[str, object]]) -> None:
    # torch._dynamo alone takes longer to import than everything a warm start does.
    for run in runs[1:]:
        modules = run["modules"]
        assert isinstance(modules, list)
        assert "torch._dynamo" not in modules
        assert "torch._inductor" not in modules


def test_no_pickle_module_is_used_by_the_package(runs: list[dict[str, object]]) -> None:
    for run in runs[1:]:
        modules = run["modules"]
        assert isinstance(modules, list)
        assert "cloudpickle" not in modules

"""docs/support.md is what recorded runs of the tests say, and every construct ran on every executor
that needs no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tileops.language as T
from tests.docs import support

PROGRAM = """
import pytest, torch, tileops
import tileops.language as T
from tileops.errors import ArgumentError

def double(X):
    X: T.Tensor((4,), T.float32)
    Y = T.empty((4,), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(4):
            Y[i] = getattr(T, "exp2")(X[i])
            Y[i] *= 2.0
    return Y

def failing(X):
    X: T.Tensor((4,), T.float32)
    with T.Kernel(1):
        T.device_assert(X[0] > 0.0)
        T.clear(X)

def test_passes():
    assert tileops.jit(double)(torch.ones(4)).tolist() == [4.0] * 4

def test_fails():
    tileops.jit(failing)(torch.ones(4))
    assert False
"""


def test_the_page_is_current() -> None:
    recorded = support.load()
    if os.environ.get("TILEOPS_UPDATE_GOLDEN") == "1":
        support.PAGE.write_text(support.page(recorded))
    assert support.PAGE.read_text() == support.page(recorded), (
        "docs/support.md is not current: run python -m tests.docs.support"
    )


def test_every_construct_has_a_row() -> None:
    text = support.page(support.load())
    values = {n for n in T.__all__ if isinstance(getattr(T, n), T.dtype)} | {
        "Var",
        "PrimExpr",
        "dtype",
    }
    assert [n for n in T.__all__ if n not in values and f"`{n}`" not in text] == []


@pytest.mark.parametrize("executor", ["cpu", "compile", "interpreter"])
def test_every_construct_ran(executor: str) -> None:
    assert support.missing(support.load(), executor) == []


def test_every_reason_is_needed() -> None:
    found = support.coverage(support.load())
    needless = [(name, where) for name, where in support.REASONS if name in found[where]]
    assert needless == []


def test_a_run_records_what_passed(tmp_path: Path) -> None:
    file = tmp_path / "test_recorded.py"
    file.write_text(PROGRAM)
    record = tmp_path / "record.json"
    environment = {**os.environ, "TILEOPS_TEST_RECORD": str(record)}
    environment.pop("PYTEST_XDIST_WORKER", None)  # this run has no workers of its own
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file),
         "-p", "tests.conftest", f"--rootdir={tmp_path}"],
        cwd=support.ROOT, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    found = json.loads(record.read_text())
    names = ["Kernel", "Parallel", "Tensor", "augmented assignment", "empty", "exp2", "float32"]
    assert found == {name: ["cpu"] for name in names}


def test_a_merge_keeps_other_executors_and_ends_what_only_sources_said() -> None:
    before = {"by_source": ["gpu"], "constructs": {"copy": ["cpu", "gpu"], "gone": ["cpu"]}}
    run = {"gemm": ["gpu"], "copy": ["interpreter"]}
    assert support.merge(before, [run], fresh=False) == {
        "by_source": [],
        "constructs": {"copy": ["cpu", "interpreter"], "gemm": ["gpu"]},
    }
    again = support.merge(
        support.merge(before, [run], fresh=False), [{"fill": ["cpu"]}], fresh=True
    )
    assert again["constructs"] == {"copy": ["interpreter"], "fill": ["cpu"], "gemm": ["gpu"]}

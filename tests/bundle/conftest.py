"""One bundle of the sample programs for this CPU, and processes that load it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tileops
from tests.programs import samples

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def sample_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample programs, one of them for two sets of compile-time values."""
    folder = tmp_path_factory.mktemp("bundles") / "samples"
    ops = [
        samples.axpy,
        samples.add_into,
        samples.counted,
        samples.row_sums,
        (samples.sum_difference, [{"M": 3, "N": 5}, {"M": 4, "N": 70}]),
        (samples.scaled, [{"N": 9}, {"N": 9, "factor": float("inf"), "dtype": "float64"}]),
        samples.lazy_add(48),
    ]
    return tileops.bundle(folder, ops, "cpu")


@pytest.fixture(scope="session")
def run_python() -> Run:
    """Runs a program text in a fresh process and gives its output; ``fails`` gives its stderr."""

    def run(text: str, *arguments: object, fails: bool = False, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", text, *map(str, arguments)],
            capture_output=True, text=True, timeout=300,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stderr
        return (done.stderr if fails else done.stdout).strip()

    return run

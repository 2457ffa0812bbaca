"""A call of a program takes the interpreter's lock once for all its tensors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_tensors_are_let_go_under_one_lock(tmp_path: Path) -> None:
    library = tmp_path / "lock_counter.so"
    subprocess.run(
        [shutil.which("g++") or "g++", "-x", "c", "-O1", "-shared", "-fPIC", "-o", str(library),
         str(HERE / "lock_counter.c"), "-ldl"],
        check=True,
    )  # fmt: skip
    env = dict(os.environ, LD_PRELOAD=str(library), TILEOPS_CACHE_DIR=str(tmp_path / "cache"))
    out = subprocess.run(
        [sys.executable, "-m", "tests.jit.counted_locks", str(library)],
        cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=200,
    ).stdout  # fmt: skip
    counts = json.loads(out)
    assert counts["torch.add"] >= 1  # the counter counts
    # Beside what torch.add does: once to let go of the inputs, however many there are.
    assert counts["function of 2 tensors"] <= counts["torch.add"] + 1
    assert counts["function of 7 tensors"] == counts["function of 2 tensors"]


def test_what_was_announced_may_meet_another_call_first() -> None:
    class Doubled(TorchDispatchMode):
        """Runs each op with another call of a program before it."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            other = samples.axpy(args[0], args[0], 1.0)
            return func(*args, **(kwargs or {})) + other

    x, y = vector(4), vector(4)
    assert torch.equal(samples.axpy(x, y, 1.0), x + y)
    with Doubled():
        got = samples.axpy(x, y, 1.0)
    assert torch.equal(got, (x + y) + (x + x))


def test_the_lock_is_taken_on_the_way_out_of_an_error_too() -> None:
    x = vector(4)
    samples.axpy(x, x, 1.0)
    for _ in range(3):
        with pytest.raises(ArgumentError, match="Y"):
            samples.axpy(x, vector(5), 1.0)
    assert torch.equal(samples.axpy(x, x, 1.0), x + x)

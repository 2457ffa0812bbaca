"""Operators load when they are first named; a program of a user keeps the name of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import tileops.language as T

@tileops.jit
def softmax(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 32), threads=32) as b:
        for i in T.Parallel(32):
            Y[b * 32 + i] = X[b * 32 + i] * 2
    return Y
"""
CHECK = """
x = torch.ones(4)
assert softmax(x).tolist() == torch.ops.tileops.softmax(x).tolist() == [2, 2, 2, 2]
assert tileops.ops.softmax(x, 0).tolist() == [0.25] * 4
"""


def run(text: str, folder: Path) -> str:
    """What a program writes to standard error; it must succeed."""
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"import torch, tileops\n{PROGRAM}{CHECK}",
        f"import torch, tileops\ntileops.ops.softmax\n{PROGRAM}{CHECK}",
    ],
    ids=["program_first", "operator_first"],
)
def test_a_program_keeps_its_name(text: str, tmp_path: Path) -> None:
    said = run(text, tmp_path)
    assert said.count("the operator of tileops with this name is tileops.ops.softmax") == 1


def test_operators_load_by_name(tmp_path: Path) -> None:
    run(
        "import sys, torch, tileops\n"
        "assert 'tileops.ops.norms' not in sys.modules and 'tileops.op' not in sys.modules\n"
        "assert {'rms_norm', 'softmax'} <= set(dir(torch.ops.tileops))\n"
        "torch.ops.tileops.rms_norm\n"
        "assert 'tileops.ops.norms' in sys.modules\n"
        "assert 'tileops.ops.losses' not in sys.modules\n"
        "assert not hasattr(torch.ops.tileops, 'nothing')\n"
        "assert torch.ops.tileops.rms_norm is torch.ops.tileops_ops.rms_norm\n"
        "assert torch.ops.tileops.rms_norm.__module__ == 'torch._ops.tileops_ops'\n",
        tmp_path,
    )


@pytest.mark.parametrize("first", ["bundle", "operator"])
def test_an_op_of_a_bundle_keeps_its_name(first: str, tmp_path: Path) -> None:
    bundle = f"tileops.load_bundle({str(tmp_path / 'ops')!r})\n"
    operator = "assert tileops.ops.softmax(torch.ones(4), 0).tolist() == [0.25] * 4\n"
    run(
        f"import torch, tileops\n{PROGRAM}tileops.bundle({str(tmp_path / 'ops')!r}, softmax, 'cpu')\n",
        tmp_path,
    )
    loaded = bundle + operator if first == "bundle" else operator + bundle
    run(
        f"import torch, tileops\n{loaded}{operator}"
        "assert torch.ops.tileops.softmax(torch.ones(4)).tolist() == [2, 2, 2, 2]\n",
        tmp_path,
    )

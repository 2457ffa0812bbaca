"""Kernels of others as ops: what authors add, what torch's tools ask of an op, and a bundle."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.foreign import converted
from tests.foreign.cases import CASES, Case
from tests.foreign.launched import Launched
from tileops import counters, option

ROOT = Path(__file__).parents[2]
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each
def test_an_author_adds_at_most_twelve_lines(case: Case) -> None:
    function = inspect.unwrap(case.program)
    lines = [line for line in inspect.getsource(function).splitlines() if line.strip()]
    assert len(lines) <= 12, lines


@each
def test_each_compiles_for_hopper(case: Case) -> None:
    op, wanted = Launched.of_call(case.program, case.inputs(33, 64, "cpu"), **case.keywords)
    entry = op.compiled(wanted)
    assert [name for name in entry.files if name.endswith(".cubin")]


@each
def test_torch_takes_it_for_an_op(case: Case) -> None:
    """Schema, outputs without data, and export with a run-time size, the CPU running a function."""
    torch._dynamo.reset()
    inputs = case.inputs(6, 64, "cpu")
    if case.program is converted.rms_norm_gradient:
        expected = case.results(partial(case.reference, blocks=132), inputs)
    else:
        expected = case.results(case.reference, inputs)
    for ours, theirs in zip(case.results(case.program, inputs), expected, strict=True):
        assert torch.equal(ours, theirs)
    torch.library.opcheck(
        case.program.op,
        inputs,
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )

    class Model(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
            found = case.program(*copies)
            return copies if case.writes else found

    compiled = torch.compile(Model(), backend="aot_eager", fullgraph=True, dynamic=True)
    compiled(*inputs)
    exported = torch.export.export(Model(), inputs)
    assert any("tileops.their_" in str(node.target) for node in exported.graph.nodes)


WITHOUT = """
import sys
for name in ("triton", "liger_kernel"):
    sys.modules[name] = None
import torch, tileops
tileops.load_bundle(sys.argv[1])
x, w = torch.empty(5, 64, device="meta", dtype=torch.bfloat16), torch.empty(64, device="meta", dtype=torch.bfloat16)
y, rstd = torch.ops.tileops.their_rms_norm(x, w, 1e-6)
q = torch.empty(2, 9, 64, device="meta", dtype=torch.float16)
o = torch.ops.tileops.their_attention(q, q, q, 0.125)
print(tuple(y.shape), tuple(rstd.shape), tuple(o.shape), tileops.stats()["compiles"])
"""


def test_a_bundle_needs_neither_their_package_nor_triton(tmp_path: Path) -> None:
    programs = {case.name: case.program for case in CASES}
    wanted = [
        (programs["rms_norm"], [{"N": 64, "D": "bfloat16"}]), (programs["attention"], [{"H": 64}]),
        (programs["transpose"], [{"D": "float16"}]), (programs["doubled_boxes"], [{}]),
    ]  # fmt: skip
    folder = tileops.bundle(tmp_path / "ops", wanted, "cuda:sm_90")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(folder)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "(5, 64) (5,) (2, 9, 64) 0", done.stderr[-2000:]
    assert counters.stats()["compiles"] > 0
    with option.cache_dir(tmp_path / "empty"):
        assert {p.name for p in (folder / "ops").iterdir()} == {
            "their_rms_norm", "their_attention", "their_transpose", "their_boxes",
        }  # fmt: skip

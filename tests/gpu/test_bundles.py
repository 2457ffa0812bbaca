"""Bundles on the GPU: a fresh process without compiler or source runs what was bundled here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

import tileops
from tests.programs import samples

ROOT = Path(__file__).resolve().parents[2]

CALLS = """
import sys, torch, tileops
ops = tileops.load_bundle(sys.argv[1])
t = torch.ops.tileops
torch.manual_seed(0)
for device in [torch.device("cuda", n) for n in range(torch.cuda.device_count())] + [torch.device("cpu")]:
    for n in (1, 16, 1000, 0):
        x, y = (torch.randn(n, device=device) for _ in range(2))
        assert torch.allclose(t.sample_axpy(x, y, 0.5), 0.5 * x + y, rtol=0, atol=1e-6)
    base = torch.randn(65, device=device)
    assert torch.allclose(t.sample_axpy(base[1:], base[1:], 2.0), 3 * base[1:], rtol=0, atol=1e-5)
    a, b = (torch.randn(3, 5, device=device) for _ in range(2))
    d, s = t.sample_sum_difference(a, b)
    assert torch.equal(s, a + b) and torch.equal(d, (a - b).to(torch.float16).T.contiguous())
assert t.sample_counted(5, 3, device="cuda").tolist() == [3, 4, 5, 6, 7]
stream = torch.cuda.Stream()
x = torch.randn(1 << 16, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    y = t.sample_axpy(x, x, 1.0)
stream.synchronize()
assert torch.equal(y, x + x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    z = t.sample_axpy(x, x, 3.0)
x.normal_()
graph.replay()
torch.cuda.synchronize()
assert torch.allclose(z, 4 * x, rtol=0, atol=1e-5)
try:
    t.sample_sum_difference(torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda"))
except tileops.CompileMissError as error:
    assert "no kernel for cuda:0 (sm_" in str(error) and "M = 2, N = 2" in str(error), error
else:
    raise AssertionError("a kernel that no bundle has")
assert not [m for m in sys.modules if m.startswith(("triton", "tileops.compiler", "tileops.frontend"))]
print("good", tileops.stats()["compiles"])
"""


def test_a_fresh_process_runs_a_bundle(tmp_path: Path) -> None:
    major, minor = torch.cuda.get_device_capability()
    ops = [samples.axpy, samples.counted, (samples.sum_difference, [{"M": 3, "N": 5}])]
    bundle = tileops.bundle(tmp_path / "bundle", ops, [f"cuda:sm_{major}{minor}", "cpu"])
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(bundle)],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TILEOPS_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.stdout.strip() == "good 0", done.stderr
    assert not (tmp_path / "cache" / "programs").exists()

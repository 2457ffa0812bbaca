"""Bundles on a GPU that runs code for others: cubins of its generation, PTX by the driver's compiler, its own first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tileops
from tests.programs import samples

ROOT = Path(__file__).resolve().parents[2]
SIX = ["cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_90", "cuda:sm_100", "cuda:sm_120"]

CALLS = """
import json, sys, torch, tileops
tileops.load_bundle(sys.argv[1])
t = torch.ops.tileops
found = {}
try:
    for n in (1, 16, 1000, 1 << 20):
        x, y = (torch.randn(n, device="cuda") for _ in range(2))
        assert torch.allclose(t.sample_axpy(x, y, 0.5), 0.5 * x + y, rtol=0, atol=1e-6)
    base = torch.randn(65, device="cuda")
    assert torch.allclose(t.sample_axpy(base[1:], base[1:], 2.0), 3 * base[1:], rtol=0, atol=1e-5)
    a, b = (torch.randn(3, 5, device="cuda") for _ in range(2))
    d, s = t.sample_sum_difference(a, b)
    assert torch.equal(s, a + b) and torch.equal(d, (a - b).to(torch.float16).T.contiguous())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = t.sample_axpy(x, x, 3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(z, 4 * x, rtol=0, atol=1e-5)
    found["right"] = True
except tileops.CompileMissError as error:
    found["miss"] = str(error)
assert not [m for m in sys.modules if m.startswith(("triton", "tileops.compiler", "tileops.frontend"))]
print(json.dumps({**found, "stats": tileops.stats()}))
"""
OPS = [samples.axpy, (samples.sum_difference, [{"M": 3, "N": 5}])]


def capability() -> int:
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def run(bundle: Path, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(bundle)], capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {**found, **found.pop("stats"), "log": done.stderr}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    root = tmp_path_factory.mktemp("serving")

    def make(name: str, targets: list[str], ptx: str | tuple[()] = ()) -> Path:
        return tileops.bundle(root / name, OPS, targets, ptx=ptx)

    return make


def test_a_cubin_of_another_generation_is_refused(bundle: Callable[..., Path]) -> None:
    found = run(bundle("cubins", ["cuda:sm_80"]))
    if capability() // 10 == 8:
        assert found["right"]
        return
    assert "right" not in found
    assert f"no kernel for cuda:0 (sm_{capability()})" in str(found["miss"])
    assert "(cuda:sm_80)" in str(found["miss"])


def test_ptx_is_compiled_by_the_driver_and_right(
    bundle: Callable[..., Path], record_property: Callable[[str, object], None]
) -> None:
    folder = bundle("ptx", ["cuda:sm_80"], "sm_80")
    found = run(folder, TILEOPS_LOG="cache", CUDA_CACHE_DISABLE="1")
    assert found["right"]
    if capability() // 10 == 8:
        return
    milliseconds = found["ms"]["jit"]  # type: ignore[index]
    print(f"{found['jits']} texts of PTX compiled by the driver in {milliseconds} ms")
    record_property("jit_ms", milliseconds)
    assert int(found["jits"]) == found["loads"] > 0  # type: ignore[call-overload]
    assert milliseconds > 0
    assert f"(sm_{capability()}): PTX of sm_80, which the driver compiles" in str(found["log"])


def test_code_of_the_devices_own_comes_first(bundle: Callable[..., Path]) -> None:
    found = run(bundle("own", ["cuda:sm_80", f"cuda:sm_{capability()}"], "sm_80"))
    assert found["right"]
    assert found["jits"] == 0


def test_a_bundle_for_six_architectures(bundle: Callable[..., Path]) -> None:
    folder = bundle("six", SIX, "sm_80")
    document = json.loads((folder / "ops" / "sample_axpy" / "op.json").read_text())
    entries = [entry for variant in document["variants"] for entry in variant["entries"]]
    assert len({entry["target"] for entry in entries}) == len(SIX)
    found = run(folder)
    assert found["right"]
    assert found["compiles"] == 0
    is_listed = f"cuda:sm_{capability()}" in SIX
    assert (found["jits"] == 0) == (is_listed or capability() // 10 == 8)

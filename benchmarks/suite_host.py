"""The host-side suite: calls, imports and first compiles."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

import tileops
from benchmarks import host_calls, host_peers
from benchmarks.harness import ROOT, Result, Timing, cost_result


def import_results() -> Iterator[Result]:
    """Seconds that ``import tileops`` adds to ``import torch``, each in fresh processes, in turn."""
    program = (
        "import time; import torch; t = time.perf_counter(); {} print(time.perf_counter() - t)"
    )
    samples: dict[str, list[float]] = {"import tileops": [], "nothing": []}
    for _ in range(5):
        for name, line in (("import tileops", "import tileops;"), ("nothing", "")):
            out = subprocess.run(
                [sys.executable, "-c", program.format(line)],
                capture_output=True,
                text=True,
                check=True,
                cwd=ROOT,
            )
            samples[name].append(float(out.stdout) * 1e6)
    timings = {name: Timing.of(got) for name, got in samples.items()}
    added = timings["import tileops"].median_us - timings["nothing"].median_us
    yield Result(
        "import tileops beyond import torch", "nothing", "import tileops", timings, added * 1e-6, "seconds added",
        target=0.15, higher_is_better=False,
    )  # fmt: skip


_FRESH_SECONDS = 120

TILEOPS_COMPILE = """
import time, torch
from benchmarks.programs import bench_matmul
a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
torch.cuda.synchronize(); t = time.perf_counter()
bench_matmul(a, b); torch.cuda.synchronize(); print(time.perf_counter() - t)
"""
TILELANG_COMPILE = """
import time, torch, tilelang
import tilelang.language as T
@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, bM, bN, bK):
    @T.prim_func
    def main(A: T.Tensor((M, K), T.float16), B: T.Tensor((K, N), T.float16), C: T.Tensor((M, N), T.float16)):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=256) as (bx, by):
            A_s = T.alloc_shared((bM, bK), T.float16)
            B_s = T.alloc_shared((bK, bN), T.float16)
            acc = T.alloc_fragment((bM, bN), T.float32)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, k * bK], A_s)
                T.copy(B[k * bK, bx * bN], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * bM, bx * bN])
    return main
a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
torch.cuda.synchronize(); t = time.perf_counter()
matmul(4096, 4096, 4096, 128, 256, 64)(a, b); torch.cuda.synchronize(); print(time.perf_counter() - t)
"""


class NoPeerError(Exception):
    """A peer that cannot be run here; the text says why."""


def fresh_seconds(code: str, peers: str | None = None) -> float:
    """Seconds that ``code`` prints, run from a file in a new process with empty caches.

    NoPeerError, with the last line of what it said, where it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "first_call.py"
        path.write_text(code, encoding="utf-8")
        env = dict(
            os.environ,
            TILEOPS_CACHE_DIR=f"{folder}/t",
            TILELANG_CACHE_DIR=f"{folder}/l",
            HOME=folder,
        )
        env["PYTHONPATH"] = os.pathsep.join(p for p in (str(ROOT), peers) if p)
        try:
            out = subprocess.run(
                [sys.executable, path], capture_output=True, text=True, env=env, check=False,
                timeout=_FRESH_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoPeerError(f"no end after {_FRESH_SECONDS} s") from None
        if out.returncode:
            raise NoPeerError(reason_of(out.stderr, out.returncode))
        return float(out.stdout.split()[-1])


def reason_of(stderr: str, status: int) -> str:
    """Why a process failed, in one line: the last one that it wrote."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {status}"


def no_peer(name: str, reason: object) -> None:
    """Say on stderr that a baseline is missing, and why."""
    sys.stderr.write(f"no peer: {name}: {reason}\n")


def compile_results(peers: str | None) -> Iterator[Result]:
    """The first call of the matmul in a new process with an empty cache, against TileLang's.

    Without TileLang, or where it fails, the figure stands alone and stderr says why.
    """
    samples: dict[str, list[float]] = {"tileops": [], "tilelang": []}
    for _ in range(3):
        samples["tileops"].append(fresh_seconds(TILEOPS_COMPILE) * 1e6)
        if peers:
            try:
                samples["tilelang"].append(fresh_seconds(TILELANG_COMPILE, peers) * 1e6)
            except NoPeerError as error:
                no_peer("tilelang", error)
                peers = None
    timings = {name: Timing.of(got) for name, got in samples.items() if got}
    title = "first call of the matmul, empty cache"
    if "tilelang" in timings:
        yield cost_result(title, timings, "tileops", "tilelang", target=0.5)
    else:
        yield cost_result(f"{title} (no peer)", timings, "tileops", "tileops")


def results(peers: str | None) -> Iterator[Result]:
    yield from host_calls.call_results()
    yield from host_calls.wide_results()
    yield from host_calls.descriptor_results()
    yield from host_calls.gradient_results()
    yield from host_calls.caller_results()
    yield from host_peers.results(peers)
    yield from import_results()
    if torch.cuda.is_available():
        yield from compile_results(peers)


def counters() -> dict[str, object]:
    """The counters of this process, for the result file."""
    return dict(tileops.stats())

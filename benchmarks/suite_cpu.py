"""The CPU workloads: matmul, RMSNorm and add against torch with two threads, and compile time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F

import tileops
from benchmarks.harness import Result, Timing, cost_result, speed_result, time_wall
from benchmarks.programs import bench_add, bench_matmul
from examples import rms_norm


def results() -> Iterator[Result]:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    yield from matmul_results()
    yield from row_results()
    yield compile_result()


def matmul_results() -> Iterator[Result]:
    a, b = (torch.randn(1024, 1024) for _ in range(2))
    options = {
        "dtype": "float32",
        "target_dtype": "float32",
        "block_M": 128,
        "block_N": 128,
        "block_K": 64,
        "panel": 0,
    }
    c = bench_matmul(a, b, **options)
    # Both sum 1024 products in float32: K * u relative to |a||b|, norm-wise far below.
    if not (c - a @ b).norm() / c.norm() < 1024 * 2.0**-24:
        raise AssertionError("bench_matmul is wrong")
    timings = time_wall({"tileops": lambda: bench_matmul(a, b, **options), "torch": lambda: a @ b})
    yield speed_result("matmul f32 1024^3, two threads", timings, "tileops", "torch", target=0.3)


def row_results() -> Iterator[Result]:
    n = 64 * 2**20 // 4
    x, y = (torch.randn(n) for _ in range(2))
    if not torch.equal(bench_add(x, y), x + y):
        raise AssertionError("bench_add is wrong")
    timings = time_wall({"tileops": lambda: bench_add(x, y, block_N=16384), "torch": lambda: x + y})
    yield speed_result("add f32 64 MiB, two threads", timings, "tileops", "torch", target=0.8)
    x = torch.randn(n // 4096, 4096)
    w = torch.randn(4096)
    run = lambda: rms_norm.rms_norm(x, w, 1e-5, dtype="float32")  # noqa: E731
    expected = F.rms_norm(x, (4096,), w, 1e-5)
    if not torch.allclose(run(), expected, rtol=4096 * 2.0**-24, atol=1e-6):
        raise AssertionError("rms_norm is wrong")
    timings = time_wall({"tileops": run, "torch": lambda: F.rms_norm(x, (4096,), w, 1e-5)})
    yield speed_result("rms_norm f32 64 MiB, two threads", timings, "tileops", "torch", target=0.8)


def compile_result() -> Result:
    """The first call on the CPU with an empty cache: trace, generate, g++, load, run."""
    a, b = (torch.randn(128, 128, dtype=torch.float16) for _ in range(2))
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        tileops.option.cache_dir(folder)
        try:
            for n in range(5):
                begin = time.perf_counter()
                bench_matmul(a, b, block_M=32, block_N=32, block_K=16 * (n + 1))
                samples.append((time.perf_counter() - begin) * 1e6)
        finally:
            tileops.option.cache_dir(None)
    timing = Timing.of(samples)
    second = Timing(1e6, 1e6, 1e6, 1)
    return cost_result(
        "first call on the CPU against one second", {"tileops": timing, "one second": second}, "tileops",
        "one second", target=1.0,
    )  # fmt: skip

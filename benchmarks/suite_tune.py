"""Owns the tuning workload: the matmul at 4096^3 over 24 configs, against TileLang's tuner.

Also how good what is found is, ten times over, and what a second process pays.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import ROOT, Result, Timing, cost_result, time_gpu
from benchmarks.programs import bench_matmul
from benchmarks.suite_gpu import close, label

SIZE = 4096
REPETITIONS = 10
CONFIGS: tuple[dict[str, int], ...] = tuple(
    {
        "block_M": m, "block_N": n, "block_K": k, "num_stages": s,
        "threads": 256 if m * n > 128 * 128 else 128,
    }
    for m in (64, 128) for n in (64, 128, 256) for k in (32, 64) for s in (3, 4)
)  # fmt: skip

# Both write one line of JSON: seconds of the tuning call, and the config that it chose.
_INPUTS = f"""
a, b = (torch.randn({SIZE}, {SIZE}, device="cuda", dtype=torch.float16) for _ in range(2))
torch.cuda.synchronize(); start = time.perf_counter()
"""
TILEOPS_TUNE = f"""
import json, time, torch, tileops
from benchmarks.programs import bench_matmul
from benchmarks.suite_tune import CONFIGS
tuned = tileops.autotune(configs=list(CONFIGS))(bench_matmul)
{_INPUTS}
tuned(a, b); torch.cuda.synchronize(); seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "config": tuned.compile(a, b).config}}))
"""
TILELANG_TUNE = f"""
import json, time, torch, tilelang
import tilelang.language as T
CONFIGS = json.loads({json.dumps(json.dumps(CONFIGS))})
@tilelang.autotune(configs=CONFIGS)
@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M=128, block_N=128, block_K=32, num_stages=3, threads=128):
    @T.prim_func
    def main(A: T.Tensor((M, K), T.float16), B: T.Tensor((K, N), T.float16), C: T.Tensor((M, N), T.float16)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), T.float16)
            B_s = T.alloc_shared((block_K, block_N), T.float16)
            acc = T.alloc_fragment((block_M, block_N), T.float32)
            T.use_swizzle(panel_size=8)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(B[k * block_K, bx * block_N], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * block_M, bx * block_N])
    return main
{_INPUTS}
kernel = matmul({SIZE}, {SIZE}, {SIZE})
kernel(a, b); torch.cuda.synchronize(); seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "config": kernel.config}}))
"""


def in_fresh_process(code: str, folder: Path, peers: str | None = None) -> dict[str, Any]:
    """What ``code`` prints, run from a file in a new process whose caches are under ``folder``."""
    path = folder / "tune.py"
    path.write_text(code, encoding="utf-8")
    env = dict(
        os.environ,
        TILEOPS_CACHE_DIR=f"{folder}/t",
        TILELANG_CACHE_DIR=f"{folder}/l",
        HOME=str(folder),
        PYTHONPATH=os.pathsep.join(p for p in (str(ROOT), peers) if p),
    )
    # TileLang writes a log into the working directory.
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env=env, cwd=folder, check=False
    )
    if done.returncode:
        raise RuntimeError(f"tuning failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def tuning_time_results(folder: Path, peers: str | None) -> Iterator[Result]:
    """One tuning with empty caches on each side, one after the other in turn."""
    samples: dict[str, list[float]] = {"tileops": [], "tilelang": []}
    chosen: dict[str, Any] = {}
    for number in range(2 if peers else 1):
        for name, code, path in (
            ("tileops", TILEOPS_TUNE, None),
            ("tilelang", TILELANG_TUNE, peers),
        ):
            if name == "tilelang" and not peers:
                continue
            place = folder / f"{name}{number}"
            place.mkdir()
            found = in_fresh_process(code, place, path)
            samples[name].append(found["seconds"] * 1e6)
            chosen[name] = found["config"]
    timings = {name: Timing.of(got) for name, got in samples.items() if got}
    baseline = "tilelang" if peers else "tileops"
    yield cost_result(
        f"tuning the matmul {SIZE}^3 over {len(CONFIGS)} configs" + ("" if peers else " (no peer)"),
        timings, "tileops", baseline, target=0.4 if peers else None,
        extra={"chosen": chosen, "samples_us": samples},
    )  # fmt: skip


def careful_medians() -> dict[str, float]:
    """Microseconds of every config, checked, from many interleaved rounds."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    check = close(a @ b, 2.0**-10)
    runs = {}
    for config in CONFIGS:
        check(bench_matmul(a, b, **config))
        runs[label(config)] = lambda config=config: bench_matmul(a, b, **config)
    return {name: t.median_us for name, t in time_gpu(runs, rounds=100, warmup=20).items()}


def quality_results(folder: Path) -> Iterator[Result]:
    """Ten tunings from a cache of compiled configs, each judged by the careful measurement."""
    ratios: list[float] = []
    seconds: list[float] = []
    winners: list[str] = []
    place = folder / "tileops0"
    medians = careful_medians()
    best = min(medians.values())
    for _ in range(REPETITIONS):
        for tuning in list((place / "t").rglob("tuning")):
            shutil.rmtree(tuning)
        found = in_fresh_process(TILEOPS_TUNE, place)
        winners.append(label({name: found["config"][name] for name in CONFIGS[0]}))
        ratios.append(medians[winners[-1]] / best)
        seconds.append(found["seconds"])
    timings = {
        "found": Timing.of([ratio * best for ratio in ratios]),
        "best": Timing(best, best, best, 1),
    }
    yield Result(
        f"slowest of {REPETITIONS} tuned matmuls {SIZE}^3", "best", "found", timings, max(ratios),
        "time of the slowest found / best of all configs", target=1.02, higher_is_better=False,
        extra={"winners": winners, "medians_us": medians, "seconds": seconds},
    )  # fmt: skip
    warm = [in_fresh_process(TILEOPS_TUNE, place)["seconds"] for _ in range(5)]
    yield Result(
        "first call of a tuned matmul in a second process", "limit", "tileops",
        {"tileops": Timing.of([s * 1e6 for s in warm]), "limit": Timing(5e4, 5e4, 5e4, 1)},
        Timing.of(warm).median_us, "seconds", target=0.05, higher_is_better=False,
    )  # fmt: skip


def results(peers: str | None) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        yield from tuning_time_results(Path(name), peers)
        yield from quality_results(Path(name))

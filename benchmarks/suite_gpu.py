"""The GPU workloads: matmul against cuBLAS, RMSNorm against a copy, attention against cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.harness import Result, speed_result, time_gpu
from benchmarks.programs import bench_linear, bench_matmul
from examples import flash_attention, rms_norm

# At most eight; the first fits cuBLAS's own choice on Hopper, the others trade occupancy for tile
# size.
MATMUL_CONFIGS: tuple[dict[str, int], ...] = (
    {"block_M": 128, "block_N": 256, "block_K": 64, "threads": 256, "num_stages": 3, "panel": 8},
    {"block_M": 128, "block_N": 256, "block_K": 64, "threads": 256, "num_stages": 4, "panel": 8},
    {"block_M": 256, "block_N": 128, "block_K": 64, "threads": 256, "num_stages": 3, "panel": 8},
    {"block_M": 128, "block_N": 128, "block_K": 64, "threads": 128, "num_stages": 3, "panel": 8},
    {"block_M": 128, "block_N": 128, "block_K": 64, "threads": 256, "num_stages": 4, "panel": 8},
    {"block_M": 128, "block_N": 128, "block_K": 128, "threads": 256, "num_stages": 3, "panel": 8},
    {"block_M": 128, "block_N": 256, "block_K": 64, "threads": 256, "num_stages": 3, "panel": 4},
    {"block_M": 64, "block_N": 256, "block_K": 64, "threads": 128, "num_stages": 4, "panel": 8},
)
# Linear layers of real models: tokens, outputs, inputs.
LINEAR_SHAPES: dict[str, tuple[int, int, int]] = {
    "Llama 3 8B, query, key and value": (4096, 6144, 4096),
    "Llama 3 8B, attention output": (4096, 4096, 4096),
    "Llama 3 8B, gate and up": (4096, 28672, 4096),
    "Llama 3 8B, down": (4096, 4096, 14336),
    "Llama 3 8B, vocabulary": (2048, 128256, 4096),
    "Llama 3 70B, query, key and value": (8192, 10240, 8192),
    "Llama 3 70B, gate and up, one of eight GPUs": (8192, 7168, 8192),
    "Llama 3 70B, down, one of eight GPUs": (8192, 8192, 3584),
    "Qwen 2.5 7B, gate and up": (4096, 37888, 3584),
    "DeepSeek-V3, latents of query, key and value": (4096, 2112, 7168),
    "DeepSeek-V3, query of all heads": (4096, 24576, 1536),
    "DeepSeek-V3, attention output": (4096, 7168, 16384),
}
RMS_CONFIGS = tuple(
    {"block_M": m, "threads": t}
    for m, t in ((1, 128), (1, 256), (2, 128), (4, 128), (4, 256), (1, 512))
)
ATTENTION_CONFIGS = tuple(
    {"block_M": m, "block_N": n, "num_stages": s, "threads": t}
    for m, n, s, t in (
        (128, 64, 2, 128),
        (128, 128, 2, 256),
        (128, 64, 3, 256),
        (64, 64, 3, 128),
        (128, 64, 3, 128),
    )
)


def label(config: dict[str, int]) -> str:
    return " ".join(f"{k.removeprefix('block_')}{v}" for k, v in config.items())


def best(
    run: Callable[..., Any],
    configs: tuple[dict[str, int], ...],
    check: Callable[[Any], None],
    rounds: int,
) -> tuple[dict[str, int], dict[str, float], dict[str, str]]:
    """The fastest config with every median, after its result was checked.

    Failures are kept with reasons.
    """
    runs: dict[str, Callable[[], Any]] = {}
    failures: dict[str, str] = {}
    for config in configs:
        try:
            check(run(**config))
        except Exception as error:  # a config that cannot run is a result, not the end of the suite
            failures[label(config)] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        runs[label(config)] = lambda config=config: run(**config)
    if not runs:
        raise RuntimeError(f"no config ran: {failures}")
    medians = {name: t.median_us for name, t in time_gpu(runs, rounds=rounds).items()}
    winner = min(medians, key=lambda name: medians[name])
    return next(c for c in configs if label(c) == winner), medians, failures


def close(expected: torch.Tensor, tolerance: float) -> Callable[[torch.Tensor], None]:
    """A check of the norm-wise relative error against a float32 reference."""
    scale = expected.float().norm()

    def check(got: torch.Tensor) -> None:
        error = ((got.float() - expected.float()).norm() / scale).item()
        if not error < tolerance:
            raise AssertionError(f"relative error {error:.2e} is not below {tolerance:.0e}")

    return check


def matmul_results() -> Iterator[Result]:
    for size, target in ((2048, 0.93), (4096, 0.90), (8192, 0.93)):
        a = torch.randn(size, size, device="cuda", dtype=torch.float16)
        b = torch.randn(size, size, device="cuda", dtype=torch.float16)
        # Both sides round float32 sums to float16 once: 2^-11 relative each.
        check = close(a @ b, 2.0**-10)
        config, medians, failures = best(
            lambda a=a, b=b, **kw: bench_matmul(a, b, **kw), MATMUL_CONFIGS, check, rounds=10
        )
        timings = time_gpu(
            {
                "tileops": lambda a=a, b=b, config=config: bench_matmul(a, b, **config),
                "torch": lambda a=a, b=b: a @ b,
            }
        )
        tflops = {k: 2 * size**3 / t.median_us * 1e-6 for k, t in timings.items()}
        yield speed_result(
            f"matmul fp16 {size}^3", timings, "tileops", "torch", target=target,
            extra={"config": config, "tflops": tflops, "configs_us": medians, "failed": failures},
        )  # fmt: skip


def linear_results() -> Iterator[Result]:
    for name, (rows, outputs, inputs) in LINEAR_SHAPES.items():
        x = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16)
        # Both sides round float32 sums to bfloat16 once: 2^-8 relative each.
        check = close(F.linear(x, w), 2.0**-7)
        config, medians, failures = best(
            lambda x=x, w=w, **kw: bench_linear(x, w, **kw), MATMUL_CONFIGS, check, rounds=10
        )
        timings = time_gpu(
            {
                "tileops": lambda x=x, w=w, config=config: bench_linear(x, w, **config),
                "torch": lambda x=x, w=w: F.linear(x, w),
            }
        )
        flops = 2 * rows * outputs * inputs
        tflops = {k: flops / t.median_us * 1e-6 for k, t in timings.items()}
        yield speed_result(
            f"linear bf16 {rows}x{outputs}x{inputs} ({name})", timings, "tileops", "torch",
            target=0.97,
            extra={"config": config, "tflops": tflops, "configs_us": medians, "failed": failures},
        )  # fmt: skip


def rms_norm_results() -> Iterator[Result]:
    for rows, columns in ((16384, 8192), (131072, 1024), (4096, 16384)):
        x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(columns, device="cuda", dtype=torch.bfloat16)
        y = torch.empty_like(x)
        check = close(F.rms_norm(x.float(), (columns,), w.float(), 1e-5), 2.0**-8)
        run = lambda x=x, w=w, **kw: rms_norm.rms_norm(x, w, 1e-5, **kw)  # noqa: E731
        config, medians, failures = best(run, RMS_CONFIGS, check, rounds=10)
        timings = time_gpu(
            {
                "tileops": lambda run=run, config=config: run(**config),
                "copy": lambda x=x, y=y: y.copy_(x),
                "torch": lambda x=x, w=w, columns=columns: F.rms_norm(x, (columns,), w, 1e-5),
            },
            rounds=100,
        )
        rate = {k: 4 * rows * columns / t.median_us * 1e-6 for k, t in timings.items()}
        yield speed_result(
            f"rms_norm bf16 {rows}x{columns}", timings, "tileops", "copy", target=0.92,
            extra={"config": config, "tb_per_s": rate, "configs_us": medians, "failed": failures},
        )  # fmt: skip


def attention_results() -> Iterator[Result]:
    b, h, s, d = 4, 32, 4096, 128
    q, k, v = (torch.randn(b, h, s, d, device="cuda", dtype=torch.float16) for _ in range(3))
    for causal, target in ((False, 0.70), (True, None)):

        def cudnn(causal: bool = causal) -> torch.Tensor:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        # The weights are rounded to float16 on both sides: 2^-11 each, plus the outputs' rounding.
        check = close(cudnn(), 2.0**-9)
        run = lambda causal=causal, **kw: flash_attention.attention(q, k, v, is_causal=causal, **kw)  # noqa: E731
        config, medians, failures = best(run, ATTENTION_CONFIGS, check, rounds=5)
        timings = time_gpu(
            {"tileops": lambda run=run, config=config: run(**config), "cudnn": cudnn}, rounds=15
        )
        flops = 4 * b * h * s * s * d * (0.5 if causal else 1.0)
        yield speed_result(
            f"attention fp16 {(b, h, s, d)}{' causal' if causal else ''}", timings, "tileops", "cudnn", target=target,
            extra={
                "config": config, "configs_us": medians, "failed": failures,
                "tflops": {n: flops / t.median_us * 1e-6 for n, t in timings.items()},
            },
        )  # fmt: skip


def results() -> Iterator[Result]:
    torch.manual_seed(0)
    yield from matmul_results()
    yield from linear_results()
    yield from rms_norm_results()
    yield from attention_results()

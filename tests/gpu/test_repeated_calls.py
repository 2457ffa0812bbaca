"""Repeated calls on GPUs: streams, devices and alignment are asked for at each call."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tileops import runtime
from tileops.errors import CompileMissError

pytestmark = pytest.mark.gpu

REPEATS = 3


@tileops.jit(name="gpu_repeated_axpy")
def axpy(X, Y, alpha: T.float32, block_N: int = 256):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
        for i in T.Parallel(block_N):
            Z[bx * block_N + i] = alpha * X[bx * block_N + i] + Y[bx * block_N + i]
    return Z


def check(x: torch.Tensor, y: torch.Tensor, alpha: float) -> None:
    # One rounding of the product, or none where it is fused with the sum.
    torch.testing.assert_close(axpy(x, y, alpha), alpha * x + y, rtol=2**-22, atol=2**-22)


def test_a_repetition_runs_on_the_current_stream() -> None:
    x, y = (torch.randn(1000, device="cuda") for _ in range(2))
    for _ in range(REPEATS):
        check(x, y, 0.5)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        z = axpy(x, y, 0.5)
        done = torch.cuda.Event()
        done.record()
    # The result stands behind the sleep: it cannot have been on the other stream.
    torch.cuda.current_stream().synchronize()
    assert not done.query()
    side.synchronize()
    torch.testing.assert_close(z, 0.5 * x + y, rtol=2**-22, atol=2**-22)


def test_offsets_and_scalars() -> None:
    memory = torch.randn(5000, device="cuda")
    for _ in range(REPEATS):
        for offset in (0, 1, 2, 3, 4):
            for alpha in (0.5, -2.0):
                check(memory[offset : offset + 1000], memory[offset + 1000 : offset + 2000], alpha)


def test_capture_takes_repetitions_and_refuses_a_new_kernel() -> None:
    x, y = (torch.randn(1000, device="cuda") for _ in range(2))
    for _ in range(REPEATS):
        check(x, y, 0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = axpy(x, y, 0.5)
    x.copy_(torch.randn(1000, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(z, 0.5 * x + y, rtol=2**-22, atol=2**-22)
    axpy.unload()
    with pytest.raises(CompileMissError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        axpy(x, y, 0.5)
    torch.cuda.synchronize()
    check(x, y, 0.5)


@pytest.mark.two_gpus
def test_devices_are_told_apart() -> None:
    for _ in range(REPEATS):
        for index in (0, 1):
            x, y = (torch.randn(1000, device=f"cuda:{index}") for _ in range(2))
            check(x, y, 0.5)
            assert axpy(x, y, 0.5).device.index == index


def test_the_clock_of_stages_counts_the_driver() -> None:
    x, y = (torch.randn(1000, device="cuda") for _ in range(2))
    for _ in range(REPEATS):
        check(x, y, 0.5)
    try:
        runtime.set_stage_clock(True)
        for _ in range(100):
            axpy(x, y, 0.5)
        totals = runtime.stage_totals()
    finally:
        runtime.set_stage_clock(False)
    torch.cuda.synchronize()
    assert set(totals) == {"read", "look up", "allocate", "launch", "kernel", "free"}
    assert 0 < totals["kernel"] < totals["launch"]

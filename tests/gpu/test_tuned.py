"""Tuned programs on a GPU: in-place ops, and calls that may not measure."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_atomic, fresh_const, fresh_in_place

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("tuning_cache")]
BLOCKS = [{"block": block} for block in (64, 128, 256, 512)]


def test_an_in_place_op_is_right_after_its_tuning_call() -> None:
    program = tileops.autotune(configs=BLOCKS, warmup=1, rep=5)(fresh_in_place())
    x = torch.zeros(1000, device="cuda")
    for times in (1, 2):
        program(x)
        assert torch.equal(x, torch.full_like(x, float(times)))
    assert program.compile(x).latency is not None


def test_an_atomic_op_is_right_after_its_tuning_call() -> None:
    program = tileops.autotune(configs=BLOCKS, warmup=1, rep=5)(fresh_atomic())
    a, total = torch.arange(1000.0, device="cuda"), torch.zeros(10, device="cuda")
    for times in (1, 2):
        program(a, total)
        # Sums of integers below 2^24: exact in any order.
        assert torch.equal(total, a.view(100, 10).sum(0) * times)


def test_a_miss_under_graph_capture_is_an_error_and_the_device_works_on() -> None:
    timer = FakeTimer({16: 3.0, 128: 1.0})
    program = tileops.autotune(configs=[{"block": 128}], timer=timer)(fresh_const())
    a, warm = torch.randn(1000, device="cuda"), torch.randn(2000, device="cuda")
    program(warm)
    before = len(timer.calls)
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(tileops.CompileMissError, match="tuned_double_const"),
        torch.cuda.graph(graph),
    ):
        program(a)
    assert len(timer.calls) == before
    torch.cuda.synchronize()
    assert torch.equal(program(a), a * 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        b = program(a)
    a.fill_(3.0)
    graph.replay()
    assert torch.equal(b, torch.full_like(b, 6.0))

"""Calls from C++ on the GPU: no Python object, no interpreter's lock, no growth over a million of them."""

from __future__ import annotations

import pytest
import torch

from benchmarks.caller import Caller, build
from benchmarks.programs import bench_add
from tests.runtime.test_cost import ALLOWED_KIB, resident_kib

OP = "tileops::bench_add"


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    x = torch.ones(256, device="cuda")
    assert torch.equal(bench_add(x, x), x + x)
    return Caller(build(tmp_path_factory.mktemp("caller")))


def test_no_python_object_and_no_lock(caller: Caller) -> None:
    assert caller.held.caller_control_allocations(100) >= 100
    assert caller.python_allocations(OP, "cuda", nones=1, count=2_000) == 0
    assert caller.held.caller_control_gil() == 0
    assert caller.needs_no_gil(OP, "cuda", nones=1, count=500)
    torch.cuda.synchronize()


def test_a_million_calls_leave_nothing(caller: Caller) -> None:
    caller.ns(OP, "cuda", nones=1, count=10_000)
    torch.cuda.synchronize()
    before, reserved = resident_kib(), torch.cuda.memory_reserved()
    caller.ns(OP, "cuda", nones=1, count=1_000_000)
    torch.cuda.synchronize()
    assert resident_kib() - before < ALLOWED_KIB
    assert torch.cuda.memory_reserved() == reserved

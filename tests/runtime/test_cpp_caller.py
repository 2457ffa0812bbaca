"""Calls from C++: no Python object, no interpreter's lock, no growth over a million of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.caller import Caller, build
from tests.runtime import cpu_ops
from tests.runtime.test_cost import ALLOWED_KIB, resident_kib

Build = Callable[..., Path]


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    return Caller(build(tmp_path_factory.mktemp("caller")))


def hot_op(build_kernel: Build) -> str:
    op = cpu_ops.add_op(build_kernel)
    op.call(torch.ones(256), torch.ones(256))
    return f"tileops::{op.name}"


def test_no_python_object_is_made_between_entry_and_exit(
    caller: Caller, build_kernel: Build
) -> None:
    assert caller.held.caller_control_allocations(100) >= 100
    assert caller.python_allocations(hot_op(build_kernel), "cpu", count=10_000) == 0


def test_a_hit_never_takes_the_interpreters_lock(caller: Caller, build_kernel: Build) -> None:
    op = hot_op(build_kernel)
    assert caller.held.caller_control_gil() == 0  # a thread that wants the lock waits
    assert caller.needs_no_gil(op, "cpu", count=1000)


def test_a_million_calls_leave_nothing(caller: Caller, build_kernel: Build) -> None:
    op = hot_op(build_kernel)
    caller.ns(op, "cpu", count=10_000)
    before = resident_kib()
    ns = caller.ns(op, "cpu", count=1_000_000)
    assert resident_kib() - before < ALLOWED_KIB
    print(f"\na call from C++, name looked up each time: {ns:.0f} ns")

"""The suite of the operators: times, shares and errors of each candidate, and the table of graphs."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import compile_table, suite_ops
from benchmarks.harness import time_wall
from tileops.ops import info
from tileops.ops.info import BenchShape


@pytest.mark.parametrize(
    "name", ["add_rms_norm", "attention", "grouped_mm", "linear", "rope", "varlen_attention"]
)
def test_a_row_of_the_suite(name: str) -> None:
    found = list(
        suite_ops.measure(
            info.of(name), BenchShape(4, 6, "none"), "cpu",
            lambda calls: time_wall(calls, rounds=2, warmup=1),
            {name: lambda *given, **options: 1 / 0}, inductor=False,
        )
    )  # fmt: skip
    assert [r.workload.split()[-1] for r in found] == ["forward", "backward"]
    ran = {"tileops", "eager"} | ({"torch"} if name in suite_ops.TORCH else set())
    for r in found:
        assert r.baseline in ran - {"tileops"}
        ran -= set(r.extra["failed"])  # torch takes rows of multiples of 16 bytes
        assert set(r.extra["share"]) == set(r.extra["error"]) == ran
        # Operands are bfloat16: at most twice what torch loses of the same ones, and a unit.
        assert r.extra["error"]["tileops"] <= 2 * r.extra["error"]["eager"] + 2**-7
        assert r.extra["failed"]["liger"].startswith("ZeroDivisionError")
    assert "of a copy" in suite_ops.table(found)


def test_an_operator_of_inference_has_no_backward_pass() -> None:
    served = dataclasses.replace(info.of("silu_mul"), backward_reads=None)
    found = suite_ops.measure(
        served, BenchShape(4, 6, "none"), "cpu",
        lambda calls: time_wall(calls, rounds=2, warmup=1), {}, inductor=False,
    )  # fmt: skip
    assert [r.workload.split()[-1] for r in found] == ["forward"]


def test_the_widest_row_that_is_decomposed() -> None:
    assert compile_table.widest({256: 0.9, 1024: 1.0, 4096: 1.2, 8192: 0.8}) == 1024
    assert compile_table.widest({256: 1.5}) == 0
    assert compile_table.widest({256: 0.9, 1024: 0.9}) is None

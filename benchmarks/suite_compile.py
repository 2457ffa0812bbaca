"""The cold compile: every whole program of the tests for sm_90, from its source to a cubin."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import Result, Timing
from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.target import parse_target

_TARGET = parse_target("cuda:sm_90")
LIMIT_S = 1.5  # of the median


def results() -> Iterator[Result]:
    """Median and ninetieth percentile over the programs, in wall time and in processor time.

    Nothing is cached: each program is traced, generated and compiled once. Triton's import and
    its first compile, which a process pays once, are paid before.
    """
    wall, processor = _samples()
    for kind, seconds in (("wall", wall), ("processor", processor)):
        times = list(seconds.values())
        timing = {"tileops": Timing.of([s * 1e6 for s in times])}
        title = f"cold compile of {len(times)} programs for sm_90, {kind}"
        for name, value, limit in (
            ("median", statistics.median(times), LIMIT_S),
            ("p90", statistics.quantiles(times, n=10)[-1], None),
        ):
            yield Result(
                f"{title}: {name}", "tileops", "tileops", timing, value, "time in s",
                target=limit, higher_is_better=False, extra={"seconds": seconds},
            )  # fmt: skip


def _samples() -> tuple[dict[str, float], dict[str, float]]:
    from tests.programs.families import runnable

    cases = runnable("sm_90")
    _compile(cases[0])
    wall, processor = {}, {}
    for case in cases:
        inputs = case.inputs()
        begin, spent = time.perf_counter(), _processor_s()
        _compile(case, inputs)
        wall[case.id] = time.perf_counter() - begin
        processor[case.id] = _processor_s() - spent
    return wall, processor


def _compile(case: Any, inputs: tuple[Any, ...] | None = None) -> None:
    given = case.inputs() if inputs is None else inputs
    program = case.impl.get_tir(*given, **case.options)
    code = codegen.generate(program, _TARGET, Specialization(fast=True))
    compile_kernel(code, _TARGET, dict(program.options))


def _processor_s() -> float:
    """Seconds of all processors for this process and the children that ended, such as ptxas."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system

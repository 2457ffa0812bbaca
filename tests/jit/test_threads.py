"""Threads: first calls at once compile once; par_compile keeps order and reports failures."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import tileops
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ProgramError


def together(count: int, work: Callable[[], object]) -> list[object]:
    barrier = threading.Barrier(count)
    results: list[object] = []

    def run() -> None:
        barrier.wait()
        results.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def delta(before: dict[str, object], name: str) -> int:
    return tileops.stats()[name] - before[name]  # type: ignore[operator]


def test_sixteen_first_calls_of_an_eager_program_compile_once() -> None:
    x = vector(1234)
    before = tileops.stats()
    results = together(16, lambda: samples.scaled(x, 5.0, block_N=32))
    assert len(results) == 16
    assert all(torch.equal(r, x * 5) for r in results)
    assert delta(before, "compiles") + delta(before, "disk_hits") == 1
    assert delta(before, "loads") == 1
    assert delta(before, "launches") == 16


def test_sixteen_first_calls_of_a_lazy_function_build_one_kernel() -> None:
    before = tileops.stats()
    kernels = together(16, lambda: samples.lazy_add(4321))
    assert len(kernels) == 16
    assert len(set(map(id, kernels))) == 1
    assert delta(before, "compiles") + delta(before, "disk_hits") == 1


def test_sixteen_first_calls_of_a_kernel_register_one_op() -> None:
    kernel = samples.lazy_add(4322)
    x, y = vector(4322), vector(4322)
    results = together(16, lambda: kernel(x, y))
    assert len(results) == 16
    assert all(torch.equal(r, x + y) for r in results)
    assert not hasattr(torch.ops.tileops, f"{kernel.name}_1")


def test_sixteen_registrations_at_once() -> None:
    x = vector(70)
    bound = samples.typed.bind(act=samples.negate)
    results = together(16, lambda: bound(x, "float32", block_N=16))
    assert len(results) == 16
    assert all(torch.equal(r, -x) for r in results)


def test_par_compile_keeps_the_order() -> None:
    sizes = [30, 31, 32, 33]
    kernels = tileops.par_compile(
        [samples.lazy_add.func(n) for n in sizes], out_idx=[2], num_workers=2
    )
    for n, kernel in zip(sizes, kernels, strict=True):
        assert kernel is not None
        x, y = vector(n), vector(n)
        assert torch.equal(kernel(x, y), x + y)


def test_par_compile_of_configs() -> None:
    kernels = samples.lazy_add.par_compile([{"N": 35}, (36, 64)], num_workers=2)
    assert kernels == [samples.lazy_add(35), samples.lazy_add(36, 64)]
    eager = samples.sum_difference.par_compile([{"M": 2, "N": 8}, {"M": 3, "N": 8}])
    assert [k.params[0].shape for k in eager if k is not None] == [(2, 8), (3, 8)]


def test_par_compile_raises_or_gives_none(caplog: pytest.LogCaptureFixture) -> None:
    configs = [{"N": 37}, {"N": 38, "block_N": -4}, {"N": 39}]
    with pytest.raises(ProgramError):
        samples.lazy_add.par_compile(configs)
    with caplog.at_level("WARNING", logger="tileops"):
        kernels = samples.lazy_add.par_compile(configs, ignore_error=True)
    assert [k is None for k in kernels] == [False, True, False]
    assert "compile 1 failed" in caplog.text
    assert samples.lazy_add.par_compile([]) == []

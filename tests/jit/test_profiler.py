"""Timing and input supply of the profiler."""

from __future__ import annotations

import time

import pytest
import torch

from tileops.errors import ArgumentError
from tileops.jit import KernelParam
from tileops.profiler import TensorSupplyType, assert_close, do_bench, make_tensor
from tileops.profiler.bench import summarize


def param(dtype: torch.dtype, *shape: int | str, is_scalar: bool = False) -> KernelParam:
    return KernelParam("A", dtype, shape, is_scalar=is_scalar)


def test_do_bench_measures_on_the_cpu() -> None:
    found = do_bench(lambda: time.sleep(0.002), warmup=1, rep=10, device="cpu")
    assert 2.0 <= found < 50.0


def test_counts_replace_milliseconds() -> None:
    calls = []
    times = do_bench(
        lambda: calls.append(1), n_warmup=3, n_repeat=7, return_mode="all", device="cpu"
    )
    assert len(times) == 7
    assert len(calls) == 1 + 5 + 3 + 7


def test_summaries() -> None:
    times = [1.0, 2.0, 3.0, 10.0]
    assert summarize(times, None, "mean") == 4.0
    assert summarize(times, None, "median") == 2.0
    assert summarize(times, None, "min") == 1.0
    assert summarize(times, None, "max") == 10.0
    assert summarize(times, None, "all") == times
    assert summarize(times, [0.5], "mean") == 2.5
    assert summarize(times, [0.0, 1.0], "mean") == [1.0, 10.0]


@pytest.mark.parametrize(
    "arguments", [{"return_mode": "mode"}, {"backend": "cupti"}, {"device": "meta"}]
)
def test_bad_arguments(arguments: dict[str, str]) -> None:
    with pytest.raises(ArgumentError, match="expected"):
        do_bench(lambda: None, **arguments)


@pytest.mark.parametrize("supply", TensorSupplyType)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int32,
        torch.uint8,
        torch.bool,
        torch.float8_e4m3fn,
    ],
)
def test_supply(supply: TensorSupplyType, dtype: torch.dtype) -> None:
    made = make_tensor(param(dtype, 40, 30), supply, "cpu")
    assert made.dtype == dtype
    assert made.shape == (40, 30)
    values = made.double()
    if supply is TensorSupplyType.Zero:
        assert not values.any()
    if supply is TensorSupplyType.One:
        assert bool((values == 1).all())
    if supply is TensorSupplyType.Auto:
        assert values.abs().max() <= 2
        assert values.unique().numel() > 1


def test_run_time_extents_need_a_value() -> None:
    with pytest.raises(ArgumentError, match="run-time extent M"):
        make_tensor(param(torch.float32, "M.0", 4), TensorSupplyType.Auto, "cpu")
    made = make_tensor(param(torch.float32, "M.0", 4), TensorSupplyType.Auto, "cpu", {"M": 3})
    assert made.shape == (3, 4)
    with pytest.raises(ArgumentError, match="scalar"):
        make_tensor(param(torch.float32, is_scalar=True), TensorSupplyType.Auto, "cpu")


def test_assert_close_counts_what_differs() -> None:
    want = torch.zeros(100)
    got = want.clone()
    got[0] = 1.0
    assert_close(got, want, 1e-3, 0.0, 0.01, "out")
    with pytest.raises(AssertionError, match="out: 1 of 100 elements differ"):
        assert_close(got, want, 1e-3, 0.0, 0.0, "out")
    special = torch.tensor([float("inf"), float("-inf"), float("nan")])
    assert_close(special, special.clone(), 0.0, 0.0, 0.0, "special")
    with pytest.raises(AssertionError):
        assert_close(special, special.flip(0), 0.0, 0.0, 0.0, "special")
    with pytest.raises(AssertionError, match="shape"):
        assert_close(torch.zeros(2), torch.zeros(3), 0, 0, 0, "shape")

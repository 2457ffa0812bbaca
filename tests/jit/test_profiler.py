"""Timing and input supply of the profiler."""

from __future__ import annotations

import time

import pytest
import torch

from tileops.errors import ArgumentError
from tileops.jit import KernelParam
from tileops.profiler import (
    Profiler,
    TensorSupplyType,
    assert_close,
    do_bench,
    fill,
    get_tensor_supply,
    make_tensor,
)
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
    "arguments",
    [
        {"return_mode": "mode"},
        {"backend": "clock"},
        {"backend": "cupti", "device": "cpu"},
        {"backend": "cudagraph", "device": "cpu"},
        {"device": "meta"},
    ],
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
    if supply in (TensorSupplyType.Auto, TensorSupplyType.Integer):
        assert values.abs().max() <= (128 if dtype == torch.float8_e4m3fn else 2)
        assert values.unique().numel() > 1
    if supply is TensorSupplyType.Integer:
        assert torch.equal(values, values.round())


def test_normal_has_the_mean_that_tolerances_of_programs_rely_on() -> None:
    made = make_tensor(param(torch.float32, 200, 200), TensorSupplyType.Normal, "cpu")
    # 40,000 draws: the mean of the draws is within six deviations, 6 / 200, of theirs.
    assert abs(made.double().mean().item() + 1) < 0.03
    randn = make_tensor(param(torch.float32, 200, 200), TensorSupplyType.Randn, "cpu")
    assert abs(randn.double().mean().item()) < 0.03


@pytest.mark.parametrize("supply", [TensorSupplyType.Uniform, TensorSupplyType.Normal])
def test_int8_is_all_ones_where_most_draws_would_be_zero(supply: TensorSupplyType) -> None:
    assert bool((make_tensor(param(torch.int8, 9), supply, "cpu") == 1).all())


def test_integers_of_8_bit_floats_have_the_range_of_int8() -> None:
    made = make_tensor(param(torch.float8_e5m2, 4000), TensorSupplyType.Auto, "cpu").double()
    assert made.min() < -100
    assert made.max() > 100


def test_a_supply_makes_inputs_for_parameters() -> None:
    supply = get_tensor_supply(TensorSupplyType.One, "cpu")
    assert torch.equal(supply(param(torch.int32, 2, 3)), torch.ones(2, 3, dtype=torch.int32))
    with pytest.raises(ArgumentError, match="set_autotune_inputs"):
        supply(param(torch.int32, is_scalar=True))


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


def test_names_of_other_systems_are_understood() -> None:
    calls: list[int] = []
    do_bench(
        lambda: calls.append(1), _n_warmup=3, _n_repeat=7, fast_flush=False, device="cpu",
        return_mode="all",
    )  # fmt: skip
    assert len(calls) == 1 + 5 + 3 + 7


def test_a_slow_function_stops_early() -> None:
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        time.sleep(0.002)

    found = do_bench(slow, rep=1000, device="cpu", early_stop_baseline=0.5)
    assert found >= 2.0
    assert len(calls) == 1 + 5
    do_bench(slow, n_warmup=1, n_repeat=4, device="cpu", early_stop_baseline=1e9)
    assert len(calls) == 2 * (1 + 5) + 1 + 4


@pytest.mark.parametrize("supply", TensorSupplyType)
def test_a_generator_makes_the_same_values_and_leaves_the_global_one_alone(
    supply: TensorSupplyType,
) -> None:
    state = torch.get_rng_state()
    made = [
        fill((50,), torch.float32, supply, "cpu", torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(made[0], made[1])
    if supply not in (TensorSupplyType.Zero, TensorSupplyType.One):
        assert not torch.equal(made[0], made[2])


def in_place(x: torch.Tensor) -> None:
    x += 1


def profiler_of(kernel: object) -> Profiler:
    return Profiler([param(torch.float32, 20)], [], kernel=kernel, device="cpu")  # type: ignore[arg-type]


def test_kernels_that_write_into_arguments_are_checked_on_copies() -> None:
    profiler_of(in_place).assert_consistent(repeat=4)
    profiler_of(in_place).assert_allclose(lambda x: x + 1, rtol=0.0, atol=0.0)
    seen: list[bool] = []
    profiler_of(in_place).manual_assert_close(
        in_place, manual_check_prog=lambda got, want: seen.append(torch.equal(got[0], want[0]))
    )
    assert seen == [True]


def test_a_kernel_that_changes_its_mind_is_inconsistent() -> None:
    with pytest.raises(AssertionError, match="run 1: output 0 differs"):
        profiler_of(lambda x: torch.rand(3)).assert_consistent(repeat=3)


def test_run_once_and_sizes_by_name() -> None:
    assert profiler_of(lambda x: x.shape).run_once() == (20,)
    dynamic = Profiler([param(torch.float32, "M.0")], [], kernel=lambda x: x, device="cpu")
    assert dynamic.do_bench(dynamic_symbolic_constraints={"M": 5}, n_repeat=3, n_warmup=1) >= 0
    with pytest.raises(ArgumentError, match="run-time extent M"):
        dynamic.do_bench()

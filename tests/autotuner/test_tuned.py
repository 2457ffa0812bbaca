"""Tuned programs under fake timers: what is measured, when again, and what is chosen."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.autotuner.tuned_programs import (
    FakeTimer,
    fresh_atomic,
    fresh_const,
    fresh_dynamic,
    fresh_in_place,
    fresh_lazy,
)
from tileops import log
from tileops.autotuner import search
from tileops.autotuner.search import CHUNK
from tileops.autotuner.workshop import Workshop

pytestmark = pytest.mark.usefixtures("tuning_cache")

TIMES = {8: 3.0, 16: 2.0, 32: 1.0, 64: 4.0}


def space(*blocks: int) -> list[dict[str, int]]:
    return [{"block": b} for b in blocks]


def test_the_first_call_tunes_and_the_default_is_a_candidate() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer)(fresh_const())
    a = torch.randn(100)
    assert torch.equal(program(a), a * 2)
    assert sorted(timer.calls) == [8, 16, 32]
    program(a)
    assert torch.equal(program.op(a), a * 2)
    assert len(timer.calls) == 3
    assert program.compile(a).config == {"block": 32}
    assert program.compile(N=100).latency == 1.0
    assert len(timer.calls) == 3


def test_a_new_process_measures_nothing_and_a_new_config_alone() -> None:
    a = torch.randn(100)
    tileops.autotune(configs=space(8, 32), timer=FakeTimer(TIMES))(fresh_const())(a)
    again = FakeTimer(TIMES)
    tileops.autotune(configs=space(32, 8), timer=again)(fresh_const())(a)
    assert again.calls == []
    more = FakeTimer({**TIMES, 64: 0.5})
    program = tileops.autotune(configs=space(8, 32, 64), timer=more)(fresh_const())
    program(a)
    assert more.calls == [64]
    assert program.compile(a).config == {"block": 64}


def test_the_choice_of_a_short_budget_stands_until_there_is_more_time() -> None:
    a = torch.randn(100)
    times = {8 * n: 10.0 - n for n in range(1, 11)}

    def calls(**options: Any) -> list[int]:
        timer = FakeTimer(times)
        tileops.autotune(configs=space(*times), timer=timer, **options)(fresh_const())(a)
        return timer.calls

    first = calls(budget=1e-9)
    assert len(first) == CHUNK
    assert calls(budget=1e-9) == []
    assert calls(tune="never") == []
    with tileops.option.strict():
        assert calls() == []
    assert sorted({*first, *calls()}) == sorted(times)
    assert calls() == []


def test_the_best_of_each_part_of_a_search_meet_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "CHUNK", 2)
    decide, compared = Workshop.decide, []

    def noted(self: Workshop, results: Any) -> Any:
        answer = decide(self, results)
        compared.append((sorted(results), answer.ranking))
        return answer

    monkeypatch.setattr(Workshop, "decide", noted)
    tuned = tileops.autotune(configs=space(8, 32, 64), budget=600.0)(fresh_const())
    kernel = tuned.compile(torch.randn(100))
    *parts, (last, ranking) = compared
    assert [len(names) for names, _ in parts] == [2, 2]
    assert last == sorted(ranking[0] for _, ranking in parts)
    assert json.loads(ranking[0])["block"] == kernel.config["block"]


def test_times_of_an_earlier_rung_do_not_win_a_search_by_halving() -> None:
    blocks = [8 * n for n in range(1, 10)]

    class Throttling(FakeTimer):
        """After the nine configs' first rung, of three calls each, all takes twice as long."""

        def __call__(self, config: Any, kernel: Any, inputs: Any) -> float:
            found: float = super().__call__(config, kernel, inputs)
            return found * (1 if len(self.calls) <= 27 else 2)

    timer = Throttling({block: 100.0 + block for block in blocks})
    program = tileops.autotune(configs=space(*blocks), timer=timer, search="halving")(fresh_const())
    kernel = program.compile(torch.randn(100))
    assert len(timer.calls) == 54
    assert (kernel.config, kernel.latency) == ({"block": 8}, 216.0)


def test_a_changed_program_is_measured_again() -> None:
    a = torch.randn(100)
    tileops.autotune(configs=space(8, 32), timer=FakeTimer(TIMES))(fresh_const())(a)
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer)(fresh_const())
    assert torch.equal(program(a, scale=3), a * 3)
    assert sorted(timer.calls) == [8, 16, 32]


def test_sizes_and_flags_do_not_share_a_result() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer)(fresh_const())
    for size in (100, 101):
        program(torch.randn(size))
    assert len(timer.calls) == 6
    storage = torch.randn(101)
    program(storage[1:])  # other alignment
    assert len(timer.calls) in (6, 9)  # the CPU allocates at 64 bytes: this one is not aligned
    program.compile(N=100, scale=5)
    assert len(timer.calls) > 6


def test_an_explicit_parameter_is_not_tuned() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer)(fresh_const())
    a = torch.randn(50)
    assert torch.equal(program(a, block=64), a * 2)
    assert program.compile(a, block=64).config is None
    assert timer.calls == []


def test_never_takes_the_default_and_says_so_once() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer, tune="never")(fresh_const())
    with pytest.warns(log.TileopsWarning, match="is not tuned"):
        program(torch.randn(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program(torch.randn(41))
    assert timer.calls == []


def test_strict_mode_forbids_a_tuning_and_allows_a_tuned_call() -> None:
    program = tileops.autotune(configs=space(8, 32), timer=FakeTimer(TIMES))(fresh_const())
    a = torch.randn(60)
    with tileops.option.strict(), pytest.raises(tileops.CompileMissError):
        program(a)
    program(a)
    with tileops.option.strict():
        assert torch.equal(program(a), a * 2)


def test_an_in_place_program_is_tuned_on_copies() -> None:
    program = tileops.autotune(configs=space(8, 16, 32, 64), timer=_running_timer)(fresh_in_place())
    a = torch.zeros(1000)
    for times in (1, 2):
        program(a)
        assert torch.equal(a, torch.full((1000,), float(times)))


def test_an_atomic_program_is_tuned_on_copies() -> None:
    timer = _running_timer
    program = tileops.autotune(configs=space(8, 16, 32, 64), timer=timer)(fresh_atomic())
    a, total = torch.arange(1000.0), torch.zeros(10)
    for times in (1, 2):
        program(a, total)
        # Sums of integers below 2^24: exact in any order.
        assert torch.equal(total, a.view(100, 10).sum(0) * times)


def _running_timer(config, kernel, inputs):  # type: ignore[no-untyped-def]
    kernel(*inputs)
    return TIMES[config["block"]]


def test_wrong_and_failing_configs_are_recorded_with_reasons(tuning_cache: Path) -> None:
    def timer(config, kernel, inputs):  # type: ignore[no-untyped-def]
        if config["block"] == 8:
            raise ValueError("this one broke")
        return TIMES[config["block"]]

    program = tileops.autotune(
        configs=[*space(8, 32), {"block": 0}], timer=timer, ref_prog=lambda a: a * 2
    )(fresh_const())
    program(torch.randn(100))
    rows = [
        json.loads(line) for path in tuning_cache.rglob("configs.jsonl") for line in path.open()
    ]
    found = {row["config"]["block"]: row for row in rows}
    assert found[8]["status"] == "error"
    assert "this one broke" in found[8]["reason"]
    assert found[32]["status"] == "ok"
    assert found[32]["latency"] == 1.0


def test_all_configs_failing_is_an_error_that_lists_the_reasons() -> None:
    program = tileops.autotune(
        configs=space(8, 32), timer=FakeTimer(TIMES), ref_prog=lambda a: a * 5
    )(fresh_const())
    with pytest.raises(tileops.TileopsError) as error:
        program(torch.ones(100))
    text = str(error.value)
    assert "block=8" in text
    assert "block=32" in text
    assert "wrong_result" in text


def test_many_sizes_cause_few_tunings() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer)(fresh_dynamic())
    sizes = random.Random(1).sample(range(1, 4096), 300)
    for size in sizes:
        a = torch.ones(size)
        assert float(program(a).sum()) == 2.0 * size
    buckets = {(size - 1).bit_length() for size in sizes}
    # A bucket is tuned once for sizes divisible by 16 and once for the others.
    assert len(timer.calls) <= 2 * 3 * len(buckets)


def test_two_hundred_lengths_tune_per_power_of_two_and_the_second_pass_does_nothing() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 16, 32, 64), timer=timer)(fresh_dynamic())
    rng = random.Random(7)
    lengths = [rng.randint(1, 4096) for _ in range(200)]
    inputs = [torch.randn(length) for length in lengths]
    seen = []
    for _ in range(2):
        before = tileops.stats()
        assert all(torch.equal(program(a), a * 2) for a in inputs)
        after = tileops.stats()
        seen.append({name: after[name] - before[name] for name in ("compiles", "tunings")})
    assert seen[0]["tunings"] <= 13  # 1, 2, 4, ... 4096
    assert len(timer.calls) == 4 * seen[0]["tunings"]
    # One for each config: on the CPU one code serves every length.
    assert seen[0]["compiles"] <= 4
    assert seen[1] == {"compiles": 0, "tunings": 0}


def test_buckets_choose_their_own_configs() -> None:
    class BySize(FakeTimer):
        def __call__(self, config, kernel, inputs):  # type: ignore[no-untyped-def]
            super().__call__(config, kernel, inputs)
            is_small = inputs[0].numel() <= 64
            return config["block"] if is_small else 1.0 / config["block"]

    timer = BySize(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer, buckets=[64, 1024])(
        fresh_dynamic()
    )
    for size in (33, 65, 35, 77, 2000, 5):
        a = torch.randn(size)
        assert torch.equal(program(a), a * 2)
    assert len(timer.calls) == 9
    assert program.compile(torch.randn(35)).config == {"block": 8}
    assert program.compile(torch.randn(67)).config == {"block": 32}


def test_a_function_may_bucket() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(
        configs=space(8, 32), timer=timer, buckets=lambda name, size: size % 2
    )(fresh_dynamic())
    for size in (33, 35, 37, 34, 38):
        program(torch.randn(size))
    assert len(timer.calls) == 6


def test_lazy_programs_give_the_best_kernel() -> None:
    timer = FakeTimer(TIMES)
    lazy = tileops.autotune(configs=space(8, 32, 64), timer=timer)(fresh_lazy())
    kernel = lazy(100)
    a = torch.randn(100)
    assert torch.equal(kernel(a), a * 2)
    assert (kernel.config, kernel.latency) == ({"block": 32}, 1.0)
    assert lazy(100) is kernel
    assert sorted(timer.calls) == [8, 32, 64]
    assert lazy(100, block=8).config is None
    assert lazy(101).config == {"block": 32}
    assert len(timer.calls) == 6


def test_torch_compile_traces_through() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=space(8, 32), timer=timer)(fresh_const())
    compiled = torch.compile(lambda a: program(a) + 1, fullgraph=True, backend="eager")
    a = torch.randn(100)
    assert torch.equal(compiled(a), a * 2 + 1)
    assert sorted(timer.calls) == [8, 16, 32]


def test_the_tuner_takes_kernels_and_its_result_goes_to_disk(tmp_path: Path) -> None:
    from tileops.autotuner.param import AutotuneResult, CompileArgs

    tuner = tileops.AutoTuner.from_kernel(fresh_lazy(), space(8, 32))
    result = tuner.set_profile_args(ref_prog=None).run(timer=FakeTimer(TIMES), args=(64,))
    assert result.config == {"block": 32}
    assert result.latency == 1.0
    result.save_to_disk(tmp_path / "result")
    loaded = AutotuneResult.load_from_disk(tmp_path / "result", CompileArgs())
    assert loaded.config == result.config
    assert hash(loaded) == hash(result)
    a = torch.randn(64)
    assert loaded.kernel is not None
    assert torch.equal(loaded.kernel(a), a * 2)


def test_given_inputs_are_tuned_on() -> None:
    seen: list[float] = []

    def timer(config, kernel, inputs):  # type: ignore[no-untyped-def]
        seen.append(float(inputs[0][0]))
        return TIMES[config["block"]]

    program = tileops.autotune(configs=space(8, 32), timer=timer)(fresh_const())
    with tileops.set_autotune_inputs(torch.full((100,), 7.0)):
        program(torch.zeros(100))
    assert set(seen) == {7.0}

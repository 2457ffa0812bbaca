"""The careful measurement by which tuned choices are judged: right under noise, drift and luck."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from benchmarks.judging import Judge, median_interval


class Machine:
    """Times with noise; its clocks sink by a third, and one run in fifty is disturbed."""

    def __init__(self, true_us: dict[str, float], seed: int, noise: float) -> None:
        self.true_us, self.noise = true_us, noise
        self.random = random.Random(seed)
        self.drift = 1.0

    def __call__(self, names: Sequence[str]) -> list[float]:
        return [self.one(name) for name in names]

    def one(self, name: str) -> float:
        self.drift = min(1.33, self.drift * 1.0001)
        disturbance = 3.0 if self.random.random() < 0.02 else 1.0
        return self.true_us[name] * self.drift * disturbance * self.random.gauss(1.0, self.noise)


@pytest.mark.parametrize("noise", [0.002, 0.02])
def test_ratios_are_true_within_a_fraction_of_a_percent(noise: float) -> None:
    for seed in range(10):
        maker = random.Random(seed)
        true_us = {f"c{n}": 200 * (1 + maker.random() ** 2) for n in range(24)}
        chosen = maker.sample(sorted(true_us), 3)
        machine = Machine(true_us, seed, noise)
        judge = Judge(list(true_us), chosen)
        for _ in range(4):
            judge.look(machine, 20)
            judge.race(machine, 100)
        verdict = judge.verdict()
        best = min(true_us.values())
        # The median of 200 ratios of two noisy times errs by 1.25 * 1.41 * noise / 14; five of it.
        allowed = 0.0005 + 5 * noise / 8
        for name in chosen:
            assert abs(verdict.ratios[name] - true_us[name] / best) < allowed * true_us[name] / best
            low, high = verdict.intervals[name]
            assert low <= verdict.ratios[name] <= high
        assert true_us[verdict.best] / best < 1 + allowed
        assert set(verdict.medians) == set(true_us)


def test_a_choice_that_is_slow_is_a_rival_all_the_same() -> None:
    machine = Machine({"best": 100.0, "close": 101.0, "slow": 150.0}, 1, 0.001)
    judge = Judge(["best", "close", "slow"], ["slow", "slow"])
    judge.look(machine, 10)
    assert judge.rivals == ["best", "close", "slow"]
    judge.race(machine, 40)
    assert judge.verdict().ratios == {"slow": pytest.approx(1.5, rel=0.01)}


def test_the_interval_of_a_median_covers_it() -> None:
    generator = random.Random(3)
    inside = 0
    for _ in range(500):
        low, high = median_interval(sorted(generator.expovariate(1.0) for _ in range(60)))
        inside += low <= 0.6931 <= high
    assert inside >= 500 * 0.99 - 4 * (500 * 0.99 * 0.01) ** 0.5

"""The race: what is timed, when it stops, and whom it picks under noise."""

from __future__ import annotations

import random

import pytest

from tileops.autotuner.rounds import Race, Rules, bounds


class Clock:
    """Times of candidates with noise, drift that hits all alike, and disturbances."""

    def __init__(self, true_ms: dict[str, float], seed: int, noise: float = 0.01) -> None:
        self.true_ms = true_ms
        self.random = random.Random(seed)
        self.noise = noise
        self.drift = 1.0
        self.calls: list[tuple[str, int]] = []

    def __call__(self, name: str, count: int) -> list[float]:
        self.calls.append((name, count))
        # Clocks sink by 30 % over the measurement.
        self.drift = min(1.3, self.drift * 1.002)
        return [self._one(name) for _ in range(count)]

    def _one(self, name: str) -> float:
        disturbance = 3.0 if self.random.random() < 0.02 else 1.0
        return self.true_ms[name] * self.drift * disturbance * self.random.gauss(1.0, self.noise)


def race(clock: Clock, rules: Rules | None = None) -> list[str]:
    return Race(clock.true_ms, clock, rules or Rules()).run()


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
def test_the_winner_is_within_two_percent_of_the_best(noise: float) -> None:
    for seed in range(40):
        maker = random.Random(seed)
        true_ms = {f"c{n}": 0.2 * (1 + maker.random() * maker.random()) for n in range(24)}
        winner = race(Clock(true_ms, seed, noise))[0]
        assert true_ms[winner] <= 1.02 * min(true_ms.values()), seed


def test_slow_candidates_are_not_timed_to_the_end() -> None:
    clock = Clock({"fast": 1.0, "slow": 2.0, "close": 1.005}, 1)
    order = race(clock)
    assert set(order[:2]) == {"fast", "close"}
    assert order[2] == "slow"
    runs = {name: sum(c for n, c in clock.calls if n == name) for name in clock.true_ms}
    assert runs["slow"] < runs["close"]
    assert runs["slow"] <= 2 * Rules().least


def test_rounds_are_interleaved_and_nobody_is_always_first() -> None:
    clock = Clock({"a": 1.0, "b": 1.0, "c": 1.0}, 2, noise=0.05)
    race(clock)
    names = [name for name, _ in clock.calls]
    rounds = [names[i : i + 3] for i in range(0, 15, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert {r[0] for r in rounds} == {"a", "b", "c"}


def test_the_budget_bounds_the_runs() -> None:
    clock = Clock({"a": 0.1, "b": 0.1}, 3, noise=0.5)
    race(clock, Rules(rep=20))
    # A race and its last, fresh measurement.
    assert sum(c for n, c in clock.calls if n == "a") <= 2 * 20 + Rules().per_round


def test_a_candidate_that_fails_leaves_and_the_others_go_on() -> None:
    clock = Clock({"a": 1.0, "b": 0.9, "c": 1.2}, 4)
    asked: list[int] = []

    def sample(name: str, count: int) -> list[float] | None:
        if name == "b" and len(clock.calls) > 6:
            asked.append(count)
            return None
        return clock(name, count)

    assert Race(clock.true_ms, sample, Rules()).run() == ["a", "c"]
    assert len(asked) == 1


def test_one_candidate_and_none() -> None:
    assert race(Clock({"a": 1.0}, 5)) == ["a"]
    assert Race({}, lambda name, count: [], Rules()).run() == []


def test_intervals_cover_the_mean() -> None:
    generator = random.Random(6)
    inside = 0
    for _ in range(1000):
        low, high = bounds([generator.gauss(1.0, 0.1) for _ in range(6)])
        inside += low <= 1.0 <= high
    # 99 % of 1,000 with a spread of 3.1: four spreads below.
    assert inside >= 977
    assert bounds([1.0]) == (float("-inf"), float("inf"))

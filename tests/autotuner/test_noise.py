"""Disturbed measurements: seen, taken again, marked, and not taken over the default for nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import FakeTimer
from tileops.autotuner import benches, spaces
from tileops.autotuner.database import Row, read_best, read_rows
from tileops.autotuner.rounds import Race, Rules, is_faster, is_noisy, quartiles
from tileops.autotuner.session import preferred
from tileops.cache.directory import resolve
from tileops.cli.stored_tuning import folders
from tileops.settings import current

FEW = Rules(seconds=5.0)


class Disturbed:
    """Times of candidates; from the first to the last disturbed call, half of them take long."""

    def __init__(self, true_ms: Mapping[str, float], seed: int, until: float, worst: float) -> None:
        self.true_ms = dict(true_ms)
        self.random = random.Random(seed)
        self.until, self.worst = until, worst
        self.count = 0

    def __call__(self, name: str, count: int) -> list[float]:
        self.count += 1
        is_disturbed = self.count < self.until and self.random.random() < 0.5
        factor = self.random.uniform(2, self.worst) if is_disturbed else 1.0
        return [self.true_ms[name] * factor * self.random.gauss(1, 0.01) for _ in range(count)]


def raced(clock: Disturbed, default: str | None) -> tuple[Race, list[str]]:
    race = Race(clock.true_ms, clock, FEW, default)
    return race, race.run()


def rows_of(race: Race, names: list[str]) -> dict[str, Row]:
    rows = {}
    for name in names:
        found = race.samples[name]
        low, high = quartiles(found.rounds)
        rows[name] = Row(
            "ok", found.median, low, high, noisy=is_noisy(found.rounds), sure=found.sure
        )
    return rows


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([0.2, 15.0, 0.2, 14.0, 0.21, 15.0], True),
        ([1.0, 1.01, 0.99, 1.0, 1.02], False),
        ([1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0], False),  # one disturbance of eight
        ([1.0, 2.0, 3.0, 4.0], True),
        ([1.0], False),
    ],
)
def test_rounds_are_noisy_by_their_quartiles_against_the_median(
    rounds: list[float], expected: bool
) -> None:
    assert is_noisy(rounds) is expected


def test_a_disturbance_that_passes_is_measured_again_and_leaves_no_mark() -> None:
    for seed in range(20):
        # 40 calls of two candidates: the race and a part of its last measurement.
        race, order = raced(Disturbed({"a": 1.0, "b": 1.3}, seed, 40, 70), "b")
        assert order[0] == "a", seed
        assert not is_noisy(race.samples["a"].rounds), seed
        assert race.samples["a"].median == pytest.approx(1.0, rel=0.05)


def test_what_stays_disturbed_is_marked_and_yields_to_the_default() -> None:
    marked = taken = 0
    for seed in range(20):
        race, order = raced(Disturbed({"other": 1.0, "default": 1.0}, seed, 1e9, 70), "default")
        rows = rows_of(race, ["default", "other"])
        marked += any(row.noisy for row in rows.values())
        taken += preferred(order[0], "default", rows) != "default"
    assert marked >= 18
    assert taken == 0  # nothing proves that one of two equals is faster


def test_evidence_wins_over_noise() -> None:
    for seed in range(10):
        clock = Disturbed({"other": 1.0, "default": 500.0}, seed, 1e9, 70)
        race, order = raced(clock, "default")
        assert order[0] == "other"
        rows = rows_of(race, ["default", "other"])
        assert preferred("other", "default", rows) == "other", seed


def row(low: float, middle: float, high: float, **marks: bool) -> Row:
    return Row("ok", middle, low, high, 10, **marks)


@pytest.mark.parametrize(
    ("mine", "default", "expected"),
    [
        (row(0.9, 1.0, 1.1), row(1.0, 1.05, 1.1), 1),  # neither is noisy: the median decides
        (row(0.2, 1.0, 15.0, noisy=True), row(1.0, 1.1, 1.2), 0),
        (row(0.2, 1.0, 15.0, noisy=True, sure=True), row(1.0, 1.1, 1.2), 1),
        (row(0.2, 0.5, 0.9, noisy=True), row(1.0, 1.1, 1.2), 1),  # quartiles apart
        (row(0.9, 1.0, 1.1), row(0.2, 1.1, 15.0, noisy=True), 0),
        (row(0.2, 1.0, 15.0, noisy=True), Row("error"), 1),  # the default is no choice
    ],
)
def test_what_is_preferred(mine: Row, default: Row, expected: int) -> None:
    names = ("default", "mine")
    assert preferred("mine", "default", {"default": default, "mine": mine}) == names[expected]
    assert preferred("mine", None, {"mine": mine}) == "mine"


def test_paired_rounds_show_a_difference_that_drift_hides() -> None:
    drift = [1.0, 2.0, 4.0, 3.0, 1.5, 2.5]
    assert is_faster([0.9 * d for d in drift], drift)
    assert not is_faster(drift, [0.9 * d for d in drift])
    assert not is_faster([1.0, 15.0, 1.0, 1.0], [1.1, 1.0, 1.1, 15.0])


# -- a whole tuning --------------------------------------------------------------------------------
def doubling(name: str) -> Any:
    @tileops.jit(name=name)
    def double(A, block: int = 16):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2
        return B

    return double


def test_a_noisy_choice_is_marked_in_the_files(
    tuning_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(1)

    def times(self: object, name: str, loadable: object, count: int, limit: float) -> list[float]:
        return [0.2 if generator.random() < 0.5 else 15.0] * count

    monkeypatch.setattr(benches.ChildBench, "times", times)
    program = tileops.autotune(configs=[{"block": b} for b in (8, 16, 32)])(
        doubling("noisy_double")
    )
    assert program(torch.ones(50)).tolist() == [2.0] * 50
    (folder,) = folders(resolve(current()).private, "noisy_double")
    best, rows = read_best(folder), read_rows(folder)
    assert best is not None
    assert best.noisy
    assert best.config == {"block": 16}  # the default: nothing proves another
    assert any(r.noisy for r in rows)
    assert json.loads((folder / "latency.json").read_text())["noisy"] is True
    assert "(noisy)" in (folder.parent / "dispatch_table.txt").read_text()


# -- the default -----------------------------------------------------------------------------------
def test_the_default_counts_once_however_it_is_written(tuning_cache: Path) -> None:
    timer = FakeTimer({8: 3.0, 16: 2.0})
    configs = [{"block": 16, "scale": 2}, {"block": 8}, {"scale": 2}, {"block": 16}, {"block": 8}]

    @tileops.jit(name="once_double")
    def double(A, block: int = 16, scale: int = 2):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * scale
        return B

    program = tileops.autotune(configs=configs, timer=timer)(double)
    program(torch.ones(50))
    assert sorted(timer.calls) == [8, 16]
    (folder,) = folders(resolve(current()).private, "once_double")
    assert len(read_rows(folder)) == 2


def test_configs_are_completed_by_the_default() -> None:
    default = {"a": 1, "b": 2}
    found = spaces.by_name([{"b": 3}, {"a": 1}, {"b": 3, "a": 1}, {"a": 4}], default)
    assert list(found.values()) == [{"a": 1, "b": 3}, {"a": 1, "b": 2}, {"a": 4, "b": 2}]
    assert all(spaces.canonical(config) == name for name, config in found.items())
    assert list(spaces.by_name([{"b": 3}], default).values())[-1] == default
    assert list(spaces.by_name([{"b": 3}, {"b": 3}], None).values()) == [{"b": 3}]

"""The searches, spaces, records and the automatic space, without compiling anything."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import tileops
from benchmarks.programs import bench_matmul
from tests.autotuner.tuned_programs import fresh_lazy
from tileops.autotuner import database, search, spaces
from tileops.autotuner.database import Record, Row, TuningKey, TuningResult
from tileops.autotuner.param import TuningOptions
from tileops.errors import ArgumentError
from tileops.pass_configs import options_of
from tileops.target import parse_target


class Asked:
    """Times by number; counts what a search asks for, and lets a clock pass a second a config."""

    def __init__(self, times: Sequence[float | None]) -> None:
        self.times = times
        self.calls: list[tuple[int, float]] = []

    def __call__(self, names: Sequence[str], effort: float) -> Mapping[str, float | None]:
        self.calls += [(int(n), effort) for n in names]
        return {n: self.times[int(n)] for n in names}

    def clock(self) -> float:
        return float(len(self.calls))


def run(name: str, count: int, asked: Any, deadline: float = math.inf) -> set[int]:
    """The numbers of the configs that may win after a search."""
    names = [str(n) for n in range(count)]
    found = search.SEARCHES[name]
    if not found.keeps_order:
        random.Random(1).shuffle(names)
    return {int(n) for n in found.run(names, asked, deadline)}


def test_exhaustive_measures_all_once() -> None:
    asked = Asked([3.0, None, 1.0])
    run("exhaustive", 3, asked)
    assert asked.calls == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_a_budget_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked([1.0] * 100)
    monkeypatch.setattr(search.time, "monotonic", asked.clock)
    run("random", 100, asked, 20)
    assert 20 <= len(asked.calls) <= 20 + search.CHUNK
    assert len({n for n, _ in asked.calls}) == len(asked.calls)


def test_halving_spends_its_effort_on_the_good() -> None:
    times = [float(n) + 1 for n in range(27)]
    asked = Asked(times)
    run("halving", 27, asked)
    full = [n for n, effort in asked.calls if effort == 1.0]
    assert 0 in full
    assert len(full) <= 3
    assert {n for n, _ in asked.calls} == set(range(27))


def test_what_halving_left_behind_wins_no_more() -> None:
    times = [float(n) + 1 for n in range(9)]
    assert run("halving", 9, Asked(times)) == {0, 1, 2}
    assert run("random", 9, Asked(times)) == set(range(9))

    def failing_later(names: Sequence[str], effort: float) -> dict[str, float | None]:
        return {n: times[int(n)] if effort < 1 else None for n in names}

    # Where none of the last rung is right, what was right before stands.
    assert run("halving", 9, failing_later) == set(range(9))


def test_wrong_searches_are_refused() -> None:
    with pytest.raises(ArgumentError, match="search"):
        TuningOptions(search="greedy")
    with pytest.raises(ArgumentError, match="budget"):
        TuningOptions(budget=0)


def test_a_space_is_a_product_under_a_condition() -> None:
    space = tileops.space(m=[1, 2], n=[3, 4], where=lambda m, n: m + n != 5)
    assert list(space) == [{"m": 1, "n": 3}, {"m": 2, "n": 4}]
    assert spaces.listed(space, ("m", "n"), ()) == list(space)
    assert spaces.listed([{"m": 1}, {"m": 1}], ("m",), ()) == [{"m": 1}]
    assert spaces.listed(lambda n: [{"m": n}], ("m",), (7,)) == [{"m": 7}]
    with pytest.raises(ArgumentError, match="'k'"):
        spaces.listed([{"k": 1}], ("m",), ())
    with pytest.raises(ArgumentError, match="empty"):
        spaces.listed([], ("m",), ())


def _key(**facts: Any) -> TuningKey:
    return TuningKey("some_op", "ab" * 32, {"sizes": facts})


def row(b: int, latency: float) -> Row:
    return Row("ok", latency, config={"b": b}, digest="d")


def test_records_survive_torn_lines_and_damage(tmp_path: Path) -> None:
    with tileops.option.cache_dir(tmp_path):
        record = Record(_key(N=1))
        record.append([row(1, 2.0), Row("timeout", config={"b": 2}, digest="d", reason="30 s")])
        record.choose(TuningResult({"b": 1}, 2.0, "d", "s"))
        assert record.folder is not None
        with (record.folder / database.ROWS).open("a") as file:
            file.write('{"config": {"b": 3}, "dig')
        record.append([row(4, 1.0)])
        assert [row.config["b"] for row in record.rows()] == [1, 2, 4]
        assert record.best() == TuningResult({"b": 1}, 2.0, "d", "s")
        (record.folder / database.BEST).write_text("{")
        assert record.best() is None
        assert Record(_key(N=2)).rows() == []


def test_records_without_a_cache_stay_in_memory() -> None:
    with tileops.option.cache_disable():
        record = Record(_key(M=1))
        record.append([row(1, 2.0)])
        record.choose(TuningResult({"b": 1}, 2.0, "d", "s"))
        assert Record(_key(M=1)).best() == TuningResult({"b": 1}, 2.0, "d", "s")
        assert Record(_key(M=2)).best() is None


def _trace(config: Mapping[str, Any]) -> Any:
    return bench_matmul.get_tir(M=512, N=512, K=512, **config)


def test_the_automatic_space_follows_the_program_and_fits_the_target() -> None:
    defaults = {
        "block_M": 128, "block_N": 256, "block_K": 64, "threads": 256, "num_stages": 3, "panel": 8,
    }  # fmt: skip
    target = parse_target("cuda:sm_90")
    every = spaces.automatic(_trace, defaults, target)
    found = [config for config in every if "pass_configs" not in config]
    assert 1 < len(found) < len(every) <= spaces.LIMIT
    assert found[0] == defaults
    assert {config["panel"] for config in found} == {8}
    # With the default tiles, schedules of other kinds.
    schedules = [config["pass_configs"] for config in every[len(found) :]]
    assert {"tileops.schedule": {"path": "triton"}} in schedules
    assert all(options_of(schedule) for schedule in schedules)
    assert every[len(found) :] == [{**defaults, "pass_configs": s} for s in schedules]
    other = spaces.automatic(_trace, defaults, parse_target("cuda:sm_80"))
    assert not any("pass_configs" in config for config in other)
    for name in ("block_M", "num_stages", "threads"):
        assert len({config[name] for config in found}) > 1
    assert all(spaces.needs_of(_trace(c)).shared_bytes <= target.shared_limit for c in found)
    # 128 x 64 and 64 x 256 elements of two bytes, in three stages
    assert spaces.needs_of(_trace(defaults)).shared_bytes == 3 * 2 * (128 * 64 + 64 * 256)
    too_large = spaces.needs_of(_trace({**defaults, "block_K": 256}))
    assert not spaces.fits(too_large, target)


def test_lazy_defaults_may_be_missing() -> None:
    tuned = tileops.autotune(configs=[{"block": 8}])(fresh_lazy())
    assert tuned.tuner.names == ("block",)

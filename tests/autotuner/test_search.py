"""The searches, spaces, records and the automatic space, without compiling anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import tileops
from benchmarks.programs import bench_matmul
from tests.autotuner.tuned_programs import fresh_lazy
from tileops.autotuner import automatic, database, search, spaces
from tileops.autotuner.database import Best, Record, Row, TuningKey
from tileops.errors import ArgumentError
from tileops.target import parse_target


class Asked:
    """Times by number; counts what a search asks for, and lets a clock pass a second a config."""

    def __init__(self, times: Sequence[float | None]) -> None:
        self.times = times
        self.calls: list[tuple[int, float]] = []

    def __call__(self, numbers: Sequence[int], effort: float) -> Mapping[int, float | None]:
        self.calls += [(n, effort) for n in numbers]
        return {n: self.times[n] for n in numbers}

    def clock(self) -> float:
        return float(len(self.calls))


def test_exhaustive_measures_all_once() -> None:
    asked = Asked([3.0, None, 1.0])
    search.run("exhaustive", 3, asked, budget=None, seed=0)
    assert asked.calls == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_a_budget_ends_the_search() -> None:
    asked = Asked([1.0] * 100)
    search.run("random", 100, asked, budget=20, seed=3, clock=asked.clock)
    assert 20 <= len(asked.calls) <= 20 + search.CHUNK
    assert len({n for n, _ in asked.calls}) == len(asked.calls)


def test_halving_spends_its_effort_on_the_good() -> None:
    times = [float(n) + 1 for n in range(27)]
    asked = Asked(times)
    search.run("halving", 27, asked, budget=None, seed=1)
    full = [n for n, effort in asked.calls if effort == 1.0]
    assert 0 in full
    assert len(full) <= 3
    assert {n for n, _ in asked.calls} == set(range(27))


def test_what_halving_left_behind_wins_no_more() -> None:
    times = [float(n) + 1 for n in range(9)]
    assert search.run("halving", 9, Asked(times), budget=None, seed=1) == {0, 1, 2}
    assert search.run("random", 9, Asked(times), budget=None, seed=1) == set(range(9))

    def failing_later(numbers: Sequence[int], effort: float) -> dict[int, float | None]:
        return {n: times[n] if effort < 1 else None for n in numbers}

    # Where none of the last rung is right, what was right before stands.
    assert search.run("halving", 9, failing_later, budget=None, seed=1) == set(range(9))


def test_wrong_searches_are_refused() -> None:
    with pytest.raises(ArgumentError, match="search"):
        search.check("greedy", None)
    with pytest.raises(ArgumentError, match="budget"):
        search.check("random", 0)


def test_a_space_is_a_product_under_a_condition() -> None:
    space = tileops.space(m=[1, 2], n=[3, 4], where=lambda m, n: m + n != 5)
    assert list(space) == [{"m": 1, "n": 3}, {"m": 2, "n": 4}]
    assert spaces.resolve(space, ("m", "n"), ()) == list(space)
    assert spaces.resolve([{"m": 1}, {"m": 1}], ("m",), ()) == [{"m": 1}]
    assert spaces.resolve(lambda n: [{"m": n}], ("m",), (7,)) == [{"m": 7}]
    with pytest.raises(ArgumentError, match="'k'"):
        spaces.resolve([{"k": 1}], ("m",), ())
    with pytest.raises(ArgumentError, match="empty"):
        spaces.resolve([], ("m",), ())


def _key(**facts: Any) -> TuningKey:
    return TuningKey("some_op", "ab" * 32, {"sizes": facts})


def test_records_survive_torn_lines_and_damage(tmp_path: Path) -> None:
    with tileops.option.cache_dir(tmp_path):
        record = Record(_key(N=1))
        record.append([Row({"b": 1}, "d", "ok", 2.0), Row({"b": 2}, "d", "timeout", reason="30 s")])
        record.choose(Best({"b": 1}, 2.0, "d", "s"))
        assert record.folder is not None
        with (record.folder / database.ROWS).open("a") as file:
            file.write('{"config": {"b": 3}, "dig')
        record.append([Row({"b": 4}, "d", "ok", 1.0)])
        assert [row.config["b"] for row in record.rows()] == [1, 2, 4]
        assert record.best() == Best({"b": 1}, 2.0, "d", "s")
        (record.folder / database.BEST).write_text("{")
        assert record.best() is None
        assert Record(_key(N=2)).rows() == []


def test_records_without_a_cache_stay_in_memory() -> None:
    with tileops.option.cache_disable():
        record = Record(_key(M=1))
        record.append([Row({"b": 1}, "d", "ok", 2.0)])
        record.choose(Best({"b": 1}, 2.0, "d", "s"))
        assert Record(_key(M=1)).best() == Best({"b": 1}, 2.0, "d", "s")
        assert Record(_key(M=2)).best() is None


def _trace(config: Mapping[str, Any]) -> Any:
    return bench_matmul.get_tir(M=512, N=512, K=512, **config)


def test_the_automatic_space_follows_the_program_and_fits_the_target() -> None:
    defaults = {
        "block_M": 128, "block_N": 256, "block_K": 64, "threads": 256, "num_stages": 3, "panel": 8,
    }  # fmt: skip
    target = parse_target("cuda:sm_90")
    found = automatic.configs(_trace, defaults, target)
    assert 1 < len(found) <= automatic.LIMIT
    assert found[0] == defaults
    assert {config["panel"] for config in found} == {8}
    for name in ("block_M", "num_stages", "threads"):
        assert len({config[name] for config in found}) > 1
    assert all(automatic.needs_of(_trace(c)).shared_bytes <= target.shared_limit for c in found)
    # 128 x 64 and 64 x 256 elements of two bytes, in three stages
    assert automatic.needs_of(_trace(defaults)).shared_bytes == 3 * 2 * (128 * 64 + 64 * 256)
    too_large = automatic.needs_of(_trace({**defaults, "block_K": 256}))
    assert not automatic.fits(too_large, target)


def test_lazy_defaults_may_be_missing() -> None:
    tuned = tileops.autotune(configs=[{"block": 8}])(fresh_lazy())
    assert tuned.tuner.names == ("block",)

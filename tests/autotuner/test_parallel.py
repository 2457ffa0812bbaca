"""Several devices or ranks measure disjoint shares at the same time: fake runs that sleep show how long."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.autotuner.finding import Found, find_in
from tileops.autotuner.benches import NoSecondContextError
from tileops.autotuner.param import TuningOptions
from tileops.autotuner.rounds import Rules
from tileops.autotuner.workshop import Workshop
from tileops.jit.compile_workers import Compiled

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = [str(number) for number in range(24)]
RUN_MS = 10.0
# Bound by measurement: nothing is dropped or settled before every config has had its runs.
RULES = Rules(rep=10, least=10, drop=10.0, margin=-0.9, finalists=2)
LIMIT = 0.65


class SleepingBench:
    """A device on which each run of a config takes 10 ms, and config 7's a little less.

    The first run of a config, with which it is looked at, takes ``first_s`` longer.
    """

    def __init__(self, first_s: float = 0.0) -> None:
        self.ran: set[str] = set()
        self.first_s = first_s

    def _ms(self, name: str) -> float:
        return RUN_MS * (0.8 if name == "7" else 1.0)

    def run(
        self, name: str, loadable: Mapping[str, Any], limit_s: float, *, returns: bool = True
    ) -> list[torch.Tensor]:
        self.ran.add(name)
        time.sleep(self.first_s + self._ms(name) / 1e3)
        return []

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        time.sleep(count * self._ms(name) / 1e3)
        return [self._ms(name)] * count

    def unload(self, name: str) -> None:
        pass

    def inputs(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class Shop(Workshop):
    """A workshop of such devices; there is nothing to compile."""

    def __init__(self, first_s: tuple[float, ...]) -> None:
        self.made = {f"device {n}": SleepingBench(s) for n, s in enumerate(first_s)}
        devices = [torch.device("cpu", n) for n in range(len(first_s))]
        super().__init__(
            dict.fromkeys(CONFIGS), [], TuningOptions(warmup=1, rep=10), devices, rules=RULES
        )  # type: ignore[arg-type]
        loadable = {"op": {"args": []}}
        self._compiled = {name: Compiled("ok", hash=name, loadable=loadable) for name in CONFIGS}

    def benches(self) -> dict[str, SleepingBench]:  # type: ignore[override]
        return self.made


def tuned_on(*first_s: float) -> tuple[Found, list[set[str]], float]:
    """What a tuning on such devices found, what each ran, and seconds."""
    return tuned_in(Shop(first_s))


def tuned_in(shop: Shop) -> tuple[Found, list[set[str]], float]:
    start = time.monotonic()
    with shop:
        found = find_in(shop, CONFIGS)
    return found, [bench.ran for bench in shop.made.values()], time.monotonic() - start


def test_two_devices_take_about_half_the_time_of_one() -> None:
    alone, (everything,), seconds = tuned_on(0.0)
    both, (first, second), less = tuned_on(0.0, 0.0)
    assert everything == set(CONFIGS)
    assert alone.ranking[0] == both.ranking[0] == "7"
    assert sorted(both.ranking) == sorted(CONFIGS)
    assert first | second == everything
    # What the second measured best may race once more on the first.
    assert len(first & second) <= RULES.finalists
    assert min(len(first), len(second)) >= len(CONFIGS) // 2 - 1 - RULES.finalists
    assert less <= LIMIT * seconds, (less, seconds)


def test_a_device_that_looks_slowly_is_given_its_half_all_the_same() -> None:
    _, (quick, slow), _ = tuned_on(0.0, 0.1)
    # Timing takes longer than looking: a device that took what the other has not begun would
    # be at it alone.
    assert len(slow) == len(CONFIGS) // 2
    assert len(quick) <= len(CONFIGS) // 2 + RULES.finalists


class LeavingBench(SleepingBench):
    """A device that is gone after some configs' first run."""

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        if len(self.ran) > 3:
            raise NoSecondContextError("its memory is full")
        return super().times(name, loadable, count, limit_s)


@pytest.mark.parametrize("gone", [(0,), (1,), (0, 2)])
def test_what_a_device_that_is_gone_leaves_the_others_measure(gone: tuple[int, ...]) -> None:
    shop = Shop((0.0,) * (len(gone) + 1))
    for place in gone:
        shop.made[f"device {place}"] = LeavingBench()
    found, ran, _ = tuned_in(shop)
    assert set(found.status.values()) == {"ok"}
    assert found.ranking[0] == "7"
    assert sorted(found.ranking) == sorted(CONFIGS)
    assert all(len(ran[place]) == 4 for place in gone)  # it is asked no more


def test_where_every_device_is_gone_the_configs_fail() -> None:
    shop = Shop((0.0, 0.0))
    shop.made = {name: LeavingBench() for name in shop.made}
    found, _, _ = tuned_in(shop)
    assert set(found.status.values()) == {"error"}
    assert found.ranking == []


def seconds_of(world: int, folder: Path, sleep_s: float) -> tuple[float, list[list[int]]]:
    """The longest tuning call of the ranks, and what each measured; programs are compiled before."""
    for tuning in list(folder.rglob("tuning")):
        shutil.rmtree(tuning)
    times = {str(8 * n): (1.0 if n == 5 else 2.0) for n in range(1, 17)}
    plans = [{"times": times, "cache": "shared", "sleep_s": sleep_s} for _ in range(world)]
    (folder / "store").unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.autotuner.tuned_ranks", str(folder), json.dumps(plans)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    reports = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
    assert all(r["right"] and r["config"] == {"block": 40} for r in reports)
    return max(r["seconds"] for r in reports), [r["calls"] for r in reports]


def test_two_ranks_take_about_half_the_time_of_one(tmp_path: Path) -> None:
    seconds_of(1, tmp_path, 0.0)  # compiles
    one, (alone,) = seconds_of(1, tmp_path, 0.5)
    two, shares = seconds_of(2, tmp_path, 0.5)
    assert sorted(alone) == sorted(shares[0] + shares[1])
    assert len(alone) == 16
    assert min(map(len, shares)) >= 6
    assert two <= LIMIT * one, (two, one)

"""Ranks tune together: the work is shared, the answer is one, and nobody waits for the dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tileops.autotuner.ranks import Share, StoreLostError, share_of, together

ROOT = Path(__file__).resolve().parents[2]
TIMES = [5.0, 4.0, 3.0, 9.0, 1.0, 2.0, 8.0, 7.0, 6.0, 2.5]


def run(folder: Path, plans: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """What each rank did; None for one that died."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.autotuner.rank", str(folder),
         json.dumps([{"times": TIMES, **plan} for plan in plans])],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    paths = [folder / f"{rank}.json" for rank in range(len(plans))]
    return [json.loads(path.read_text()) if path.exists() else None for path in paths]


def test_contradicting_timers_agree_and_each_config_is_measured_once(tmp_path: Path) -> None:
    reverse = {"times": TIMES[::-1]}
    found = [r for r in run(tmp_path, [{}, reverse, {}]) if r is not None]
    assert len(found) == 3
    assert len({json.dumps(r["answer"]) for r in found}) == 1
    assert sorted(n for r in found for n in r["measured"]) == list(range(10))
    assert sum(r["decided"] for r in found) == 1


def test_a_rank_that_dies_hangs_nobody(tmp_path: Path) -> None:
    found = run(tmp_path, [{"pause_s": 0.3}, {"die_after": 1}])
    assert found[1] is None
    survivor = found[0]
    assert survivor is not None
    assert survivor["answer"] == {"best": 4}
    assert survivor["seconds"] < 30
    # What the dead one looked at died with it.
    assert sorted(survivor["measured"]) == list(range(10))


def test_a_rank_that_dies_while_it_decides_is_replaced(tmp_path: Path) -> None:
    found = run(tmp_path, [{"die_deciding": True, "pause_s": 0.01}, {"pause_s": 0.6}])
    if found[0] is None:  # it was the first to be done
        assert found[1] is not None
        assert found[1]["answer"] == {"best": 4}
    else:
        assert found[0]["answer"] == found[1]["answer"]  # type: ignore[index]


def test_a_rank_that_is_warm_hangs_nobody(tmp_path: Path) -> None:
    found = run(tmp_path, [{}, {"warm": True}])
    assert found[0] is not None
    assert found[0]["answer"] == {"best": 4}
    assert found[0]["seconds"] < 5
    assert sorted(found[0]["measured"]) == list(range(10))


class TestOneProcess:
    """What needs no second process: the protocol over a store in memory."""

    def make(self, rank: int, store: Any) -> Share:
        return Share(store, "one", rank, 2, silence_s=0.3)

    @pytest.fixture
    def store(self) -> Any:
        return dist.HashStore()

    def test_the_first_answer_stands(self, store: Any) -> None:
        first, second = self.make(0, store), self.make(1, store)
        assert first.answer() is None
        assert first.publish({"best": 1}) == {"best": 1}
        assert second.publish({"best": 2}) == {"best": 1}
        assert second.answer() == {"best": 1}

    def test_a_late_rank_takes_the_answer_and_measures_nothing(self, store: Any) -> None:
        self.make(0, store).publish({"best": 3})

        work = Doing()
        assert together(self.make(1, store), 5, work) == {"best": 3}
        assert work.looked == []

    def test_claims_are_disjoint_and_complete(self, store: Any) -> None:
        claims = [self.make(rank, store).claims(7, 3) for rank in (0, 1)]
        taken = [next(claims[0]), next(claims[1]), next(claims[0])]
        assert [list(r) for r in taken] == [[0, 1, 2], [3, 4, 5], [6]]
        assert next(claims[1], None) is None

    def test_what_a_silent_rank_took_is_measured_by_the_one_that_decides(self, store: Any) -> None:
        silent = self.make(1, store)
        taken = next(silent.claims(4, 2))
        work = Doing()
        assert together(self.make(0, store), 4, work) == {"count": 4}
        assert work.looked == [2, 3, *taken]

    def test_where_the_store_is_lost_a_rank_goes_on_alone(self, store: Any) -> None:
        class Lost(Share):
            def post(self, number: int, result: dict[str, Any]) -> None:
                raise StoreLostError("connection reset")

        work = Doing()
        assert together(Lost(store, "lost", 0, 2), 5, work) == {"count": 5}
        assert work.looked == [0, 1, 2, 3, 4]


class Doing:
    """Work that notes what it was asked to look at."""

    def __init__(self) -> None:
        self.looked: list[int] = []

    def look(self, numbers: range) -> None:
        self.looked += numbers

    def results(self) -> dict[int, Any]:
        return {number: {"ms": number} for number in self.looked}

    def decide(self, results: dict[int, Any]) -> dict[str, Any]:
        return {"count": len(results)}


def test_alone_there_is_nothing_to_share() -> None:
    assert share_of("anything") is None

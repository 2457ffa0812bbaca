"""Ranks tune together: the work is shared, the answer is one, and nobody waits for the dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tileops.autotuner.database import Answer, Measured
from tileops.autotuner.ranks import JointTuning, StoreLostError, joint_tuning, together

ROOT = Path(__file__).resolve().parents[2]
TIMES = [5.0, 4.0, 3.0, 9.0, 1.0, 2.0, 8.0, 7.0, 6.0, 2.5]
NAMES = [str(number) for number in range(10)]


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
    assert sorted(n for r in found for n in r["measured"]) == sorted(NAMES)
    assert sum(r["decided"] for r in found) == 1


def test_a_rank_that_dies_hangs_nobody(tmp_path: Path) -> None:
    found = run(tmp_path, [{"pause_s": 0.3}, {"die_after": 1}])
    assert found[1] is None
    survivor = found[0]
    assert survivor is not None
    assert survivor["answer"] == {"best": "4"}
    assert survivor["seconds"] < 30
    # What the dead one looked at died with it.
    assert sorted(survivor["measured"]) == sorted(NAMES)


def test_a_rank_that_dies_while_it_decides_is_replaced(tmp_path: Path) -> None:
    found = run(tmp_path, [{"die_deciding": True, "pause_s": 0.01}, {"pause_s": 0.6}])
    if found[0] is None:  # it was the first to be done
        assert found[1] is not None
        assert found[1]["answer"] == {"best": "4"}
    else:
        assert found[0]["answer"] == found[1]["answer"]  # type: ignore[index]


def test_a_rank_that_is_warm_hangs_nobody(tmp_path: Path) -> None:
    found = run(tmp_path, [{}, {"warm": True}])
    assert found[0] is not None
    assert found[0]["answer"] == {"best": "4"}
    assert found[0]["seconds"] < 5
    assert sorted(found[0]["measured"]) == sorted(NAMES)


def best(ms: float) -> Answer:
    return Answer.of({"config": Measured("ok", ms)})


class TestOneProcess:
    """What needs no second process: the protocol over a store in memory."""

    def make(self, rank: int, store: Any) -> JointTuning:
        return JointTuning(store, "one", rank, 2, silence_s=0.3)

    @pytest.fixture
    def store(self) -> Any:
        return dist.HashStore()

    def test_the_first_answer_stands(self, store: Any) -> None:
        first, second = self.make(0, store), self.make(1, store)
        assert first.answer() is None
        assert first.publish(best(1.0)) == best(1.0)
        assert second.publish(best(2.0)) == best(1.0)
        assert second.answer() == best(1.0)

    def test_a_late_rank_takes_the_answer_and_measures_nothing(self, store: Any) -> None:
        self.make(0, store).publish(best(3.0))

        work = Doing()
        assert together(self.make(1, store), NAMES[:5], work) == best(3.0)
        assert work.looked == []

    def test_claims_are_disjoint_and_complete(self, store: Any) -> None:
        first, second = self.make(0, store), self.make(1, store)
        taken = [first.claim(7, 3), second.claim(7, 3), first.claim(7, 3)]
        assert [list(numbers) for numbers in taken] == [[0, 1, 2], [3, 4, 5], [6]]
        assert not second.claim(7, 3)

    def test_a_rank_measures_its_fair_share_before_it_takes_more(self, store: Any) -> None:
        other = self.make(1, store)
        theirs: list[int] = []

        class Meeting(Doing):
            def measure(self) -> dict[str, Measured]:
                if not theirs:  # the other rank comes while this one measures
                    assert self.looked == NAMES[:4]
                    theirs.extend(other.claim(7, 2))
                    for number in theirs:
                        other.post(number, Measured("ok", float(number)))
                return super().measure()

        work = Meeting()
        work.chunk = 3
        assert len(together(self.make(0, store), NAMES[:7], work).outcomes) == 7
        assert (work.looked, theirs) == ([*NAMES[:4], "6"], [4, 5])

    def test_what_a_silent_rank_took_is_measured_by_the_one_that_decides(self, store: Any) -> None:
        silent = self.make(1, store)
        taken = silent.claim(4, 2)
        work = Doing()
        assert len(together(self.make(0, store), NAMES[:4], work).outcomes) == 4
        assert work.looked == ["2", "3", *map(str, taken)]

    def test_where_the_store_is_lost_a_rank_goes_on_alone(self, store: Any) -> None:
        class Lost(JointTuning):
            def post(self, number: int, result: Measured) -> None:
                raise StoreLostError("connection reset")

        work = Doing()
        assert len(together(Lost(store, "lost", 0, 2), NAMES[:5], work).outcomes) == 5
        assert work.looked == NAMES[:5]


class TestOrders:
    """Ranks may list the configs in any order, and know some of them already."""

    NAMES = ("a", "b", "c", "d")

    def together(
        self, store: Any, names: Any, known: Any = (), **more: Any
    ) -> tuple[Any, list[str]]:
        work = Naming()
        results = {name: Measured("ok", Naming.TIMES[name]) for name in known}
        joint = JointTuning(store, "one", 0, 2, silence_s=0.3)
        return together(joint, names, work, results, **more), work.looked

    def test_the_answer_is_one_whatever_the_order(self) -> None:
        store = dist.HashStore()
        first, looked = self.together(store, self.NAMES)
        assert sorted(looked) == list(self.NAMES)
        assert first.ranking == ["c", "a", "d", "b"]
        second, looked = self.together(store, self.NAMES[::-1])
        assert looked == []
        assert second == first
        assert second.outcomes["c"] == Measured("ok", 1.0)

    def test_what_is_known_is_not_looked_at_and_counts(self) -> None:
        answer, looked = self.together(dist.HashStore(), self.NAMES, known=("b", "c", "x"))
        assert sorted(looked) == ["a", "d"]
        assert answer.ranking == ["x", "c", "a", "d", "b"]
        assert set(answer.outcomes) == {*self.NAMES, "x"}

    def test_a_budget_ends_the_search_of_all(self) -> None:
        store = dist.HashStore()
        answer, looked = self.together(store, self.NAMES, deadline=0.0)
        assert looked == ["a"]
        assert answer == Answer({"a": Measured("ok", 2.0)}, ["a"])
        assert self.together(store, self.NAMES)[0] == answer

    def test_a_seed_shuffles_in_all_ranks_alike(self) -> None:
        orders = [
            self.together(dist.HashStore(), n, seed=3)[1] for n in (self.NAMES, self.NAMES[::-1])
        ]
        assert orders[0] == orders[1] != list(self.NAMES)


class Doing:
    """Work that notes what it was asked to look at."""

    chunk, effort = 1, 1.0

    def __init__(self) -> None:
        self.looked: list[str] = []

    def compile(self, names: Sequence[str]) -> Iterator[tuple[str, None]]:
        return ((name, None) for name in names)

    def check(self, names: Sequence[str], compiled: Iterator[tuple[str, None]]) -> None:
        self.looked += (name for name, _ in compiled)

    def measure(self) -> dict[str, Measured]:
        return {name: Measured("ok", float(name)) for name in self.looked}

    def decide(self, results: Mapping[str, Measured]) -> Answer:
        return Answer.of(results)


class Naming(Doing):
    """Work with a time for each config."""

    TIMES = {"a": 2.0, "b": 4.0, "c": 1.0, "d": 3.0, "x": 0.5}

    def measure(self) -> dict[str, Measured]:
        return {name: Measured("ok", self.TIMES[name]) for name in self.looked}


def test_alone_there_is_nothing_to_share() -> None:
    assert joint_tuning(lambda: "anything") is None

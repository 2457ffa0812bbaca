"""Tuning together: the ranks of a job share the configs and take one answer.

Ranks talk through the key-value store of the default process group, never through a collective.
So a rank that died, or that knows its answer already and does not come, keeps nobody waiting.
Ranks take the next configs that nobody took; one rank decides; every wait ends when the rank that
is waited for falls silent.
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import torch.distributed as dist

from tileops.autotuner.database import Answer, Measured

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from tileops.autotuner.search import Work

BEAT_SECONDS = 0.5
# A rank is presumed dead after this long without a heartbeat. Python threads of a busy process are
# late by less.
SILENCE_SECONDS = 15.0
_PAUSE_SECONDS = 0.02


class StoreLostError(Exception):
    """The store does not answer: the process that held it is gone."""


class JointTuning:
    """One tuning that several ranks do together, known to all by ``name``.

    ``name`` must be the same for the same tuning in every rank, and different for others.
    StoreLostError from any method where the store is gone.
    """

    def __init__(
        self, store: Store, name: str, rank: int, world: int, silence_s: float = SILENCE_SECONDS
    ) -> None:
        self._store = dist.distributed_c10d.PrefixStore(f"tileops/tune/{name}", store)
        self.rank = rank
        self.world = world
        self._silence_s = silence_s
        self._heard: dict[str, tuple[int, float]] = {}

    def _get(self, key: str) -> str | None:
        with _guarded():
            return self._store.get(key).decode() if self._store.check([key]) else None

    # -- the answer ------------------------------------------------------------------------------
    def answer(self) -> Answer | None:
        """What was published, or None."""
        found = self._get("answer")
        return None if found is None else _answer_in(found)

    def publish(self, answer: Answer) -> Answer:
        """Offer an answer; the one that stands, which is the first one offered."""
        with _guarded():
            stands = self._store.compare_set("answer", "", json.dumps(asdict(answer)))
            return _answer_in(stands)

    # -- the work --------------------------------------------------------------------------------
    def claim(self, count: int, most: int) -> range:
        """Up to ``most`` numbers below ``count`` for this rank; none where all are taken."""
        with _guarded():
            stop = self._store.add("next", most)
            numbers = range(min(stop - most, count), min(stop, count))
            for number in numbers:
                self._store.set(f"owner/{number}", str(self.rank))
        return numbers

    def post(self, number: int, result: Measured) -> None:
        """Tell the others the result of config ``number``."""
        with _guarded():
            self._store.set(f"result/{number}", json.dumps(asdict(result)))

    def collect(self, count: int) -> dict[int, Measured]:
        """All results that come, from owners that are alive; ends when an answer stands."""
        found: dict[int, Measured] = {}
        while self.answer() is None:
            is_waiting = False
            for number in range(count):
                if number not in found:
                    if (result := self._get(f"result/{number}")) is not None:
                        found[number] = Measured(**json.loads(result))
                    elif self._is_alive(self._get(f"owner/{number}")):
                        is_waiting = True
            if not is_waiting:
                return found
            time.sleep(_PAUSE_SECONDS)
        return found

    # -- who decides -----------------------------------------------------------------------------
    def decide(self, decision: Callable[[], Answer]) -> Answer:
        """The answer of all: made here by ``decision`` if no rank before this one is alive."""
        with _guarded():
            place = self._store.add("places", 1)
            self._store.set(f"place/{place}", str(self.rank))
        while True:
            if (found := self.answer()) is not None:
                return found
            before = (self._get(f"place/{other}") for other in range(1, place))
            if not any(self._is_alive(rank) for rank in before):
                return self.publish(decision())
            time.sleep(_PAUSE_SECONDS)

    # -- who is alive ----------------------------------------------------------------------------
    @contextmanager
    def beating(self) -> Iterator[None]:
        """Let the others see that this rank is at work, as long as the block runs."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.is_set():
                try:
                    self._store.add(f"beat/{self.rank}", 1)
                except RuntimeError:
                    return  # the store is gone, which the working thread finds out too
                stop.wait(BEAT_SECONDS)

        with _guarded():
            self._store.add(f"beat/{self.rank}", 1)
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(SILENCE_SECONDS)

    def _is_alive(self, rank: str | None) -> bool:
        """Whether a rank was heard of lately; None, nobody, is not alive."""
        if rank is None or rank == str(self.rank):
            return rank is not None
        with _guarded():
            beats = self._store.add(f"beat/{rank}", 0)
        now = time.monotonic()
        known = self._heard.get(rank)
        if known is None or known[0] != beats:
            self._heard[rank] = (beats, now)
            return True
        return now - known[1] < self._silence_s


def _answer_in(text: str | bytes) -> Answer:
    found = json.loads(text)
    outcomes = {name: Measured(**outcome) for name, outcome in found["outcomes"].items()}
    return Answer(outcomes, found["ranking"])


@contextmanager
def _guarded() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's errors of stores and networks are some
        raise StoreLostError(str(error)) from error


def joint_tuning(name: Callable[[], str]) -> JointTuning | None:
    """The tuning of this name by all ranks; None outside of a job of several ranks."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        return None
    store = dist.distributed_c10d._get_default_store()
    return JointTuning(store, name(), dist.get_rank(), dist.get_world_size())


def together(
    joint: JointTuning,
    names: Sequence[str],
    work: Work,
    known: Mapping[str, Measured] | None = None,
    *,
    seed: int | None = None,
    deadline: float = math.inf,
) -> Answer:
    """One answer for all ranks.

    ``names`` are the configs that this rank can look at, ``known`` results that need no work here;
    both together are the same configs in every rank. ``seed`` shuffles them, in all ranks alike.
    Each rank checks its fair share and times it, and then what others have not begun. One of them
    decides, and measures itself what dead ranks owe. Where the store is lost, this rank goes on
    alone. Ranks begin no more configs after the ``deadline``.
    """
    results = dict(known or {})
    order = sorted({*names, *results})
    if seed is not None:
        random.Random(seed).shuffle(order)

    def unknown(numbers: Iterable[int]) -> list[str]:
        return [order[n] for n in numbers if order[n] not in results]

    def answer() -> Answer:
        results.update({order[n]: found for n, found in joint.collect(len(order)).items()})
        return alone(order, work, results, deadline)

    try:
        if (stands := joint.answer()) is not None:
            return stands
        with joint.beating():
            taken: list[int] = []
            # A check is short beside the timing: the first rank could check everything, and would
            # then time it alone.
            most = -(-len(order) // joint.world)
            while True:
                numbers = joint.claim(len(order), min(work.chunk, most - len(taken)))
                if fresh := unknown(numbers):
                    work.check(fresh, work.compile(fresh))
                taken += numbers
                if numbers and len(taken) < most and time.monotonic() < deadline:
                    continue
                if fresh := unknown(taken):
                    found = work.measure()
                    results.update({name: found[name] for name in fresh})
                for number in taken:
                    joint.post(number, results[order[number]])
                if not numbers or time.monotonic() >= deadline:
                    return joint.decide(answer)
                taken, most = [], work.chunk
    except StoreLostError:
        return alone(order, work, results, deadline)


def alone(
    names: Sequence[str],
    work: Work,
    results: Mapping[str, Measured] | None = None,
    deadline: float = math.inf,
) -> Answer:
    """The answer over ``names``; those that have no result are measured here.

    After the ``deadline`` they are left out, unless there are no results at all.
    """
    found = dict(results or {})
    missing = [name for name in names if name not in found]
    if missing and not (found and time.monotonic() >= deadline):
        work.check(missing, work.compile(missing))
        fresh = work.measure()
        found.update({name: fresh[name] for name in missing})
    return work.decide(found)

"""Owns tuning together: the ranks of a job share the configs and take one answer.

All goes through the key-value store of the default process group, never through a collective: a
rank that died, or that knows its answer already and does not come, keeps nobody waiting. Ranks that
come take the next configs that nobody took; one of them decides; every wait ends when the rank
waited for falls silent.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch.distributed as dist

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

Json = dict[str, Any]

BEAT_SECONDS = 0.5
# A rank is held for dead when it has not been heard of for so long; Python threads of a busy
# process are late by less.
SILENCE_SECONDS = 15.0
_PAUSE_SECONDS = 0.02


class StoreLostError(Exception):
    """The store does not answer: the process that held it is gone."""


class Share:
    """One tuning that several ranks do together, known to all by ``name``.

    ``name`` must be the same for the same tuning in every rank, and different for others.
    StoreLostError from any method where the store is gone.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        rank: int,
        world: int,
        silence_s: float = SILENCE_SECONDS,
    ) -> None:
        self._store = dist.distributed_c10d.PrefixStore(f"tileops/tune/{name}", store)
        self.rank = rank
        self.world = world
        self._silence_s = silence_s
        self._heard: dict[int, tuple[int, float]] = {}

    # -- the answer ------------------------------------------------------------------------------
    def answer(self) -> Json | None:
        """What was published, or None."""
        with _guarded():
            if not self._store.check(["answer"]):
                return None
            return dict(json.loads(self._store.get("answer")))

    def publish(self, answer: Json) -> Json:
        """Offer an answer; the one that stands, which is the first one offered."""
        with _guarded():
            stands = self._store.compare_set("answer", "", json.dumps(answer))
            return dict(json.loads(stands))

    # -- the work --------------------------------------------------------------------------------
    def claim(self, count: int, most: int) -> range:
        """Up to ``most`` numbers below ``count`` for this rank; none where all are taken."""
        with _guarded():
            stop = self._store.add("next", most)
            numbers = range(min(stop - most, count), min(stop, count))
            for number in numbers:
                self._store.set(f"owner/{number}", str(self.rank))
        return numbers

    def post(self, number: int, result: Json) -> None:
        """Tell the others what was found of config ``number``."""
        with _guarded():
            self._store.set(f"result/{number}", json.dumps(result))

    def collect(self, count: int) -> dict[int, Json]:
        """All results that come, from owners that are alive; ends when an answer stands."""
        found: dict[int, Json] = {}
        while self.answer() is None:
            waiting = False
            for number in range(count):
                if number not in found:
                    result = self._result(number)
                    if result is not None:
                        found[number] = result
                    elif self._is_alive(self._owner(number)):
                        waiting = True
            if not waiting:
                return found
            time.sleep(_PAUSE_SECONDS)
        return found

    def _result(self, number: int) -> Json | None:
        with _guarded():
            if not self._store.check([f"result/{number}"]):
                return None
            return dict(json.loads(self._store.get(f"result/{number}")))

    def _owner(self, number: int) -> int | None:
        with _guarded():
            key = f"owner/{number}"
            return int(self._store.get(key)) if self._store.check([key]) else None

    # -- who decides -----------------------------------------------------------------------------
    def decide(self, decision: Callable[[], Json]) -> Json:
        """The answer of all: made here by ``decision`` if no rank before this one is alive."""
        with _guarded():
            place = self._store.add("places", 1)
            self._store.set(f"place/{place}", str(self.rank))
        while True:
            found = self.answer()
            if found is not None:
                return found
            if not any(self._is_alive(self._at(other)) for other in range(1, place)):
                return self.publish(decision())
            time.sleep(_PAUSE_SECONDS)

    def _at(self, place: int) -> int | None:
        with _guarded():
            key = f"place/{place}"
            return int(self._store.get(key)) if self._store.check([key]) else None

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

    def _is_alive(self, rank: int | None) -> bool:
        """Whether a rank was heard of lately; None, nobody, is not alive."""
        if rank is None:
            return False
        if rank == self.rank:
            return True
        with _guarded():
            beats = self._store.add(f"beat/{rank}", 0)
        now = time.monotonic()
        known = self._heard.get(rank)
        if known is None or known[0] != beats:
            self._heard[rank] = (beats, now)
            return True
        return now - known[1] < self._silence_s


@contextmanager
def _guarded() -> Iterator[None]:
    try:
        yield
    except (dist.DistStoreError, dist.DistNetworkError) as error:
        raise StoreLostError(str(error)) from error
    except RuntimeError as error:  # older torch has no class of its own for a lost connection
        raise StoreLostError(str(error)) from error


def world() -> int:
    """How many ranks the job of this process has; 1 where it is none."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def share_of(name: str) -> Share | None:
    """The share of this process in tuning ``name``; None where it is no rank of several."""
    if world() < 2:
        return None
    store = dist.distributed_c10d._get_default_store()
    return Share(store, name, dist.get_rank(), dist.get_world_size())


class Work(Protocol):
    """What a rank can do for a tuning; configs are known by number."""

    def look(self, numbers: Sequence[int]) -> None:
        """Compile these configs and run each for the first time."""

    def results(self) -> dict[int, Json]:
        """Time what was looked at and is not timed yet; a result for all numbers looked at."""

    def decide(self, results: dict[int, Json]) -> Json:
        """The answer, from the results of all configs."""


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Part:
    """A rank's part in a tuning whose configs have names: each rank numbers them its own way.

    ``names``: of the configs of this rank's work, by its numbers. ``known``: results by name that
    need no work here; with ``names`` they are all configs of the tuning. ``seed`` shuffles them, in
    all ranks alike. From when ``is_over`` says so, no further config is begun.
    """

    share: Share
    names: Sequence[str]
    known: Mapping[str, Json] = field(default_factory=dict)
    seed: int | None = None
    is_over: Callable[[], bool] = _never

    def together(self, work: Work, chunk: int = 1) -> Json:
        """The answer of all ranks, as ``work`` gives answers, by this rank's numbers."""
        order = sorted({*self.names, *self.known})
        if self.seed is not None:
            random.Random(self.seed).shuffle(order)
        named = _NamedWork(work, order, self.names, self.known)
        return self.numbered(together(self.share, len(order), named, chunk, self.is_over))

    def numbered(self, answer: Json) -> Json:
        """An answer by name as one by this rank's numbers, less configs that have none."""
        places = {name: place for place, name in enumerate(self.names)}
        outcomes = answer["outcomes"]
        return {
            "outcomes": {str(places[n]): value for n, value in outcomes.items() if n in places},
            "ranking": [places[n] for n in answer["ranking"] if n in places],
        }


class _NamedWork:
    """Work by the places of ``order``, which is the same in all ranks; its answer is by name."""

    def __init__(
        self, work: Work, order: Sequence[str], names: Sequence[str], known: Mapping[str, Json]
    ) -> None:
        self._work = work
        self._order = order
        self._names = names
        self._places = {name: place for place, name in enumerate(names)}
        self._known = known
        self._looked: list[int] = []

    def look(self, numbers: Sequence[int]) -> None:
        """As ``Work.look``; what is known needs none."""
        self._looked += numbers
        names = [self._order[number] for number in numbers]
        places = [self._places[name] for name in names if name not in self._known]
        if places:
            self._work.look(places)

    def results(self) -> dict[int, Json]:
        """As ``Work.results``."""
        names = {number: self._order[number] for number in self._looked}
        is_new = any(name not in self._known for name in names.values())
        found = self._work.results() if is_new else {}
        return {
            number: self._known[name] if name in self._known else found[self._places[name]]
            for number, name in names.items()
        }

    def decide(self, results: dict[int, Json]) -> Json:
        """As ``Work.decide``, by name."""
        by_name = {self._order[number]: result for number, result in results.items()}
        answer = self._work.decide(
            {self._places[name]: r for name, r in by_name.items() if name in self._places}
        )
        outcomes = {self._names[int(n)]: value for n, value in answer["outcomes"].items()}
        ranking = [self._names[n] for n in answer["ranking"]]
        return {"outcomes": {**by_name, **outcomes}, "ranking": ranking}


def together(
    share: Share,
    count: int,
    work: Work,
    chunk: int = 1,
    is_over: Callable[[], bool] = _never,
) -> Json:
    """One answer for all ranks over ``count`` configs.

    Each rank looks at its fair share and times it, and then at what others have not begun; one of
    them decides, and measures itself what dead ranks owe. Where the store is lost, this rank goes
    on alone. Ranks take no more configs when ``is_over``.
    """
    own: dict[int, Json] = {}
    try:
        stands = share.answer()
        if stands is not None:
            return stands
        with share.beating():
            # A look is short beside the timing: who is first could look at all there is, and would
            # then time it alone.
            most = -(-count // share.world)
            while taken := _look(share, count, work, chunk, most, is_over):
                found = work.results()
                own.update({number: found[number] for number in taken})
                for number in taken:
                    share.post(number, own[number])
                if is_over():
                    break
                most = chunk
            return share.decide(lambda: alone(count, work, share.collect(count), is_over))
    except StoreLostError:
        return alone(count, work, own, is_over)


def _look(
    share: Share, count: int, work: Work, chunk: int, most: int, is_over: Callable[[], bool]
) -> list[int]:
    """Look at up to ``most`` configs, ``chunk`` at a time; their numbers."""
    taken: list[int] = []
    while len(taken) < most:
        numbers = share.claim(count, min(chunk, most - len(taken)))
        if not numbers:
            break
        work.look(numbers)
        taken += numbers
        if is_over():
            break
    return taken


def alone(
    count: int,
    work: Work,
    results: Mapping[int, Json] | None = None,
    is_over: Callable[[], bool] = _never,
) -> Json:
    """The answer over ``count`` configs, those that have no result measured here.

    When ``is_over`` those are left out, unless there are no results at all.
    """
    found = dict(results or {})
    missing = [number for number in range(count) if number not in found]
    if found and is_over():
        return work.decide(found)
    if missing == list(range(count)):
        work.look(range(count))
    else:
        for number in missing:
            work.look(range(number, number + 1))
    if missing:
        fresh = work.results()
        found.update({number: fresh[number] for number in missing})
    return work.decide(found)

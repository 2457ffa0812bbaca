"""Owns one tuning from configs to their ranking: workers compile, benches measure, ranks share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from tileops import log
from tileops.autotuner.benches import (
    Bench,
    ChildBench,
    LocalBench,
    NoSecondContextError,
)
from tileops.autotuner.checking import Checker, Reference
from tileops.autotuner.compilers import Compiled, CompileJob, CompilePool, worker_count
from tileops.autotuner.measuring import Measured, Plan, Session
from tileops.autotuner.ranks import Json, Share, alone, together

# Cards of one model differ by a few percent: what was measured on several is raced again on one.
_BETWEEN_CARDS = 0.06


@dataclass(frozen=True)
class Setting:
    """What a tuning needs besides its configs.

    ``devices``: where to measure; the first one is the caller's and decides. ``inputs`` are the
    arguments of a call. ``cache_dir`` is where workers compile to (empty: nothing is kept).
    ``backend`` is the profiler's. ``isolated`` false measures in this process.
    """

    devices: tuple[torch.device, ...]
    inputs: Sequence[Any]
    cache_dir: str
    reference: Reference = field(default_factory=Reference)
    plan: Plan = field(default_factory=Plan)
    compile_timeout_s: float = 300.0
    workers: int | None = None
    backend: str = "event"
    isolated: bool = True


@dataclass(frozen=True)
class Outcome:
    """What is known of one config: its measurement, the entry it compiled to, seconds, where."""

    measured: Measured
    hash: str = ""
    compile_s: float = 0.0
    where: str = ""

    def to_json(self) -> Json:
        """The outcome as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> Outcome:
        """The outcome that ``to_json`` gave."""
        return cls(**{**value, "measured": Measured(**value["measured"])})


@dataclass(frozen=True)
class Findings:
    """Outcomes by number of config, and the numbers of those that are right, fastest first."""

    outcomes: tuple[Outcome, ...]
    ranking: tuple[int, ...]


Progress = Callable[[int, Outcome], None]


def find_fastest(
    jobs: Sequence[CompileJob],
    setting: Setting,
    *,
    share: Share | None = None,
    progress: Progress | None = None,
    known: Mapping[int, Compiled] | None = None,
) -> Findings:
    """Compile and measure ``jobs``; with a ``share``, together with the other ranks.

    ``known`` are jobs, by number, whose result is in the cache already.

    What a config does is in its outcome; errors raised here are faults of the machine or of the
    reference program. ``progress`` hears of each outcome, from any thread, one at a time.
    """
    rank = None if share is None else share.rank
    if share is not None and setting.workers is None:
        # The ranks of a host share its processors; those of other hosts cannot be told apart.
        setting = replace(setting, workers=max(1, worker_count() // share.world))
    with Campaign(jobs, setting, rank, progress, known) as work:
        if share is None:
            answer = alone(len(jobs), work)
        else:
            answer = together(share, len(jobs), work, chunk=work.chunk())
    outcomes = tuple(Outcome.from_json(answer["outcomes"][str(n)]) for n in range(len(jobs)))
    return Findings(outcomes, tuple(answer["ranking"]))


class Campaign:
    """The work of one process in a tuning (see ``ranks.Work``)."""

    def __init__(
        self,
        jobs: Sequence[CompileJob],
        setting: Setting,
        rank: int | None = None,
        progress: Progress | None = None,
        known: Mapping[int, Compiled] | None = None,
    ) -> None:
        self._jobs = list(jobs)
        self._known = dict(known or {})
        if not all(job.movable for job in self._jobs):
            setting = replace(setting, isolated=False, devices=setting.devices[:1])
        self._setting = setting
        self._place = "" if rank is None else f"rank {rank} "
        # Shares of the work are measured on several cards; their best race once more on one card.
        rules = setting.plan.rules
        self._is_shared = rank is not None or len(setting.devices) > 1
        self._plan = setting.plan
        if self._is_shared:
            self._plan = replace(setting.plan, rules=replace(rules, finalists=0))
        self._progress = progress or (lambda number, outcome: None)
        self._guard = threading.Lock()
        self._pool = CompilePool(setting.cache_dir, setting.compile_timeout_s, setting.workers)
        self._benches: list[tuple[str, Bench]] | None = None
        self._sessions: dict[str, Session] = {}
        self._started: list[ChildBench] = []
        self.outcomes: dict[int, Outcome] = {}
        try:
            self._start_children()
            self._pool.start(len(self._jobs) - len(self._known))
        except BaseException:
            self.close()
            raise

    def chunk(self) -> int:
        """How many configs a rank takes at a time: enough to keep its workers busy."""
        return max(1, min(worker_count(), -(-len(self._jobs) // 4)))

    # -- the benches -----------------------------------------------------------------------------
    def _start_children(self) -> None:
        for device in self._setting.devices if self._setting.isolated else ():
            bench = ChildBench(device, self._setting.inputs, backend=self._setting.backend)
            self._started.append(bench)
            with suppress(NoSecondContextError):  # opening it says so again
                bench.start()

    def _ready(self) -> dict[str, Session]:
        """A session for each device that can be used, the caller's device first."""
        if self._benches is None:
            self._benches = self._open()
            for label, bench in self._benches:
                self._sessions[label] = self._session(label, bench)
        return self._sessions

    def _open(self) -> list[tuple[str, Bench]]:
        opened: list[tuple[str, Bench]] = []
        for number, device in enumerate(self._setting.devices):
            try:
                if not self._setting.isolated:
                    raise NoSecondContextError("isolation is off")
                self._started[number].open()
                opened.append((f"{self._place}{device}", self._started[number]))
            except NoSecondContextError as error:
                if number > 0:
                    log.warn_once(
                        f"tune.skip.{device}", f"tuning goes on without {device}: {error}"
                    )
                    continue
                if self._setting.isolated:
                    log.warn_once(
                        "tune.local",
                        "tuning measures in this process, where a config that fails can take it "
                        f"down: {error}",
                    )
                local = LocalBench(device, self._setting.inputs, backend=self._setting.backend)
                opened.append((f"{self._place}{device}", local))
        return opened

    def _session(self, label: str, bench: Bench) -> Session:
        checker = Checker(self._setting.reference, bench.inputs)
        return Session(
            bench,
            checker,
            self._plan,
            lambda name, measured: self._note(int(name), measured, label),
        )

    def _note(self, number: int, measured: Measured, where: str) -> None:
        with self._guard:
            known = self.outcomes.get(number, Outcome(measured))
            outcome = Outcome(measured, known.hash, known.compile_s, where)
            self.outcomes[number] = outcome
            self._progress(number, outcome)

    # -- ranks.Work ------------------------------------------------------------------------------
    def look(self, numbers: Iterable[int]) -> None:
        """Compile these configs, and run each once on the next free device."""
        done = self._compiled(numbers)
        taking = threading.Lock()

        def serve(session: Session) -> None:
            while True:
                with taking:
                    found = next(done, None)
                if found is None:
                    return
                number, compiled = found
                if compiled.loadable is None:
                    measured = Measured(compiled.status, reason=compiled.reason)
                    self._note(number, measured, "")
                    continue
                with self._guard:
                    self.outcomes[number] = Outcome(
                        Measured("ok"), compiled.hash, compiled.compile_s
                    )
                session.add(str(number), compiled.loadable)

        _in_parallel(serve, list(self._ready().values()))

    def _compiled(self, numbers: Iterable[int]) -> Iterator[tuple[int, Compiled]]:
        """What these configs compile to, with their numbers, as it comes."""
        wanted = list(numbers)
        for number in wanted:
            if number in self._known:
                yield number, self._known[number]
        new = [number for number in wanted if number not in self._known]
        for place, compiled in self._pool.compile([self._jobs[n] for n in new]):
            self._known[new[place]] = compiled
            yield new[place], compiled

    def results(self) -> dict[int, Json]:
        """Time what was looked at, each device its own share."""
        _in_parallel(lambda session: session.finish(), list(self._ready().values()))
        return {number: outcome.to_json() for number, outcome in self.outcomes.items()}

    def decide(self, results: dict[int, Json]) -> Json:
        """The ranking; what several devices measured is raced again on the first one here."""
        self.outcomes.update({n: Outcome.from_json(value) for n, value in results.items()})
        ranking = self._ranking()
        if self._is_shared and len(ranking) > 1:
            ranking = self._final(ranking)
        outcomes = {str(n): outcome.to_json() for n, outcome in self.outcomes.items()}
        return {"outcomes": outcomes, "ranking": ranking}

    def _ranking(self) -> list[int]:
        right = [n for n, o in self.outcomes.items() if o.measured.latency_ms is not None]
        return sorted(right, key=self._latency)

    def _latency(self, number: int) -> float:
        return self.outcomes[number].measured.latency_ms or 0.0

    def _final(self, ranking: list[int]) -> list[int]:
        limit = self._latency(ranking[0]) * (1 + _BETWEEN_CARDS)
        finalists = [n for n in ranking if self._latency(n) <= limit]
        finalists = finalists[: self._setting.plan.rules.finalists]
        self._ready()
        assert self._benches is not None
        session = self._session(*self._benches[0])
        for number, compiled in self._compiled(finalists):
            if compiled.loadable is not None:
                session.add(str(number), compiled.loadable)
        order = [int(name) for name in session.finish()]
        return [*order, *(n for n in self._ranking() if n not in order)]

    # -- the end ---------------------------------------------------------------------------------
    def close(self) -> None:
        """End the workers and the children."""
        self._pool.close()
        for bench in self._started:
            bench.close()
        for _, opened in self._benches or []:
            if isinstance(opened, LocalBench):
                opened.close()
        # Sessions know this object: what they hold on the device is to go now, not at a collection.
        self._sessions.clear()
        self._benches = None

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def _in_parallel(do: Callable[[Session], object], sessions: Sequence[Session]) -> None:
    if len(sessions) == 1:
        do(sessions[0])
        return
    with ThreadPoolExecutor(max_workers=len(sessions)) as pool:
        for result in [pool.submit(do, session) for session in sessions]:
            result.result()

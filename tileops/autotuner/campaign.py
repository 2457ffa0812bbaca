"""Owns one tuning from configs to their ranking: workers compile, benches measure, ranks share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from tileops.autotuner.benches import Bench
from tileops.autotuner.checking import Checker, Reference
from tileops.autotuner.compilers import Compiled, CompileJob, worker_count
from tileops.autotuner.measuring import Measured, Plan, Session
from tileops.autotuner.ranks import Json, Part, alone
from tileops.autotuner.workshop import Workshop

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
    default: int | None = None


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

    @classmethod
    def of(cls, answer: Json, count: int) -> Findings:
        """What an answer says of ``count`` configs; UNKNOWN of those that it leaves out."""
        found = answer["outcomes"]
        outcomes = (
            Outcome.from_json(found[str(n)]) if str(n) in found else UNKNOWN for n in range(count)
        )
        return cls(tuple(outcomes), tuple(answer["ranking"]))


# Of a config that no rank had the time to measure.
UNKNOWN = Outcome(Measured("unknown", reason="not measured"))

Progress = Callable[[int, Outcome], None]


def find_fastest(
    jobs: Sequence[CompileJob],
    setting: Setting,
    *,
    part: Part | None = None,
    progress: Progress | None = None,
    known: Mapping[int, Compiled] | None = None,
    shop: Workshop | None = None,
) -> Findings:
    """Compile and measure ``jobs``; with a ``part``, together with the other ranks.

    ``known`` are jobs, by number, whose result is in the cache already. ``shop`` serves several
    calls of this function with one set of processes; it decides where and on what is measured.
    What a config does is in its outcome; errors raised here are faults of the machine or of the
    reference program. ``progress`` hears of each outcome, from any thread, one at a time.
    """
    with ExitStack() as stack:
        if shop is None or not all(job.movable for job in jobs):
            shop = stack.enter_context(workshop_for(jobs, setting, part))
        rank = None if part is None else part.share.rank
        work = stack.enter_context(Campaign(jobs, setting, shop, rank, progress, known))
        answer = alone(len(jobs), work) if part is None else part.together(work, work.chunk())
    return Findings.of(answer, len(jobs))


def workshop_for(
    jobs: Sequence[CompileJob], setting: Setting, part: Part | None = None
) -> Workshop:
    """The processes that ``find_fastest`` needs for these jobs."""
    is_movable = all(job.movable for job in jobs)
    workers = setting.workers
    if part is not None and workers is None:
        # The ranks of a host share its processors; those of other hosts cannot be told apart.
        workers = max(1, worker_count() // part.share.world)
    return Workshop(
        setting.devices if is_movable else setting.devices[:1],
        setting.inputs,
        setting.cache_dir,
        compile_timeout_s=setting.compile_timeout_s,
        workers=workers,
        backend=setting.backend,
        isolated=setting.isolated and is_movable,
    )


class Campaign:
    """The work of one process in a tuning (see ``ranks.Work``)."""

    def __init__(
        self,
        jobs: Sequence[CompileJob],
        setting: Setting,
        shop: Workshop,
        rank: int | None = None,
        progress: Progress | None = None,
        known: Mapping[int, Compiled] | None = None,
    ) -> None:
        self._jobs = list(jobs)
        self._known = dict(known or {})
        self._shop = shop
        self._reference = setting.reference
        self._rank = rank
        # Shares of the work are measured on several cards; their best race once more on one card.
        rules = setting.plan.rules
        self._default = setting.default
        self._is_shared = rank is not None or len(setting.devices) > 1
        self._rules = rules
        self._plan = setting.plan
        if self._is_shared:
            self._plan = replace(setting.plan, rules=replace(rules, finalists=0))
        self._progress = progress or (lambda number, outcome: None)
        self._guard = threading.Lock()
        self._sessions: list[Session] | None = None
        self.outcomes: dict[int, Outcome] = {}
        shop.start(len(self._jobs) - len(self._known))

    def chunk(self) -> int:
        """How many configs a rank takes at a time: enough to keep its workers busy."""
        return max(1, min(worker_count(), -(-len(self._jobs) // 4)))

    def _ready(self) -> list[Session]:
        """A session for each device that can be used, the caller's device first."""
        if self._sessions is None:
            self._sessions = [self._session(*found) for found in self._shop.benches()]
        return self._sessions

    def _session(self, device: str, bench: Bench) -> Session:
        where = device if self._rank is None else f"rank {self._rank} {device}"
        return Session(
            bench,
            Checker(self._reference, bench.inputs),
            self._plan,
            lambda name, measured: self._note(_number_of(name), measured, where),
            lambda name: _number_of(name) == self._default,
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
        wanted = list(numbers)
        done = self._compiled(wanted)
        taking = threading.Lock()
        sessions = self._usable()
        # A look is short beside the timing, which each device does of what it looked at.
        most = -(-len(wanted) // len(sessions))

        def serve(session: Session) -> None:
            looked = 0
            while looked < most and not (session.is_gone and len(sessions) > 1):
                with taking:
                    found = next(done, None)
                if found is None:
                    return
                looked += self._add(session, *found)

        _in_parallel(serve, sessions)
        for found in done:  # the share of a device that is gone
            self._add(self._usable()[0], *found)
        self._rescue()

    def _add(self, session: Session, number: int, compiled: Compiled) -> bool:
        """Let a session look at a config; False for one that did not compile."""
        if compiled.loadable is None:
            self._note(number, Measured(compiled.status, reason=compiled.reason), "")
            return False
        with self._guard:
            self.outcomes[number] = Outcome(Measured("ok"), compiled.hash, compiled.compile_s)
        session.add(_name(number, compiled), compiled.loadable)
        return True

    def _usable(self) -> list[Session]:
        """The sessions whose device is there; one at least."""
        return [s for s in self._ready() if not s.is_gone] or self._ready()[:1]

    def _rescue(self) -> bool:
        """Let a device that is there look at what others left; whether they left anything."""
        found = False
        while not (session := self._usable()[0]).is_gone:
            lost = [item for s in self._ready() for item in s.take_lost().items()]
            if not lost:
                break
            found = True
            for name, loadable in lost:
                session.add(name, loadable)
        return found

    def _compiled(self, numbers: Iterable[int]) -> Iterator[tuple[int, Compiled]]:
        """What these configs compile to, with their numbers, as it comes."""
        wanted = list(numbers)
        for number in wanted:
            if number in self._known:
                yield number, self._known[number]
        new = [number for number in wanted if number not in self._known]
        for place, compiled in self._shop.pool.compile([self._jobs[n] for n in new]):
            self._known[new[place]] = compiled
            yield new[place], compiled

    def results(self) -> dict[int, Json]:
        """Time what was looked at since the last time, each device its own share."""
        is_left = True
        while is_left:
            _in_parallel(lambda session: session.finish(), self._ready())
            is_left = self._rescue()
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
        finalists = finalists[: self._rules.finalists]
        place = next((n for n, s in enumerate(self._ready()) if not s.is_gone), 0)
        session = self._session(*self._shop.benches()[place])
        before = dict(self.outcomes)
        for number, compiled in self._compiled(finalists):
            if compiled.loadable is not None:
                session.add(_name(number, compiled), compiled.loadable)
        order = [_number_of(name) for name in session.finish()]
        if session.is_gone:  # what was measured before it went holds
            self.outcomes = before
            return ranking
        return [*order, *(n for n in self._ranking() if n not in order)]

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *unused: object) -> None:
        # Sessions know this object: what they hold on the device is to go now, not at a collection.
        self._sessions = None


def _name(number: int, compiled: Compiled) -> str:
    # A bench that serves several campaigns must not take one's config for another's.
    return f"{number}.{compiled.hash}"


def _number_of(name: str) -> int:
    return int(name.partition(".")[0])


def _in_parallel(do: Callable[[Session], object], sessions: Sequence[Session]) -> None:
    if len(sessions) == 1:
        do(sessions[0])
        return
    with ThreadPoolExecutor(max_workers=len(sessions)) as pool:
        for result in [pool.submit(do, session) for session in sessions]:
            result.result()

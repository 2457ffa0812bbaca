"""Owns the answer to one question: which config is best here, from the records or by measuring."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tileops import counters, log, settings
from tileops.autotuner import agreeing
from tileops.autotuner import search as searches
from tileops.autotuner.arguments import check_devices, errors_of
from tileops.autotuner.campaign import UNKNOWN, Findings, Outcome, Setting, find_fastest
from tileops.autotuner.checking import Checker, Reference, ReferenceFailedError
from tileops.autotuner.database import Best, Record, Row, TuningKey, words
from tileops.autotuner.evidence import all_failed, preferred
from tileops.autotuner.measuring import Plan
from tileops.autotuner.param import ProfileArgs
from tileops.autotuner.preparing import prepare
from tileops.autotuner.progress import Bar
from tileops.autotuner.ranks import Part, Share, alone
from tileops.autotuner.rounds import Rules
from tileops.autotuner.spaces import Config, canonical, describe, with_default
from tileops.autotuner.trying import Candidate, Timer, TimerWork, copies
from tileops.autotuner.workshop import Workshop
from tileops.cache.directory import resolve
from tileops.errors import ArgumentError, CompileMissError, TileopsError
from tileops.ir.program import Program
from tileops.jit.provider import Build
from tileops.op.registration import digest_of
from tileops.profiler import do_bench
from tileops.target import Target

# A tuning may take long; who waits for another's gives up after this and tunes too.
_LOCK_SECONDS = 3600.0
_TIMER_RUNS = 9  # calls of a user's timer at the full effort of a search by halving


@dataclass(frozen=True)
class Manner:
    """How a tuning searches: see ``autotune`` for each."""

    profile: ProfileArgs = field(default_factory=ProfileArgs)
    early_stop_factor: float | None = None
    timer: Timer | None = None
    search: str = "exhaustive"
    budget: float | None = None
    tune: str = "first_call"
    devices: str | Sequence[Any] | None = None
    isolated: bool = True

    @property
    def reference(self) -> Reference:
        """What results are compared with."""
        profile = self.profile
        return Reference(
            profile.ref_prog if profile.checks else None,
            profile.manual_check_prog,
            profile.rtol,
            profile.atol,
            profile.max_mismatched_ratio,
        )


@dataclass(frozen=True)
class Question:
    """What is to be tuned: a program under several configs, for one key on one device.

    ``trace`` gives the program under a config; ``inputs`` makes arguments of a call of a traced
    program. ``default`` is the config that runs without tuning, None where there is none.
    ``shares``: what was measured for other sizes or arguments of the same program is good here.
    """

    key: TuningKey
    configs: Sequence[Config]
    default: Config | None
    trace: Callable[[Config], Program]
    inputs: Callable[[Program], Sequence[Any]]
    target: Target
    device: torch.device
    build: Build
    sizes: Mapping[str, int] = field(default_factory=dict)
    shares: bool = False


@dataclass(frozen=True)
class Decision:
    """The config to run. ``latency`` None: it was not tuned."""

    config: Config
    latency: float | None
    ref_latency: float | None = None


def decide(question: Question, manner: Manner) -> Decision:
    """The best config: as recorded, else measured now.

    TileopsError listing the reasons where no config is right. CompileMissError where a measurement
    would be needed in strict mode or under graph capture.
    """
    configs = with_default(question.configs, question.default)
    question = replace(question, configs=configs)
    record = Record(question.key)
    check = manner.reference.identity
    share = _share(question, check)
    found = _recorded(question, record, check)
    if found is not None:
        return found if share is None else _agree(share, question, record, found)
    if not agreeing.is_settled(share):  # else nothing is measured
        if manner.tune == "never":
            return _untuned(question)
        _refuse_where_forbidden(question)
    if share is not None:  # the ranks take part together: none may wait for another's lock
        return _tune(question, manner, record, share)
    with record.alone(_LOCK_SECONDS):
        found = _recorded(question, record, check)
        return found if found is not None else _tune(question, manner, record, None)


def space_digest(question: Question) -> str:
    """Tells one list of configs from another, whatever its order."""
    text = "\n".join(sorted(canonical(c) for c in question.configs))
    return hashlib.sha256(text.encode()).hexdigest()


def _share(question: Question, check: str) -> Share | None:
    if not agreeing.has_ranks():
        return None
    default = question.default if question.default is not None else question.configs[0]
    digest = "" if question.shares else _digest(question, default)
    return agreeing.share_for(question, space_digest(question), check, digest)


def _agree(share: Share, question: Question, record: Record, found: Decision) -> Decision:
    """A rank that knows the answer gives it to the others, and takes theirs if that stands."""
    best = record.best()
    assert best is not None
    name, latency = agreeing.tell(share, best, record.rows())
    config = next((c for c in question.configs if canonical(c) == name), found.config)
    return found if config is found.config else Decision(config, latency)


def _digest(question: Question, config: Config) -> str:
    """That of the program under a config; empty where it is no program."""
    try:
        return digest_of(question.trace(config), 64)
    except Exception:
        return ""


def _recorded(question: Question, record: Record, check: str) -> Decision | None:
    """The recorded winner, where it won in this space and its program and check are the same."""
    best = record.best()
    if best is None or best.space != space_digest(question) or best.check != check:
        return None
    for config in question.configs:
        if canonical(config) == canonical(best.config):
            is_same = question.shares or _digest(question, config) == best.digest
            return Decision(config, best.latency, best.ref_latency) if is_same else None
    return None


def _untuned(question: Question) -> Decision:
    config = question.default if question.default is not None else question.configs[0]
    log.warn_once(
        f"tune.never.{question.key.op}",
        f"{question.key.op} is not tuned for these arguments and tune='never': it runs with "
        f"{describe(config)}",
    )
    return Decision(config, None)


def _refuse_where_forbidden(question: Question) -> None:
    reason = None
    if settings.current().strict:
        reason = "strict mode allows no measurement"
    elif question.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        reason = "a stream under capture allows no measurement"
    if reason is not None:
        facts = question.key.facts
        parts = [words(facts.get(name)) for name in ("static", "sizes", "bucket")]
        key = " ".join(part for part in parts if part != "-")
        raise CompileMissError(
            f"op {question.key.op} is not tuned for {key or 'its arguments'} on "
            f"{facts.get('device', question.device)}, and {reason}; call it once before, give its "
            "configuration, or use tune='never'"
        )


def _cache_dir() -> str:
    directory = resolve(settings.current()).private
    return "" if directory is None else str(directory.root)


# -- measuring -------------------------------------------------------------------------------------
def _tune(question: Question, manner: Manner, record: Record, share: Share | None) -> Decision:
    try:
        with counters.timed("tune"):
            return _Tuning(question, manner, record, share).run()
    except ReferenceFailedError as error:
        raise ArgumentError(f"op {question.key.op}: {error}") from error


class _Tuning:
    """One tuning, from the traces of its configs to the record of its winner."""

    def __init__(
        self, question: Question, manner: Manner, record: Record, share: Share | None
    ) -> None:
        self.question = question
        self.manner = manner
        self.record = record
        self.share = share
        self.rows: dict[int, Row] = {}
        self.candidates: dict[int, Candidate] = {}
        self.digests: dict[int, str] = {}
        self.check = manner.reference.identity
        self._kept: dict[int, Row] = {}
        self._ranking: list[int] = []
        self._beaten: set[int] = set()  # by another config in rounds that both were in
        self._shop: Workshop | None = None
        self._part: Part | None = None

    def run(self) -> Decision:
        """Measure what is not known, keep it, and name the winner."""
        self._trace()
        numbers = list(self.candidates)
        found = agreeing.settled(self.share, [self.question.configs[n] for n in numbers])
        if found is not None:
            self._take(numbers, found)
            return self._choose(None)
        self._recall()
        missing = [n for n in numbers if n not in self.rows]
        if missing:
            counters.add("tunings")
        ref_latency = None
        if missing or self.share is not None:
            inputs = self._inputs()
            ref_latency = self._reference_latency(inputs)
            self._measure(missing if self.share is None else numbers, inputs)
        return self._choose(ref_latency)

    def _trace(self) -> None:
        for number, config in enumerate(self.question.configs):
            try:
                program = self.question.trace(config)
            except Exception as error:  # a program's own code may refuse a config as it likes
                reason = str(error)
                if not isinstance(error, TileopsError):
                    reason = f"{type(error).__name__}: {error}"
                self.rows[number] = Row(config, "", "compile_error", reason=reason)
            else:
                self.candidates[number] = Candidate(config, program)
                self.digests[number] = digest_of(program, 64)
        if self.rows:  # those that are no programs, for ``tune show``
            known = {(canonical(row.config), row.reason) for row in self.record.rows()}
            rows = self.rows.values()
            self.record.append([r for r in rows if (canonical(r.config), r.reason) not in known])

    def _recall(self) -> None:
        any_digest = self.question.shares
        known = {
            (canonical(r.config), "" if any_digest else r.digest): r for r in self.record.rows()
        }
        for number, candidate in self.candidates.items():
            digest = "" if any_digest else self.digests[number]
            row = known.get((canonical(candidate.config), digest))
            # An error of unknown cause may not come again; the others say something of the config,
            # those that ran only under the same check.
            if row is None or row.status == "error":
                continue
            if row.status not in ("ok", "wrong_result") or row.check == self.check:
                self.rows[number] = row

    def _inputs(self) -> Sequence[Any]:
        if not self.candidates:
            return ()
        return self.question.inputs(next(iter(self.candidates.values())).program)

    def _reference_latency(self, inputs: Sequence[Any]) -> float | None:
        profile = self.manner.profile
        if not profile.checks or self.manner.timer is not None or profile.ref_prog is None:
            return None
        reference, own = profile.ref_prog, copies(inputs)
        with errors_of(self.question.key.op, "ref_prog"):
            found = do_bench(
                lambda: reference(*own), warmup=5, rep=20, device=self.question.device,
                return_mode="median",
            )  # fmt: skip
        return float(found)

    def _measure(self, numbers: Sequence[int], inputs: Sequence[Any]) -> None:
        title = self.question.key.op
        with ExitStack() as stack:
            bar = stack.enter_context(Bar(title, len(numbers)))
            if self.manner.timer is None and self.share is None:
                self._shop = stack.enter_context(self._open_shop(inputs))

            def tell(number: int, outcome: Outcome) -> None:
                latency = outcome.measured.latency_ms
                bar.tell(number, latency, describe(self.question.configs[number]))
                # What is final is kept at once: the rest may be interrupted.
                if latency is None or self.manner.timer is not None:
                    self._kept[number] = self._row(number, outcome)
                    self.record.append([self._kept[number]])

            if self.share is not None:
                self._part = self._part_of(self.share, numbers)
                self._take(numbers, self._find(numbers, inputs, 1.0, tell))
            else:
                self._search(numbers, inputs, tell)

    def _part_of(self, share: Share, numbers: Sequence[int]) -> Part:
        # Ranks need no halving: what they cannot measure within the budget is left out.
        return agreeing.part_of(
            share,
            {n: self.question.configs[n] for n in numbers},
            self.rows,
            budget=self.manner.budget,
            seed=None if self.manner.search == "exhaustive" else self._seed,
        )

    @property
    def _seed(self) -> int:
        return int(self.question.key.hash[:8], 16)

    def _search(
        self, numbers: Sequence[int], inputs: Sequence[Any], tell: Callable[[int, Outcome], None]
    ) -> None:
        def measure(places: Sequence[int], effort: float) -> dict[int, float | None]:
            chosen = [numbers[place] for place in places]
            self._take(chosen, self._find(chosen, inputs, effort, tell))
            return {place: self.rows[numbers[place]].latency for place in places}

        search, budget = self.manner.search, self.manner.budget
        left = searches.run(search, len(numbers), measure, budget=budget, seed=self._seed)
        self._beaten |= set(numbers) - {numbers[place] for place in left}

    def _find(
        self,
        numbers: Sequence[int],
        inputs: Sequence[Any],
        effort: float,
        tell: Callable[[int, Outcome], None],
    ) -> Findings:
        def progress(place: int, outcome: Outcome) -> None:
            tell(numbers[place], outcome)

        if self.manner.timer is not None:
            return self._find_by_timer(numbers, inputs, effort, progress)
        question = self.question
        jobs, known = prepare(
            [self.candidates[n].program for n in numbers],
            question.target,
            inputs,
            op=question.key.op,
            sizes=question.sizes,
            script=question.key.script,
        )
        return find_fastest(
            jobs,
            self._setting(inputs, effort, numbers),
            part=self._part,
            progress=progress,
            known=known,
            shop=self._shop,
        )

    def _find_by_timer(
        self,
        numbers: Sequence[int],
        inputs: Sequence[Any],
        effort: float,
        progress: Callable[[int, Outcome], None],
    ) -> Findings:
        halving = self.manner.search == "halving" and self._part is None
        assert self.manner.timer is not None
        work = TimerWork(
            [self.candidates[n] for n in numbers],
            replace(self.question.build, target=self.question.target),
            inputs,
            Checker(self.manner.reference, lambda: copies(inputs)),
            self.manner.timer,
            progress,
            max(1, round(_TIMER_RUNS * effort)) if halving else 1,
        )
        count = len(numbers)
        answer = alone(count, work) if self._part is None else self._part.together(work)
        return Findings.of(answer, count)

    @property
    def _default(self) -> int | None:
        if self.question.default is None:
            return None
        default = canonical(self.question.default)
        return [canonical(c) for c in self.question.configs].index(default)

    def _setting(self, inputs: Sequence[Any], effort: float, numbers: Sequence[int]) -> Setting:
        profile = self.manner.profile
        rules = Rules(rep=max(1, round(profile.rep * effort)))
        if effort < 1:
            rules = replace(rules, least=min(rules.least, 2), finalists=0)
        return Setting(
            devices=self._devices(),
            inputs=inputs,
            cache_dir=_cache_dir(),
            reference=self.manner.reference,
            plan=Plan(
                profile.warmup,
                profile.timeout or float(10**9),
                self.manner.early_stop_factor,
                rules,
            ),
            backend=profile.backend,
            isolated=self.manner.isolated,
            default=next((n for n, number in enumerate(numbers) if number == self._default), None),
        )

    def _open_shop(self, inputs: Sequence[Any]) -> Workshop:
        """Processes for all the measurements of a search."""
        return Workshop(
            self._devices(),
            inputs,
            _cache_dir(),
            backend=self.manner.profile.backend,
            isolated=self.manner.isolated,
        )

    def _devices(self) -> tuple[torch.device, ...]:
        own, asked = self.question.device, self.manner.devices
        if asked is None or own.type != "cuda":
            return (own,)
        if asked == "all":
            model = torch.cuda.get_device_name(own)
            every = [torch.device("cuda", n) for n in range(torch.cuda.device_count())]
            return (own, *(d for d in every if d != own and torch.cuda.get_device_name(d) == model))
        check_devices(asked)
        given = [torch.device("cuda", d) if isinstance(d, int) else torch.device(d) for d in asked]
        return (own, *(d for d in given if d != own))

    def _row(self, number: int, outcome: Outcome) -> Row:
        measured = outcome.measured
        return Row(
            self.question.configs[number],
            self.digests[number],
            measured.status,
            measured.latency_ms,
            measured.low_ms,
            measured.high_ms,
            measured.samples,
            measured.reason,
            outcome.where,
            self.check,
            noisy=measured.noisy,
            sure=measured.sure,
        )

    def _take(self, numbers: Sequence[int], findings: Findings) -> None:
        fresh: list[Row] = []
        for number, outcome in zip(numbers, findings.outcomes, strict=True):
            if outcome == UNKNOWN:
                continue
            row = self._row(number, outcome)
            kept = self._kept.pop(number, None) or self.rows.get(number)
            self.rows[number] = row
            if kept is None or replace(row, time=kept.time) != kept:
                fresh.append(row)
        self.record.append(fresh)
        self._ranking = [numbers[place] for place in findings.ranking]
        self._beaten.update(self._ranking[1:])
        self._beaten.difference_update(self._ranking[:1])

    def _choose(self, ref_latency: float | None) -> Decision:
        right = [n for n, row in self.rows.items() if row.is_right]
        if not right:
            raise TileopsError(all_failed(self.question.key.op, self.rows))
        # Times are compared where no rounds compared the configs. The ranking of the ranks is what
        # all of them take.
        if self._ranking and self.share is not None:
            number = self._ranking[0]
        else:
            unbeaten = [n for n in right if n not in self._beaten]
            number = min(unbeaten or right, key=lambda n: (self.rows[n].latency or 0.0, n))
        number = preferred(number, self._default, self.rows)
        row, config = self.rows[number], self.question.configs[number]
        assert row.latency is not None
        best = Best(
            config, row.latency, self.digests[number], space_digest(self.question), ref_latency,
            self.check, row.noisy,
        )  # fmt: skip
        self.record.choose(best)
        return Decision(config, row.latency, ref_latency)

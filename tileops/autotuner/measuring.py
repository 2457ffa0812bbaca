"""Owns the measurement of compiled configs: a first look at each, then rounds over the good ones.

The first look runs a config once, compares its results with the reference, and estimates its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tileops.autotuner.benches import Bench, NoSecondContextError, RunFailedError
from tileops.autotuner.checking import Checker, ReferenceFailedError
from tileops.autotuner.evidence import is_noisy, quartiles
from tileops.autotuner.rounds import Race, Rules, Samples

_ESTIMATE_RUNS = 3
_WARMUP_MS = 50.0  # a slow config needs no 25 runs to be warm
# A config that takes a thousand times as long as another has lost; it is not waited for to the end
# of the time that a config may take.
_HOPELESS = 1000
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Plan:
    """How configs are measured: counts of runs, seconds for each step of one config, and rules.

    ``early_stop_factor``: a config whose first runs take longer than this many times the best so
    far is not timed further; None times all.
    """

    warmup: int = 25
    timeout_s: float = 100.0
    early_stop_factor: float | None = None
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class Measured:
    """One config's outcome: ok with times in milliseconds, or another status with a reason.

    ``is_estimate``: only the first look was taken. ``noisy``: the rounds were disturbed, also when
    they were measured again; ``sure``: rounds with the default show it faster.
    Statuses: ok, wrong_result, illegal_access, timeout, error.
    """

    status: str
    latency_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    samples: int = 0
    reason: str = ""
    is_estimate: bool = False
    noisy: bool = False
    sure: bool = False


Progress = Callable[[str, Measured], None]


class Session:
    """The measurement of some configs on one bench.

    Add configs as they are compiled, then ``finish``. ``progress(name, measured)`` is called
    whenever something is known about a config. ``is_default`` tells the config that runs without
    tuning. ``is_gone``: the bench can use its device no more.
    """

    def __init__(
        self,
        bench: Bench,
        checker: Checker,
        plan: Plan,
        progress: Progress | None = None,
        is_default: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._is_default = is_default
        self._bench = bench
        self._checker = checker
        self._plan = plan
        self._progress = progress or (lambda name, measured: None)
        self._loadables: dict[str, Mapping[str, Any]] = {}
        self.found: dict[str, Measured] = {}
        self.is_gone = False
        self._lost: list[str] = []

    def add(self, name: str, loadable: Mapping[str, Any]) -> Measured:
        """Take the first look at a config: is it right, and about how fast is it."""
        self._loadables[name] = loadable
        try:
            estimate = self._first_look(name, loadable)
        except (RunFailedError, NoSecondContextError) as error:
            return self._failed(name, error)
        return self._note(name, Measured("ok", estimate, samples=_ESTIMATE_RUNS, is_estimate=True))

    def _first_look(self, name: str, loadable: Mapping[str, Any]) -> float:
        limit = self._limit_s()
        results = self._bench.run(name, loadable, limit, returns=self._checker.compares)
        if self._checker.compares:
            try:
                self._checker.check(results, loadable["op"])
            except ReferenceFailedError:
                raise
            except Exception as error:  # a user's own check raises what it likes
                raise RunFailedError("wrong_result", str(error)) from error
        del results
        self._bench.times(name, loadable, 1, limit)
        return min(self._bench.times(name, loadable, _ESTIMATE_RUNS, limit))

    def _limit_s(self) -> float:
        best = self._best_ms()
        if best is None:
            return self._plan.timeout_s
        return min(self._plan.timeout_s, max(_PATIENCE_SECONDS, _HOPELESS * best / 1e3))

    def _best_ms(self) -> float | None:
        times = [m.latency_ms for m in self.found.values() if m.latency_ms is not None]
        return min(times, default=None)

    def _failed(self, name: str, error: Exception) -> Measured:
        if isinstance(error, NoSecondContextError):  # no fault of the config
            self.is_gone = True
            self._lost.append(name)
        status = error.status if isinstance(error, RunFailedError) else "error"
        return self._note(name, Measured(status, reason=str(error)))

    def _note(self, name: str, measured: Measured) -> Measured:
        self.found[name] = measured
        self._progress(name, measured)
        return measured

    def take_lost(self) -> dict[str, Mapping[str, Any]]:
        """The configs, with what loads them, that were not measured for want of the device."""
        lost, self._lost = self._lost, []
        return {name: self._loadables[name] for name in lost}

    def finish(self) -> list[str]:
        """Time the configs that are right and are not timed yet; ``found`` has everything.

        The names of the right ones: those timed now, fastest first, then the rest.
        """
        estimates = self._worth_timing()
        for name in self.found.keys() - estimates.keys():
            self._bench.unload(name)
        for name in list(estimates):
            try:
                self._warm(name, estimates[name])
            except (RunFailedError, NoSecondContextError) as error:
                del estimates[name]
                self._failed(name, error)
        default = next((name for name in estimates if self._is_default(name)), None)
        race = Race(estimates, self._sample, self._plan.rules, self._drop, default)
        ranked = race.run()
        for name in ranked:
            self._note(name, _measured(race.samples[name]))
        rest = [n for n, m in self.found.items() if m.status == "ok" and n not in set(ranked)]
        return [*ranked, *sorted(rest, key=lambda name: self.found[name].latency_ms or 0.0)]

    def _worth_timing(self) -> dict[str, float]:
        estimates = {
            name: m.latency_ms
            for name, m in self.found.items()
            if m.is_estimate and m.latency_ms is not None
        }
        factor, best = self._plan.early_stop_factor, self._best_ms()
        if factor is None or best is None:
            return estimates
        return {name: ms for name, ms in estimates.items() if ms <= factor * best}

    def _warm(self, name: str, estimate: float) -> None:
        count = max(1, min(self._plan.warmup, int(_WARMUP_MS / max(estimate, 1e-3))))
        self._bench.times(name, self._loadables[name], count, self._plan.timeout_s)

    def _sample(self, name: str, count: int) -> list[float]:
        return self._bench.times(name, self._loadables[name], count, self._plan.timeout_s)

    def _drop(self, name: str, error: Exception) -> None:
        if not isinstance(error, (RunFailedError, NoSecondContextError)):
            raise error
        self._failed(name, error)


def _measured(samples: Samples) -> Measured:
    low, high = quartiles(samples.rounds)
    return Measured(
        "ok",
        samples.median,
        low,
        high,
        samples.runs,
        noisy=is_noisy(samples.rounds),
        sure=samples.sure,
    )


def measure(
    bench: Bench,
    configs: Iterable[tuple[str, Mapping[str, Any]]],
    checker: Checker,
    plan: Plan,
    progress: Progress | None = None,
) -> tuple[dict[str, Measured], float]:
    """Measure (name, loadable) pairs as they come; every outcome, and the seconds it took."""
    start = time.perf_counter()
    session = Session(bench, checker, plan, progress)
    for name, loadable in configs:
        session.add(name, loadable)
    session.finish()
    return session.found, time.perf_counter() - start

"""The measurement of compiled configs on one bench: a first look at each, then rounds.

The first look runs a config once, compares its results with the reference, and estimates its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tileops.autotuner.benches import Bench, NoSecondContextError, RunFailedError
from tileops.autotuner.checking import Checker, ReferenceFailedError
from tileops.autotuner.database import Measured
from tileops.autotuner.rounds import Race, Rules, Samples, is_noisy, quartiles

if TYPE_CHECKING:
    from tileops.autotuner.param import TuningOptions
    from tileops.autotuner.ranks import Json

_ESTIMATE_RUNS = 3
_WARMUP_MS = 50.0  # a slow config needs no 25 runs to be warm
# A config that takes a thousand times as long as another has lost; it is not waited for to the end
# of the time that a config may take.
_HOPELESS = 1000
_PATIENCE_SECONDS = 10.0


Progress = Callable[[str, Measured], None]


def answer_of(found: Mapping[str, Measured], ranking: Sequence[str] | None = None) -> Json:
    """What ranks agree on: all outcomes by name, and the right ones, the fastest first."""
    right = {n: m.latency for n, m in found.items() if m.latency is not None}
    return {
        "outcomes": {name: asdict(measured) for name, measured in found.items()},
        "ranking": sorted(right, key=lambda n: right[n]) if ranking is None else list(ranking),
    }


class Measurement:
    """The measurement of some configs on one bench.

    Add configs as they are compiled, then ``finish``; ``found`` has what is known.
    ``progress(name, measured)`` hears of each outcome. ``default`` names the config that runs
    without tuning. ``is_gone``: the bench can use its device no more.
    """

    def __init__(
        self,
        bench: Bench,
        checker: Checker,
        options: TuningOptions,
        rules: Rules,
        progress: Progress | None = None,
        default: str | None = None,
    ) -> None:
        self._bench = bench
        self._checker = checker
        self._options = options
        self._rules = rules
        self._progress = progress or (lambda name, measured: None)
        self._default = default
        self._loadables: dict[str, Mapping[str, Any]] = {}
        self._estimates: dict[str, float] = {}  # milliseconds of configs that are not timed yet
        self._lost: list[str] = []
        self.found: dict[str, Measured] = {}
        self.is_gone = False

    def add(self, name: str, loadable: Mapping[str, Any]) -> None:
        """Take the first look at a config: is it right, and about how fast is it."""
        self._loadables[name] = loadable
        try:
            estimate = self._first_look(name, loadable)
        except (RunFailedError, NoSecondContextError) as error:
            self._fail(name, error)
        else:
            self._estimates[name] = estimate
            self._note(name, Measured("ok", estimate, samples=_ESTIMATE_RUNS))

    def _first_look(self, name: str, loadable: Mapping[str, Any]) -> float:
        limit, best = self._options.timeout_s, self._best()
        if best is not None:
            limit = min(limit, max(_PATIENCE_SECONDS, _HOPELESS * best / 1e3))
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

    def _best(self) -> float | None:
        times = [m.latency for m in self.found.values() if m.latency is not None]
        return min(times, default=None)

    def _fail(self, name: str, error: Exception) -> None:
        if isinstance(error, NoSecondContextError):  # not the config's fault
            self.is_gone = True
            self._lost.append(name)
        status = error.status if isinstance(error, RunFailedError) else "error"
        self._note(name, Measured(status, reason=str(error)))

    def _note(self, name: str, measured: Measured) -> None:
        self.found[name] = measured
        self._progress(name, measured)

    def take_lost(self) -> dict[str, Mapping[str, Any]]:
        """The configs, with what loads them, that were not measured for want of the device."""
        lost, self._lost = self._lost, []
        return {name: self._loadables[name] for name in lost}

    def finish(self) -> list[str]:
        """Time the configs that are right and are not timed yet.

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
                self._fail(name, error)
        default = self._default if self._default in estimates else None
        race = Race(estimates, self._sample, self._rules, self._drop, default)
        ranked = race.run()
        for name in ranked:
            del self._estimates[name]
            self._note(name, _measured(race.samples[name]))
        rest = [n for n, m in self.found.items() if m.status == "ok" and n not in set(ranked)]
        return [*ranked, *sorted(rest, key=lambda name: self.found[name].latency or 0.0)]

    def _worth_timing(self) -> dict[str, float]:
        factor, best = self._options.early_stop_factor, self._best()
        limit = float("inf") if factor is None or best is None else factor * best
        return {
            name: ms
            for name, ms in self._estimates.items()
            if self.found[name].status == "ok" and ms <= limit
        }

    def _warm(self, name: str, estimate: float) -> None:
        self._sample(name, max(1, min(self._options.warmup, int(_WARMUP_MS / max(estimate, 1e-3)))))

    def _sample(self, name: str, count: int) -> list[float]:
        return self._bench.times(name, self._loadables[name], count, self._options.timeout_s)

    def _drop(self, name: str, error: Exception) -> None:
        if not isinstance(error, (RunFailedError, NoSecondContextError)):
            raise error
        self._fail(name, error)


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

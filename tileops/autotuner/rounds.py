"""Owns the choice of the fastest by interleaved rounds: what to time again, and when to stop.

In each round every candidate still in question is timed once, so that what changes with time
(clocks, temperature, other processes) changes all alike; candidates are compared by the ratios of
their times within rounds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# Two-sided 99 % quantiles of Student's t by degrees of freedom; beyond the last, the normal's.
_T99 = {1: 63.7, 2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50, 8: 3.36, 9: 3.25, 10: 3.17,
        12: 3.05, 15: 2.95, 20: 2.85, 30: 2.75, 60: 2.66}  # fmt: skip
_NORMAL99 = 2.58


@dataclass(frozen=True)
class Rules:
    """When rounds stop.

    ``rep`` samples of each candidate at most, at least ``least`` rounds, about ``seconds`` in all.
    A candidate is out when it is slower than the leader by more than ``drop`` for certain; the
    leader is settled when it is for certain not slower than anyone left by more than ``margin``.
    ``round_ms`` is what a candidate may take in a round before it gets one sample only. As many as
    ``finalists`` go into a last, fresh measurement (0: there is none).
    """

    rep: int = 100
    least: int = 5
    seconds: float = 20.0
    drop: float = 0.02
    margin: float = 0.01
    round_ms: float = 2.0
    finalists: int = 4

    @property
    def per_round(self) -> int:
        """Samples of a fast candidate in a round: their median shrugs off a disturbance."""
        return max(1, min(5, self.rep // self.least))


@dataclass
class Samples:
    """What was measured of one candidate: a time for each round, and how many runs in all."""

    rounds: list[float] = field(default_factory=list)
    runs: int = 0

    @property
    def median(self) -> float:
        """The median over rounds, in milliseconds."""
        return statistics.median(self.rounds)


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """A 99 % confidence interval of the mean; infinite for fewer than two values."""
    if len(values) < 2:
        return -math.inf, math.inf
    half = _t99(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def _t99(freedom: int) -> float:
    known = [t for degrees, t in _T99.items() if degrees <= freedom]
    return known[-1] if freedom <= max(_T99) else _NORMAL99


class Race:
    """Interleaved rounds over some candidates, by name.

    ``sample(name, count)`` gives the times of ``count`` runs in milliseconds; what it raises ends
    that candidate through ``on_failure(name, error)``, which may raise on.
    """

    def __init__(
        self,
        estimates: Mapping[str, float],
        sample: Callable[[str, int], Sequence[float]],
        rules: Rules,
        on_failure: Callable[[str, Exception], None],
    ) -> None:
        self._estimates = dict(estimates)
        self._sample = sample
        self._rules = rules
        self._on_failure = on_failure
        self.samples: dict[str, Samples] = {name: Samples() for name in estimates}
        self._active = list(estimates)
        self._number = 0

    def run(self) -> list[str]:
        """The candidates that finished, fastest first; ``samples`` has what was measured."""
        self._rounds(self._active)
        ranked = self._ranked(self._active)
        finalists = self._finalists(ranked)
        if len(finalists) > 1:
            # What led after many comparisons led partly by luck; fresh samples have none of it.
            kept = {name: self.samples[name] for name in finalists}
            self.samples.update({name: Samples() for name in finalists})
            self._rounds(finalists)
            for name in finalists:
                self.samples[name].runs += kept[name].runs
                if not self.samples[name].rounds:
                    self.samples[name].rounds = kept[name].rounds
            ranked = self._ranked(finalists)
        finished = set(ranked)
        slower = [n for n, s in self.samples.items() if s.rounds and n not in finished]
        return [*ranked, *sorted(slower, key=lambda name: self.samples[name].median)]

    def _finalists(self, ranked: list[str]) -> list[str]:
        if not ranked:
            return []
        limit = self.samples[ranked[0]].median * (1 + 2 * self._rules.drop)
        close = [name for name in ranked if self.samples[name].median <= limit]
        return close[: self._rules.finalists]

    def _ranked(self, names: Sequence[str]) -> list[str]:
        known = [name for name in names if self.samples[name].rounds]
        return sorted(known, key=lambda name: self.samples[name].median)

    def _rounds(self, names: list[str]) -> None:
        """Time ``names`` in turn until the leader is settled; what falls out leaves the list."""
        spent = 0
        deadline = time.monotonic() + self._rules.seconds
        while names and spent < self._rules.rep and time.monotonic() < deadline:
            spent += max(self._count(name) for name in names)
            for name in _in_turn(names, self._number):
                self._one(name, names)
            self._number += 1
            if self._is_settled(names):
                return

    def _one(self, name: str, names: list[str]) -> None:
        count = self._count(name)
        try:
            times = self._sample(name, count)
        except Exception as error:
            names.remove(name)
            self.samples[name] = Samples()
            self._on_failure(name, error)
            return
        self.samples[name].rounds.append(statistics.median(times))
        self.samples[name].runs += count

    def _count(self, name: str) -> int:
        fitting = int(self._rules.round_ms / max(self._estimates[name], 1e-4))
        return max(1, min(self._rules.per_round, fitting))

    def _is_settled(self, names: list[str]) -> bool:
        """True if the leader is known; drops from ``names`` what is certainly slower."""
        ranked = self._ranked(names)
        if not ranked or len(self.samples[ranked[0]].rounds) < self._rules.least:
            return False
        leader = self.samples[ranked[0]].rounds
        settled = True
        for name in ranked[1:]:
            low, _ = bounds(_log_ratios(self.samples[name].rounds, leader))
            if low > math.log1p(self._rules.drop):
                names.remove(name)
            elif low < -math.log1p(self._rules.margin):
                settled = False
        return settled


def _log_ratios(mine: Sequence[float], leader: Sequence[float]) -> list[float]:
    return [math.log(max(a, 1e-9) / max(b, 1e-9)) for a, b in zip(mine, leader, strict=False)]


def _in_turn(names: Sequence[str], number: int) -> list[str]:
    # The first after a pause runs at other clocks than the rest, so no one is always first.
    at = number % len(names)
    return [*names[at:], *names[:at]]

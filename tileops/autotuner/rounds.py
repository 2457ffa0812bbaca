"""Interleaved rounds and their statistics: what to time again, when to stop, what is noise.

Each round times every candidate that may still win. What changes with time (clocks, temperature,
other processes) then changes all of them alike. Candidates are compared by the ratios of their
times within rounds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# Quartiles of undisturbed rounds differ by a tenth of the median, on a busy machine by a fifth.
_SPREAD = 0.3

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
    ``finalists`` go into a last, fresh measurement (0: there is none). Where that is disturbed it
    is taken again, ``again`` times at most.
    """

    rep: int = 100
    least: int = 5
    seconds: float = 20.0
    drop: float = 0.02
    margin: float = 0.01
    round_ms: float = 2.0
    finalists: int = 4
    again: int = 2

    @property
    def per_round(self) -> int:
        """Samples of a fast candidate in a round: their median shrugs off a disturbance."""
        return max(1, min(5, self.rep // self.least))


@dataclass
class Samples:
    """What was measured of one candidate: a time for each round, and how many runs in all."""

    rounds: list[float] = field(default_factory=list)
    runs: int = 0
    sure: bool = False  # rounds with the default show that it is faster

    @property
    def median(self) -> float:
        """The median over rounds, in milliseconds."""
        return statistics.median(self.rounds)


class Race:
    """Interleaved rounds over some candidates, by name.

    ``sample(name, count)`` gives the times of ``count`` runs in milliseconds, None for a candidate
    that failed and is out. ``default`` is what runs without a choice: where rounds are disturbed,
    the leader is timed against it.
    """

    def __init__(
        self,
        estimates: Mapping[str, float],
        sample: Callable[[str, int], Sequence[float] | None],
        rules: Rules,
        default: str | None = None,
    ) -> None:
        self._default = default
        self._estimates = dict(estimates)
        self._sample = sample
        self._rules = rules
        self.samples: dict[str, Samples] = {name: Samples() for name in estimates}
        self._number = 0

    def run(self) -> list[str]:
        """The candidates that finished, fastest first; ``samples`` has what was measured."""
        left = list(self._estimates)
        self._rounds(left)
        ranked = self._ranked(left)
        finalists = self._finalists(ranked)
        if len(finalists) > 1:
            # What led after many comparisons led partly by luck; fresh samples have none of it.
            self._fresh(finalists)
            ranked = self._ranked(finalists)
        for _ in range(self._rules.again if self._rules.finalists else 0):
            disturbed = self._disturbed(ranked)
            if not disturbed:
                break
            self._fresh(disturbed, is_duel=True)
            ranked = self._ranked(list(dict.fromkeys([*ranked, *disturbed])))
        return [*ranked, *self._ranked([n for n in self.samples if n not in ranked])]

    def _fresh(self, names: list[str], *, is_duel: bool = False) -> None:
        """Time ``names`` anew, together; the less disturbed measurement of each stays.

        A duel has as many rounds as the rules allow: one that ends as soon as it looks certain
        proves less than its interval says.
        """
        kept = {name: self.samples[name] for name in names}
        self.samples.update({name: Samples() for name in names})
        left = list(names)
        self._rounds(left, is_duel=is_duel)
        if is_duel and self._default in names:
            other = self.samples[self._default or ""].rounds
            for name in names:
                mine = self.samples[name]
                mine.sure = name != self._default and is_faster(mine.rounds, other)
        for name, before in kept.items():
            now = self.samples[name]
            if not now.rounds and name not in left:
                continue  # it failed
            now.runs += before.runs
            if not now.rounds or spread(now.rounds) > spread(before.rounds):
                now.rounds = before.rounds

    def _disturbed(self, ranked: Sequence[str]) -> list[str]:
        """The leader and what it is compared with, where rounds of one of them are disturbed."""
        if not ranked or self.samples[ranked[0]].sure:
            return []
        leader = ranked[0]
        rivals = [n for n in self.samples if n == self._default != leader] or ranked[1:2]
        pair = [leader, *(n for n in rivals if self.samples[n].rounds)]
        return pair if any(is_noisy(self.samples[n].rounds) for n in pair) else []

    def _finalists(self, ranked: Sequence[str]) -> list[str]:
        best = min((self.samples[name].median for name in ranked), default=0.0)
        limit = best * (1 + 2 * self._rules.drop)
        return [n for n in ranked if self.samples[n].median <= limit][: self._rules.finalists]

    def _ranked(self, names: Sequence[str]) -> list[str]:
        known = [name for name in names if self.samples[name].rounds]
        return sorted(known, key=lambda name: self.samples[name].median)

    def _rounds(self, names: list[str], *, is_duel: bool = False) -> None:
        """Time ``names`` in turn until the leader is settled; what falls out leaves the list.

        A duel goes on to its end.
        """
        spent = 0
        deadline = time.monotonic() + self._rules.seconds / (4 if is_duel else 1)
        while names and spent < self._rules.rep and time.monotonic() < deadline:
            spent += max(self._count(name) for name in names)
            # The first after a pause runs at other clocks than the rest: no one is always first.
            at = self._number % len(names)
            for name in [*names[at:], *names[:at]]:
                self._one(name, names)
            self._number += 1
            if not is_duel and self._is_settled(names):
                return

    def _one(self, name: str, names: list[str]) -> None:
        count = self._count(name)
        times = self._sample(name, count)
        if times is None:
            names.remove(name)
            self.samples[name] = Samples()
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
            low, _ = bounds(log_ratios(self.samples[name].rounds, leader))
            if low > math.log1p(self._rules.drop):
                names.remove(name)
            elif low < -math.log1p(self._rules.margin):
                settled = False
        return settled


# -- statistics ------------------------------------------------------------------------------------
def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper quartile."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[quarter], ordered[~quarter]


def spread(values: Sequence[float]) -> float:
    """The distance of the quartiles over the median; 0 for no values."""
    if not values:
        return 0.0
    low, high = quartiles(values)
    middle = statistics.median(values)
    return (high - low) / middle if middle > 0 else 0.0


def is_noisy(values: Sequence[float]) -> bool:
    """Whether rounds are too disturbed for their median to be taken for the truth."""
    return spread(values) > _SPREAD


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """A 99 % confidence interval of the mean; infinite for fewer than two values."""
    if len(values) < 2:
        return -math.inf, math.inf
    freedom = len(values) - 1
    t99 = [t for n, t in _T99.items() if n <= freedom][-1] if freedom <= max(_T99) else _NORMAL99
    half = t99 * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def log_ratios(mine: Sequence[float], other: Sequence[float]) -> list[float]:
    """The logarithms of the ratios of times that were taken in the same rounds."""
    return [math.log(max(a, 1e-9) / max(b, 1e-9)) for a, b in zip(mine, other, strict=False)]


def is_faster(mine: Sequence[float], other: Sequence[float]) -> bool:
    """Whether paired rounds show for certain that ``mine`` are the shorter times."""
    return bounds(log_ratios(other, mine))[0] > 0

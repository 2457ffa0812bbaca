"""The careful measurement: how much slower some choices are than the best of all, without luck.

Candidates are timed in interleaved rounds and compared by the ratios of their times within rounds, so
that clocks that drift hit all alike. The best is named by one half of the rounds and compared by the
other: what led by luck in the first half has none in the second.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# Times of these candidates, in this order, each run once; any unit.
Round = Callable[[Sequence[str]], Sequence[float]]

CLOSE = 1.05  # what a short look finds slower by more is no rival of the best


@dataclass(frozen=True)
class Verdict:
    """The best candidate, and each choice's time over its own with a 99 % interval."""

    best: str
    ratios: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    medians: dict[str, float]  # of all candidates, from the short look


class Judge:
    """Collects rounds; may be fed over several sessions, each with fresh inputs."""

    def __init__(self, names: Sequence[str], choices: Iterable[str]) -> None:
        self.names = list(names)
        self.choices = list(dict.fromkeys(choices))
        self._looks: dict[str, list[float]] = {name: [] for name in self.names}
        self._rounds: list[dict[str, float]] = []
        self._rivals: list[str] | None = None
        self._number = 0

    def _one(self, sample: Round, names: list[str]) -> dict[str, float]:
        at = self._number % len(names)  # nobody is always first after a pause
        self._number += 1
        order = [*names[at:], *names[:at]]
        return dict(zip(order, sample(order), strict=True))

    def look(self, sample: Round, rounds: int) -> None:
        """Time all candidates for so many rounds."""
        for _ in range(rounds):
            for name, value in self._one(sample, self.names).items():
                self._looks[name].append(value)

    @property
    def medians(self) -> dict[str, float]:
        """Median times of the short look."""
        return {name: statistics.median(times) for name, times in self._looks.items()}

    @property
    def rivals(self) -> list[str]:
        """What may be the best after the first look, and the choices that are judged."""
        if self._rivals is None:
            medians = self.medians
            limit = CLOSE * min(medians.values())
            self._rivals = [n for n in self.names if medians[n] <= limit or n in self.choices]
        return self._rivals

    def race(self, sample: Round, rounds: int) -> None:
        """Time the rivals for so many rounds."""
        rivals = self.rivals
        for _ in range(rounds):
            self._rounds.append(self._one(sample, rivals))

    def verdict(self) -> Verdict:
        """The choices against the best."""
        rivals = self.rivals
        naming, comparing = self._rounds[::2], self._rounds[1::2]
        first = rivals[0]
        best = min(rivals, key=lambda n: statistics.median(r[n] / r[first] for r in naming))
        ratios = {n: sorted(r[n] / r[best] for r in comparing) for n in self.choices}
        return Verdict(
            best,
            {n: statistics.median(found) for n, found in ratios.items()},
            {n: median_interval(found) for n, found in ratios.items()},
            self.medians,
        )


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """A 99 % interval of the median of sorted values, by their ranks: no shape is assumed."""
    half = 2.576 * math.sqrt(len(ordered)) / 2
    low = max(0, math.floor(len(ordered) / 2 - half))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + half))
    return ordered[low], ordered[high]

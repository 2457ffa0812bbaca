"""The searches: which configs of a space are measured, in what order, and with how much effort.

To add one, write a function like ``halving`` and name it in ``SEARCHES``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tileops.autotuner.database import Answer, Measured

CHUNK = 8
_KEEP = 3  # one in so many goes on to the next rung

# Measures the named configs with a share of the full effort: milliseconds by name, None for a
# config that failed.
Measure = Callable[[Sequence[str], float], Mapping[str, float | None]]


class Work(Protocol):
    """What a process can do for a tuning; configs are known by name.

    A rank takes ``chunk`` configs at a time. ``effort`` is the share of the full effort with which
    they are measured.
    """

    effort: float

    @property
    def chunk(self) -> int: ...

    def compile(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """What these configs compile to, by name, as it comes."""

    def check(self, names: Sequence[str], compiled: Iterator[tuple[str, Any]]) -> None:
        """Run each for the first time as it comes: is it right, and about how fast is it."""

    def measure(self) -> dict[str, Measured]:
        """Time what was checked and is not timed yet; a result for all names checked."""

    def decide(self, results: Mapping[str, Measured]) -> Answer:
        """The answer, from the results of all configs."""


def exhaustive(names: Sequence[str], measure: Measure, deadline: float) -> set[str]:
    """All configs, in order."""
    _measure_all(names, 1.0, measure, deadline)
    return set(names)


def halving(names: Sequence[str], measure: Measure, deadline: float) -> set[str]:
    """All configs with little effort, and the best third of each rung with three times as much.

    Only configs of the last rung in which any was right may win: times of different rungs are not
    compared, because clocks change in between.
    """
    rungs, size = 1, len(names)
    while size > _KEEP:
        size = -(-size // _KEEP)
        rungs += 1
    survivors, last = list(names), set(names)
    for rung in range(rungs):
        effort = _KEEP ** float(rung - rungs + 1)
        # Half of the time is kept for those that turn out well.
        end = (time.monotonic() + deadline) / 2 if rung == 0 else math.inf
        found = _measure_all(survivors, effort, measure, end)
        survivors = sorted(found, key=lambda n: found[n])[: max(1, -(-len(survivors) // _KEEP))]
        last = set(found) or last
        if not survivors or time.monotonic() >= deadline:
            break
    return last


@dataclass(frozen=True)
class Search:
    """How configs are searched.

    ``run`` measures configs until ``time.monotonic()`` is its deadline, the first ones whatever the
    deadline, and returns those that may be the best. It gets them in the order of the space if it
    ``keeps_order``, else in a random one. It ``uses_effort`` if it measures some with less than the
    full effort.
    """

    run: Callable[[Sequence[str], Measure, float], set[str]]
    keeps_order: bool = False
    uses_effort: bool = False


SEARCHES = {
    "exhaustive": Search(exhaustive, keeps_order=True),
    "random": Search(exhaustive),
    "halving": Search(halving, uses_effort=True),
}


def _measure_all(
    names: Sequence[str], effort: float, measure: Measure, deadline: float
) -> dict[str, float]:
    """The times of the configs that are right; with a deadline, measured a few at a time."""
    found: dict[str, float] = {}
    step = CHUNK if deadline < math.inf else max(1, len(names))
    for start in range(0, len(names), step):
        if start and time.monotonic() >= deadline:
            break
        result = measure(names[start : start + step], effort)
        found.update({n: ms for n, ms in result.items() if ms is not None})
    return found

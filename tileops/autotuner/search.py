"""The searches: which configs of a space are measured, in what order, and with how much effort.

To add one, write a function like ``halving`` and name it in ``SEARCHES``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

CHUNK = 8
_KEEP = 3  # one in so many goes on to the next rung

# Measures the named configs with a share of the full effort: milliseconds by name, None for a
# config that failed.
Measure = Callable[[Sequence[str], float], Mapping[str, float | None]]


class Deadline:
    """The end of a search, ``seconds`` from now; None: there is none."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    @property
    def is_set(self) -> bool:
        return self._end is not None

    def is_over(self) -> bool:
        """Whether no further config may be begun."""
        return self._end is not None and self._clock() >= self._end

    def half(self) -> Deadline:
        """The end of the first half of the time that is left."""
        left = None if self._end is None else max(0.0, self._end - self._clock())
        return Deadline(None if left is None else left / 2, self._clock)


def exhaustive(names: Sequence[str], measure: Measure, deadline: Deadline) -> set[str]:
    """All configs, in order."""
    _measure_all(names, 1.0, measure, deadline)
    return set(names)


def halving(names: Sequence[str], measure: Measure, deadline: Deadline) -> set[str]:
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
        end = deadline.half() if rung == 0 else Deadline(None)
        found = _measure_all(survivors, effort, measure, end)
        survivors = sorted(found, key=lambda n: found[n])[: max(1, -(-len(survivors) // _KEEP))]
        last = set(found) or last
        if not survivors or deadline.is_over():
            break
    return last


@dataclass(frozen=True)
class Search:
    """How configs are searched.

    ``run`` measures configs until the deadline, the first ones whatever the deadline, and returns
    those that may be the best. It gets them in the order of the space if it ``keeps_order``, else
    in a random one. It ``uses_effort`` if it measures some with less than the full effort.
    """

    run: Callable[[Sequence[str], Measure, Deadline], set[str]]
    keeps_order: bool = False
    uses_effort: bool = False


SEARCHES = {
    "exhaustive": Search(exhaustive, keeps_order=True),
    "random": Search(exhaustive),
    "halving": Search(halving, uses_effort=True),
}


def _measure_all(
    names: Sequence[str], effort: float, measure: Measure, deadline: Deadline
) -> dict[str, float]:
    """The times of the configs that are right; with a deadline, measured a few at a time."""
    found: dict[str, float] = {}
    step = CHUNK if deadline.is_set else max(1, len(names))
    for start in range(0, len(names), step):
        if start and deadline.is_over():
            break
        result = measure(names[start : start + step], effort)
        found.update({n: ms for n, ms in result.items() if ms is not None})
    return found

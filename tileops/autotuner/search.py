"""Owns which configs of a space are measured, in what order, and how long: three searches."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

from tileops.errors import ArgumentError

SEARCHES = ("exhaustive", "random", "halving")
CHUNK = 8
_KEEP = 3  # one in so many goes on to the next rung

# Numbers of configs and the share of the full effort; milliseconds by number, None for a failure.
Measure = Callable[[Sequence[int], float], Mapping[int, float | None]]


def check(search: str, budget: float | None) -> None:
    """ArgumentError for a search that does not exist or a budget that is no positive number."""
    if search not in SEARCHES:
        raise ArgumentError(f"search: expected one of {', '.join(SEARCHES)}, got {search!r}")
    is_number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
    if budget is not None and not (is_number and budget > 0):
        raise ArgumentError(f"budget: expected a positive number of seconds, got {budget!r}")


def run(
    search: str,
    count: int,
    measure: Measure,
    *,
    budget: float | None,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
) -> set[int]:
    """Measure configs 0 to ``count`` - 1, as far as ``budget`` seconds reach (None: all of them).

    The configs that may be the best: all of them, of a search by halving those of the last rung in
    which any was right. The times of different rungs are not compared: clocks change in between.

    ``exhaustive`` goes in order, ``random`` in an order that ``seed`` decides. ``halving`` measures
    all with little effort, and the best third of each rung again with three times as much. The
    first configs are measured whatever the budget.
    """
    deadline = None if budget is None else clock() + budget
    order = list(range(count))
    if search != "exhaustive":
        random.Random(seed).shuffle(order)
    if search == "halving":
        return _halve(order, measure, deadline, clock)
    if deadline is None:
        measure(order, 1.0)
    else:
        _in_chunks(order, 1.0, measure, deadline, clock)
    return set(order)


def _in_chunks(
    order: Sequence[int],
    effort: float,
    measure: Measure,
    deadline: float,
    clock: Callable[[], float],
) -> dict[int, float]:
    found: dict[int, float] = {}
    for start in range(0, len(order), CHUNK):
        if start and clock() >= deadline:
            break
        result = measure(order[start : start + CHUNK], effort)
        found.update({n: ms for n, ms in result.items() if ms is not None})
    return found


def _halve(
    order: Sequence[int],
    measure: Measure,
    deadline: float | None,
    clock: Callable[[], float],
) -> set[int]:
    rungs, size = 1, len(order)
    while size > _KEEP:
        size = -(-size // _KEEP)
        rungs += 1
    survivors, last = list(order), set(order)
    for rung in range(rungs):
        effort = _KEEP ** float(rung - rungs + 1)
        if rung == 0 and deadline is not None:
            # Half of the time is kept for those that turn out well.
            found = _in_chunks(survivors, effort, measure, (clock() + deadline) / 2, clock)
        else:
            result = measure(survivors, effort)
            found = {n: ms for n, ms in result.items() if ms is not None}
        survivors = sorted(found, key=lambda n: found[n])[: max(1, -(-len(survivors) // _KEEP))]
        last = set(found) or last
        if not survivors or (deadline is not None and clock() >= deadline):
            break
    return last

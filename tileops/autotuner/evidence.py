"""Owns what a measurement proves: when it is noise, and when a config is taken over the default."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from tileops.autotuner.database import Row
from tileops.autotuner.spaces import describe

# The quartiles of undisturbed rounds lie within a tenth of the median, on a busy machine a fifth.
_SPREAD = 0.3

# Two-sided 99 % quantiles of Student's t by degrees of freedom; beyond the last, the normal's.
_T99 = {1: 63.7, 2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50, 8: 3.36, 9: 3.25, 10: 3.17,
        12: 3.05, 15: 2.95, 20: 2.85, 30: 2.75, 60: 2.66}  # fmt: skip
_NORMAL99 = 2.58


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
    half = _t99(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def _t99(freedom: int) -> float:
    known = [t for degrees, t in _T99.items() if degrees <= freedom]
    return known[-1] if freedom <= max(_T99) else _NORMAL99


def log_ratios(mine: Sequence[float], other: Sequence[float]) -> list[float]:
    """The logarithms of the ratios of times that were taken in the same rounds."""
    return [math.log(max(a, 1e-9) / max(b, 1e-9)) for a, b in zip(mine, other, strict=False)]


def is_faster(mine: Sequence[float], other: Sequence[float]) -> bool:
    """Whether paired rounds show for certain that ``mine`` are the shorter times."""
    return bounds(log_ratios(other, mine))[0] > 0


def preferred(number: int, default: int | None, rows: Mapping[int, Row]) -> int:
    """``number``, or the default's where noise is all that speaks for ``number``."""
    if default is None or number == default or default not in rows:
        return number
    mine, other = rows[number], rows[default]
    if not other.is_right or mine.sure or not (mine.noisy or other.noisy):
        return number
    is_apart = mine.high is not None and other.low is not None and mine.high < other.low
    return number if is_apart else default


def all_failed(op: str, rows: Mapping[int, Row]) -> str:
    """What to say where no config is right: the reason of each."""
    lines = [f"{op}: no config of {len(rows)} works:"]
    for _, row in sorted(rows.items()):
        reason = row.reason.strip().splitlines()[0] if row.reason.strip() else ""
        lines.append(f"  {describe(row.config)}: {row.status}{': ' if reason else ''}{reason}")
    return "\n".join(lines)

"""The picture of tunings: latency by config, and by size where there are several tunings."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileops.autotuner.database import Row, words
from tileops.autotuner.spaces import describe
from tileops.cli.stored_tuning import StoredTuning
from tileops.errors import CacheError

_ROW_INCHES = 0.26
_REASON = 90  # characters of a failure's reason
_FAILURES = 12  # listed; the table of ``show`` has all
_CONFIGS = 40  # rows of the table of configs by sizes, the best ones


def draw(tunings: Sequence[StoredTuning], path: Path) -> None:
    """Write a picture of one tuning's configs, or of several tunings by size and by config.

    The suffix of ``path`` says the format. CacheError where matplotlib is missing or cannot write
    there.
    """
    try:
        importlib.import_module("matplotlib").use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise CacheError("a picture needs matplotlib: pip install 'tileops-torch[viz]'") from None
    figure = _one(pyplot, tunings[0]) if len(tunings) == 1 else _several(pyplot, tunings)
    try:
        figure.savefig(path, dpi=120, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise CacheError(f"the picture cannot be written to {path}: {error}") from None
    finally:
        pyplot.close(figure)


def _group(tuning: StoredTuning) -> str:
    """Everything except the sizes that tells a tuning from others."""
    facts = [tuning.op, tuning.device, words(tuning.key.get("static"))]
    return ", ".join(fact for fact in facts if fact != "-")


# -- one tuning ------------------------------------------------------------------------------------
def _one(pyplot: Any, tuning: StoredTuning) -> Any:  # noqa: ANN401
    """A bar for each config, the fastest on top, with quartiles and the ratio to it."""
    rows = tuning.right
    figure, axis = pyplot.subplots(figsize=(9, max(1.6, _ROW_INCHES * len(rows) + 1.1)))
    axis.set_title(f"{_group(tuning)}\n{words(tuning.sizes)}", fontsize=10)
    _note_failures(figure, tuning.failed)
    times = [row.latency or 0.0 for row in rows]
    lows = [t if r.low is None else min(r.low, t) for r, t in zip(rows, times, strict=True)]
    highs = [t if r.high is None else max(r.high, t) for r, t in zip(rows, times, strict=True)]
    errors = [
        [time - low for time, low in zip(times, lows, strict=True)],
        [high - time for time, high in zip(times, highs, strict=True)],
    ]
    places = range(len(rows))
    colors = ["tab:green" if n == 0 else "tab:blue" for n in places]
    axis.barh(places, times, xerr=errors, color=colors, ecolor="black", error_kw={"linewidth": 0.8})
    labels = [describe(row.config) + (" (noisy)" if row.noisy else "") for row in rows]
    axis.set_yticks(places, labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("milliseconds a call (lines: quartiles)")
    if not rows:
        axis.text(0.5, 0.5, "no config is right", ha="center", transform=axis.transAxes)
        return figure
    axis.set_xlim(0, 1.22 * max(highs))
    for place, (time, high) in enumerate(zip(times, highs, strict=True)):
        ratio = "" if place == 0 else f"  {time / times[0]:.2f}x"
        axis.text(high, place, f" {time:.4g}{ratio}", va="center", fontsize=7)
    return figure


def _note_failures(figure: Any, rows: Sequence[Row]) -> None:  # noqa: ANN401
    """Write the failed configs with their reasons below a figure, a line each."""
    if not rows:
        return
    seen = Counter(f"{describe(row.config)}: {row.summary(_REASON)}" for row in rows)
    lines = [f"  {text}{f' ({n} times)' if n > 1 else ''}" for text, n in seen.items()]
    more = [f"  and {len(lines) - _FAILURES} more"] if len(lines) > _FAILURES else []
    shown = [f"{len(rows)} failed:", *lines[:_FAILURES], *more]
    text = "\n".join(line.replace("$", r"\$") for line in shown)
    figure.text(0.02, 0.0, text, va="top", fontsize=7, family="monospace")


# -- several tunings -------------------------------------------------------------------------------
def _several(pyplot: Any, tunings: Sequence[StoredTuning]) -> Any:  # noqa: ANN401
    ordered = sorted(tunings, key=lambda t: (_group(t), _order(t.sizes)))
    configs = _by_quality(ordered)
    height = _ROW_INCHES * len(configs) + 2.2
    width = max(9.0, 4.0 + 0.62 * len(ordered))
    figure, (upper, lower) = pyplot.subplots(
        2, 1, figsize=(width, 3.6 + height), height_ratios=[3.6, height], layout="constrained"
    )
    _by_size(upper, ordered)
    _table(figure, lower, ordered, configs)
    _note_failures(figure, [row for tuning in ordered for row in tuning.failed])
    return figure


def _order(sizes: Mapping[str, Any]) -> tuple[tuple[bool, float, str], ...]:
    """Sizes by their numbers; buckets that are not numbers come last."""
    return tuple(
        (False, float(v), "") if isinstance(v, (int, float)) else (True, 0.0, str(v))
        for v in sizes.values()
    )


def _varying(tunings: Sequence[StoredTuning]) -> list[str]:
    names = dict.fromkeys(name for tuning in tunings for name in tuning.sizes)
    return [n for n in names if len({str(t.sizes.get(n)) for t in tunings}) > 1]


def _by_size(axis: Any, tunings: Sequence[StoredTuning]) -> None:  # noqa: ANN401
    """The best time by size: over numbers where one size varies, else over the tunings in turn."""
    varying = _varying(tunings)
    values = [t.sizes.get(varying[0]) if varying else None for t in tunings]
    is_scale = len(varying) == 1 and all(isinstance(v, int) and v > 0 for v in values)
    groups = list(dict.fromkeys(_group(t) for t in tunings))
    for number, group in enumerate(groups, 1):
        points = [
            (tuning.sizes[varying[0]] if is_scale else place, tuning.right[0].latency)
            for place, tuning in enumerate(tunings)
            if _group(tuning) == group and tuning.right
        ]
        if points:
            label = f"({number}) {group}" if len(groups) > 1 else group
            axis.plot(*zip(*points, strict=True), marker="o", label=label)
    axis.set_yscale("log")
    axis.set_ylabel("best, milliseconds a call")
    axis.grid(visible=True, which="both", alpha=0.3)
    if is_scale:
        axis.set_xscale("log", base=2)
        numbers = sorted({t.sizes[varying[0]] for t in tunings})
        axis.set_xticks(numbers, [str(n) for n in numbers], fontsize=7)
        axis.set_xlabel(varying[0])
    else:
        axis.set_xticks(range(len(tunings)), _columns(tunings), rotation=60, ha="right", fontsize=7)
    axis.set_title("best time by size", fontsize=10)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7)


def _columns(tunings: Sequence[StoredTuning]) -> list[str]:
    """A short name for each tuning: the sizes that vary, a number for each group."""
    varying = _varying(tunings)
    groups = list(dict.fromkeys(_group(t) for t in tunings))
    return [
        " ".join(f"{n}={t.sizes[n]}" for n in varying if n in t.sizes)
        + (f" ({groups.index(_group(t)) + 1})" if len(groups) > 1 or not varying else "")
        for t in tunings
    ]


def _by_quality(tunings: Sequence[StoredTuning]) -> list[str]:
    """The configs by their mean ratio to the best, where they have a time at all."""
    ratios: dict[str, list[float]] = {}
    for tuning in tunings:
        for row in tuning.right:
            best = tuning.right[0].latency or 1.0
            ratios.setdefault(describe(row.config), []).append((row.latency or 0.0) / best)
    mean = {name: sum(found) / len(found) for name, found in ratios.items()}
    return sorted(mean, key=lambda name: (-len(ratios[name]), mean[name]))[:_CONFIGS]


def _table(figure: Any, axis: Any, tunings: Sequence[StoredTuning], configs: Sequence[str]) -> None:  # noqa: ANN401
    """Each config's time over the best of the same tuning, as colours and figures."""
    table = [[float("nan")] * len(tunings) for _ in configs]
    texts: dict[tuple[int, int], str] = {}
    for column, tuning in enumerate(tunings):
        for row in tuning.rows:
            if (name := describe(row.config)) not in configs:
                continue
            place, text = configs.index(name), "failed"
            if row.is_right:
                ratio = (row.latency or 0.0) / (tuning.right[0].latency or 1.0)
                table[place][column] = ratio
                text = f"{ratio:.2f}{'~' if row.noisy else ''}"
            texts[place, column] = text
    image = axis.imshow(table or [[1.0]], aspect="auto", cmap="RdYlGn_r", vmin=1.0, vmax=2.0)
    for (place, column), text in sorted(texts.items()):
        axis.text(column, place, text, ha="center", va="center", fontsize=6)
    axis.set_yticks(range(len(configs)), configs, fontsize=7)
    axis.set_xticks(range(len(tunings)), _columns(tunings), rotation=60, ha="right", fontsize=7)
    axis.set_title("time of each config over the best of its column (~: noisy)", fontsize=10)
    figure.colorbar(image, ax=axis, shrink=0.6, label="time / best (2 and more: red)")

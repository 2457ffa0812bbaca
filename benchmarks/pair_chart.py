"""The picture of the pairs: a bar for each program and baseline, on a log scale, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from benchmarks.harness import Result
from benchmarks.suite_pairs import by_file, geometric_mean, speed_over

LEFT, WIDTH, BAR, GAP, TOP = 380, 560, 11, 7, 56
COLOURS = {"TileLang": "#3b6fb6", "torch": "#d98032"}
FONT = "font-family='sans-serif' font-size='12'"


def chart(found: Sequence[Result], title: str) -> str:
    """The SVG text: speed of tileops over TileLang, and over the torch call of the same work."""
    rows = [(r, _bars(r)) for r in by_file(found)]
    rows = [(r, bars) for r, bars in rows if bars]
    ratios = [ratio for _, bars in rows for _, _, ratio in bars] or [1.0]
    low, high = min(0.5, *ratios) / 1.05, max(2.0, *ratios) * 1.05

    def x(ratio: float) -> float:
        return LEFT + WIDTH * math.log(ratio / low) / math.log(high / low)

    parts, y = [], TOP
    for result, bars in rows:
        middle = y + len(bars) * BAR / 2 + 4
        parts.append(_text(LEFT - 8, middle, result.workload, "end"))
        for kind, name, ratio in bars:
            start, end = sorted((x(1.0), x(ratio)))
            parts.append(
                f"<rect x='{start:.1f}' y='{y}' width='{max(end - start, 0.5):.1f}' "
                f"height='{BAR - 1}' fill='{COLOURS[kind]}'><title>{ratio:.3f} of {escape(name)}"
                "</title></rect>"
            )
            label = f"{ratio:.2f}" if kind == "TileLang" else f"{ratio:.2f} {name}"
            parts.append(_text(max(end, x(1.0)) + 4, y + BAR - 1, label, "start", 9))
            y += BAR
        y += GAP
    ticks = [t for t in (0.1, 0.2, 0.5, 0.7, 0.9, 1, 1.5, 2, 3, 5, 10, 20) if low <= t <= high]
    grid = [
        f"<line x1='{x(t):.1f}' x2='{x(t):.1f}' y1='{TOP - 6}' y2='{y}' "
        f"stroke='{'#000' if t == 1 else '#ccc'}'/>" + _text(x(t), TOP - 10, f"{t:g}", "middle", 10)
        for t in ticks
    ]
    head = _text(8, 16, title, "start", 13) + _legend(rows)
    size = f"width='{LEFT + WIDTH + 130}' height='{y + 10}'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} {FONT}>"
        "<rect width='100%' height='100%' fill='#fff'/>"
        f"{head}{''.join(grid)}{''.join(parts)}</svg>\n"
    )


def _bars(result: Result) -> list[tuple[str, str, float]]:
    names = {"TileLang": "TileLang", "torch": result.extra["peer"]}
    ratios = ((kind, name, speed_over(result, name)) for kind, name in names.items())
    return [(kind, name, ratio) for kind, name, ratio in ratios if ratio is not None]


def _legend(rows: Sequence[tuple[Result, list[tuple[str, str, float]]]]) -> str:
    meanings = {
        "TileLang": "speed of tileops / TileLang, same source",
        "torch": "speed of tileops / the torch call named at the bar",
    }
    text = ""
    for at, (kind, meaning) in enumerate(meanings.items()):
        ratios = [ratio for _, bars in rows for k, _, ratio in bars if k == kind]
        mean = f", geometric mean {geometric_mean(ratios):.3f}" if ratios else ""
        left = 8 + 460 * at
        text += f"<rect x='{left}' y='23' width='10' height='10' fill='{COLOURS[kind]}'/>"
        text += _text(left + 15, 32, meaning + mean, "start", 11)
    return text


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}'>"
        f"{escape(text)}</text>"
    )

"""Pictures of layouts: the place of each element, or the thread that a T.Fragment gives it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from tileops import language as T
from tileops.errors import ArgumentError, ArgumentTypeError

_CELL = 48  # pixels
_HUES = 360


def plot_layout(
    layout: Any,  # noqa: ANN401
    save_directory: str | Path = "./tmp",
    name: str = "layout",
    colormap: str = "",
    verbose: bool = False,
    formats: str = "svg",
) -> Path:
    """Write ``name``.svg with a cell for each element of ``layout``, and return its path.

    A cell of a layout has the indices of the element's place; that of a fragment the thread, after
    a T, and the place in its registers. Layouts of tiles are hints: this is what the program asks
    for, and the code generators may choose otherwise. ``colormap`` and ``verbose`` change nothing.
    """
    if not isinstance(layout, T.Layout):
        raise ArgumentTypeError(
            f"plot_layout: expected a T.Layout or T.Fragment, got {type(layout).__name__}"
        )
    if formats not in ("svg", "all"):
        raise ArgumentError(f"plot_layout: expected formats of svg, got {formats!r}")
    shape = tuple(map(int, layout.shape))
    if not 1 <= len(shape) <= 2:
        raise ArgumentError(f"plot_layout: expected a layout of one or two dimensions, got {shape}")
    rows, columns = (1, *shape)[-2:]
    cells = [_cell(layout, index) for index in itertools.product(*map(range, shape))]
    most = max(number for number, _ in cells) + 1
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * _CELL}" '
             f'height="{rows * _CELL}" font-family="sans-serif" font-size="11">']  # fmt: skip
    for n, (number, text) in enumerate(cells):
        x, y = n % columns * _CELL, n // columns * _CELL
        colour = f"hsl({number * _HUES // most}, 70%, 85%)"
        lines.append(f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" stroke="grey" '
                     f'fill="{colour}"/>')  # fmt: skip
        lines.append(f'<text x="{x + _CELL // 2}" y="{y + _CELL // 2}" text-anchor="middle">'
                     f"{text}</text>")  # fmt: skip
    path = Path(save_directory) / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, "</svg>", ""]))
    return path


def _cell(layout: T.Layout, index: tuple[int, ...]) -> tuple[int, str]:
    """The number that colours an element, and its text."""
    if not isinstance(layout, T.Fragment):
        found = _numbers(layout.forward_fn, index)
        return found[0], ",".join(map(str, found))
    if layout.forward_fn is not None:
        thread, *place = _numbers(layout.forward_fn, index)
    else:
        (thread,) = _numbers(layout.forward_thread_fn, index)
        place = list(_numbers(layout.forward_index_fn or (lambda *_: ()), index))
    return thread, " ".join([f"T{thread}", *map(str, place)])


def _numbers(function: Any, index: tuple[int, ...]) -> tuple[int, ...]:  # noqa: ANN401
    found = function(*index)
    return tuple(map(int, found)) if isinstance(found, (tuple, list)) else (int(found),)

"""Timings that a file collects of its own functions and prints as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tileops.errors import ArgumentTypeError

_PREFIX = "regression_"
_timings: list[tuple[str, float]] = []


def process_func(func: Callable[..., Any], name: str | None = None, /, **kwargs: Any) -> float:  # noqa: ANN401
    """Call ``func(**kwargs)``, which returns milliseconds, and keep them for ``regression``.

    They are listed as ``name``, by default the function's module and own name. ArgumentTypeError
    if no number comes back.
    """
    found = func(**kwargs)
    try:
        latency_ms = float(found)
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"process_func: expected milliseconds from {func.__name__}(), got "
            f"{type(found).__name__}"
        ) from None
    _timings.append((name or f"{func.__module__}.{func.__name__}", latency_ms))
    return latency_ms


def regression(prefixes: Sequence[str] = (_PREFIX,), verbose: bool = True) -> None:
    """Call the functions of the calling file that begin with one of ``prefixes``, in its order.

    What they give to ``process_func`` is printed as a table, unless ``verbose`` is False.
    """
    names = sys._getframe(1).f_globals
    functions = [f for n, f in names.items() if n.startswith(tuple(prefixes)) and callable(f)]
    del _timings[:]
    for function in functions:
        function()
    if not verbose:
        return
    rows = [("function", "milliseconds"), *((name, f"{ms:.4f}") for name, ms in _timings)]
    width = max(len(name) for name, _ in rows)
    lines = [f"| {name:<{width}} | {ms:>12} |" for name, ms in rows]
    lines.insert(1, f"|{'-' * (width + 2)}|{'-' * 13}:|")
    sys.stdout.write("\n".join(lines) + "\n")

"""Owns timing: how long a function takes on its device, its caches cold, over many runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError
from tileops.profiler.timers import timer_for

RETURN_MODES = ("mean", "median", "min", "max", "all")
_ESTIMATE_RUNS = 5


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    n_warmup: int = 0,
    n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    backend: str = "event",
    device: str | torch.device | None = None,
    early_stop_baseline: float | None = None,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    fast_flush: bool = True,
) -> Any:  # noqa: ANN401
    """The time of one call of ``fn`` in milliseconds.

    ``warmup`` and ``rep`` are milliseconds to spend; ``n_warmup`` and ``n_repeat`` (also with a
    leading underscore) are counts that replace them. ``backend`` on CUDA: ``event`` brackets each
    call with events on the current stream; ``kernel`` (also ``cupti``) is the kernels' own time,
    without launch gaps; ``cudagraph`` replays calls from a graph. All overwrite the L2 cache before
    each call; ``fast_flush`` is accepted and means nothing. On the CPU the clock brackets calls.
    ``quantiles`` gives a list (a number for one of them); otherwise ``return_mode``: mean, median,
    min, max, or all for every time. Where a few runs are slower than ``early_stop_baseline``
    milliseconds, their times are the result. ArgumentError for an unknown mode, backend or device.
    """
    del fast_flush
    if return_mode not in RETURN_MODES:
        raise ArgumentError(
            f"return_mode: expected one of {', '.join(RETURN_MODES)}, got {return_mode!r}"
        )
    timer = timer_for(device, backend)
    fn()
    first = timer.times(fn, _ESTIMATE_RUNS)
    if early_stop_baseline is not None and min(first) > early_stop_baseline:
        return summarize(first, quantiles, return_mode)
    estimate = max(min(first), 1e-4)
    timer.times(fn, n_warmup or _n_warmup or max(1, int(warmup / estimate)))
    times = timer.times(fn, n_repeat or _n_repeat or max(1, int(rep / estimate)))
    return summarize(times, quantiles, return_mode)


def summarize(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:  # noqa: ANN401
    """Times reduced as ``do_bench`` describes."""
    data = torch.tensor(times, dtype=torch.float64)
    if quantiles is not None:
        found = torch.quantile(data, torch.tensor(list(quantiles), dtype=torch.float64)).tolist()
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return list(times)
    reduce: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "mean": torch.mean,
        "median": torch.median,
        "min": torch.min,
        "max": torch.max,
    }
    return reduce[return_mode](data).item()

"""Owns timing: how long a function takes on its device, its caches cold, over many runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError

RETURN_MODES = ("mean", "median", "min", "max", "all")
# Larger than the last-level cache of any GPU so far (H200: 50 MB; MI300X: 256 MB of infinity
# cache).
FLUSH_BYTES = 256 << 20
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
) -> Any:  # noqa: ANN401
    """The time of one call of ``fn`` in milliseconds.

    ``warmup`` and ``rep`` are milliseconds to spend; ``n_warmup`` and ``n_repeat`` are counts that
    replace them. On CUDA events bracket each call on the current stream, after the L2 cache was
    overwritten; on the CPU the clock does. ``quantiles`` gives a list (a number for one of them);
    otherwise ``return_mode``: mean, median, min, max, or all for every time. ArgumentError for an
    unknown mode, backend or device.
    """
    if return_mode not in RETURN_MODES:
        raise ArgumentError(
            f"return_mode: expected one of {', '.join(RETURN_MODES)}, got {return_mode!r}"
        )
    if backend != "event":
        raise ArgumentError(f"backend: expected event, got {backend!r}")
    timer = _timer_for(device)
    fn()
    timer.settle()
    estimate = max(min(timer.times(fn, _ESTIMATE_RUNS)), 1e-4)
    timer.times(fn, n_warmup or max(1, int(warmup / estimate)))
    times = timer.times(fn, n_repeat or max(1, int(rep / estimate)))
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


class _CpuTimer:
    def settle(self) -> None:
        """Nothing runs behind the caller's back on the CPU."""

    def times(self, fn: Callable[[], object], count: int) -> list[float]:
        found = []
        for _ in range(count):
            start = time.perf_counter()
            fn()
            found.append((time.perf_counter() - start) * 1e3)
        return found


class _CudaTimer:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)

    def settle(self) -> None:
        torch.cuda.synchronize(self._device)

    def times(self, fn: Callable[[], object], count: int) -> list[float]:
        pairs = []
        with torch.cuda.device(self._device):
            for _ in range(count):
                self._flush.zero_()
                start, end = _event(), _event()
                start.record()
                fn()
                end.record()
                pairs.append((start, end))
            self.settle()
        return [start.elapsed_time(end) for start, end in pairs]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]


def _timer_for(device: str | torch.device | None) -> _CpuTimer | _CudaTimer:
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type == "cpu":
        return _CpuTimer()
    if device.type == "cuda":
        return _CudaTimer(device)
    raise ArgumentError(f"device: expected cpu or cuda, got {device}")

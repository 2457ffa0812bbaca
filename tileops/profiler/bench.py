"""``do_bench`` and its clocks: how calls are timed on a CPU, and in three ways on CUDA."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from tileops.errors import ArgumentError

BACKENDS = ("event", "kernel", "cudagraph")
# CUPTI counts what the kernels themselves take; `kernel` measures that quantity with events.
ALIASES = {"cupti": "kernel"}
# At least the last-level cache of any GPU so far (H200: 50 MB; MI300X: 256 MB of infinity cache).
FLUSH_BYTES = 256 << 20
# Cycles for which a device is kept busy while calls are queued behind: about 1 ms at 1.5 GHz.
_HOLD_CYCLES = 1_500_000
_BRACKETS = 20  # empty brackets whose median is the cost of a bracket
_QUEUED = 20  # calls behind one hold; a queue holds about a thousand launches
_GRAPH_CALLS = 10
_ESTIMATE_RUNS = 5
RETURN_MODES = ("mean", "median", "min", "max", "all")

Function = Callable[[], object]


class Timer(Protocol):
    """Times calls. ``before`` runs ahead of each call, outside its time."""

    def times(self, fn: Function, count: int, before: Function | None = None) -> list[float]:
        """Milliseconds of each of ``count`` calls, complete on return."""


class CpuTimer:
    """The clock of the processor around each call."""

    def times(self, fn: Function, count: int, before: Function | None = None) -> list[float]:
        """Milliseconds of each call."""
        found = []
        for _ in range(count):
            if before is not None:
                before()
            start = time.perf_counter()
            fn()
            found.append((time.perf_counter() - start) * 1e3)
        return found


class EventTimer:
    """CUDA events around each call on the current stream, the L2 cache overwritten before it.

    While the cache is overwritten the host queues the call, so short kernels are not timed with
    their launch.
    """

    _hold_cycles = 0  # that keep the device from starting the first call

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)

    def times(self, fn: Function, count: int, before: Function | None = None) -> list[float]:
        """Milliseconds of each call."""
        pairs = []
        with torch.cuda.device(self.device):
            if self._hold_cycles:
                torch.cuda._sleep(self._hold_cycles)  # type: ignore[no-untyped-call,unused-ignore]
            for _ in range(count):
                if before is not None:
                    before()
                self._flush.zero_()
                pairs.append(_bracket(fn))
            torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) for start, end in pairs]


class KernelTimer(EventTimer):
    """What the kernels of a call take, without launch gaps and without the events' own time.

    The device is held busy until the calls are queued; the median time of an empty bracket is
    subtracted.
    """

    _hold_cycles = _HOLD_CYCLES

    def times(self, fn: Function, count: int, before: Function | None = None) -> list[float]:
        """Milliseconds of each call."""
        cost = statistics.median(super().times(lambda: None, _BRACKETS))
        found: list[float] = []
        while len(found) < count:
            queued = min(_QUEUED, count - len(found))
            found += super().times(fn, queued, before)
        return [max(ms - cost, 0.0) for ms in found]


class GraphTimer(EventTimer):
    """Calls replayed from a CUDA graph, so that the host takes no part; a call must be capturable.

    Each time is that of a graph of several calls with flushes, less one of the flushes alone,
    divided by the calls.
    """

    def times(self, fn: Function, count: int, before: Function | None = None) -> list[float]:
        """Milliseconds of a call, ``count`` samples."""

        def prepare() -> None:
            if before is not None:
                before()
            self._flush.zero_()

        def call() -> None:
            prepare()
            fn()

        with torch.cuda.device(self.device):
            call()  # what a first call allocates or loads may not happen under capture
            with_calls, without = self._graph(call), self._graph(prepare)
            idle = statistics.median(self._replays(without, max(3, count // 4)))
            return [max(ms - idle, 0.0) / _GRAPH_CALLS for ms in self._replays(with_calls, count)]

    def _graph(self, fn: Function) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_GRAPH_CALLS):
                fn()
        return graph

    def _replays(self, graph: torch.cuda.CUDAGraph, count: int) -> list[float]:
        graph.replay()
        pairs = [_bracket(graph.replay) for _ in range(count)]
        torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) for start, end in pairs]


def _bracket(fn: Function) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    start, end = _event(), _event()
    start.record()
    fn()
    end.record()
    return start, end


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]


_CUDA: dict[str, type[EventTimer]] = {
    "event": EventTimer,
    "kernel": KernelTimer,
    "cudagraph": GraphTimer,
}


def timer_for(device: str | torch.device | None, backend: str = "event") -> Timer:
    """The timer of a device; None is CUDA where there is one.

    ``backend``: event, kernel (also called cupti) or cudagraph; a CPU has only event. ArgumentError
    for another backend or device.
    """
    backend = ALIASES.get(backend, backend)
    if backend not in BACKENDS:
        raise ArgumentError(f"backend: expected one of {', '.join(BACKENDS)}, got {backend!r}")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type == "cuda":
        return _CUDA[backend](device)
    if device.type != "cpu":
        raise ArgumentError(f"device: expected cpu or cuda, got {device}")
    if backend != "event":
        raise ArgumentError(f"backend: expected event for the CPU, got {backend!r}")
    return CpuTimer()


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
    return list(times) if return_mode == "all" else getattr(torch, return_mode)(data).item()

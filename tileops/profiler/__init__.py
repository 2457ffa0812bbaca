"""Timing and checking of kernels: ``do_bench``, ``Profiler``, ``TensorSupplyType``."""

from __future__ import annotations

from tileops.profiler.bench import ALIASES, BACKENDS, Timer, do_bench, timer_for
from tileops.profiler.profiler import Profiler, assert_all_close, assert_close
from tileops.profiler.supply import TensorSupplyType, fill, get_tensor_supply, make_tensor

__all__ = [
    "ALIASES",
    "BACKENDS",
    "Profiler",
    "TensorSupplyType",
    "Timer",
    "assert_all_close",
    "assert_close",
    "do_bench",
    "fill",
    "get_tensor_supply",
    "make_tensor",
    "timer_for",
]

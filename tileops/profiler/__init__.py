"""Timing and checking of kernels: ``do_bench``, ``Profiler``, ``TensorSupplyType``."""

from __future__ import annotations

from tileops.profiler.bench import do_bench
from tileops.profiler.profiler import Profiler, assert_close
from tileops.profiler.supply import TensorSupplyType, make_tensor

__all__ = ["Profiler", "TensorSupplyType", "assert_close", "do_bench", "make_tensor"]

"""What tests of tile programs import: ``main``, seeds, conditions, comparison, timings.

Importing it imports neither Triton nor pytest.
"""

from __future__ import annotations

from tileops.profiler import TensorSupplyType, get_tensor_supply
from tileops.testing.comparison import torch_assert_close
from tileops.testing.conditions import (
    requires_cuda,
    requires_cuda_compute_version,
    requires_cuda_compute_version_eq,
    requires_cuda_compute_version_ge,
    requires_cuda_compute_version_gt,
    requires_cuda_compute_version_le,
    requires_cuda_compute_version_lt,
    requires_package,
    requires_rocm,
)
from tileops.testing.regressions import process_func, regression
from tileops.testing.running import main, set_random_seed

__all__ = [
    "TensorSupplyType",
    "get_tensor_supply",
    "main",
    "process_func",
    "regression",
    "requires_cuda",
    "requires_cuda_compute_version",
    "requires_cuda_compute_version_eq",
    "requires_cuda_compute_version_ge",
    "requires_cuda_compute_version_gt",
    "requires_cuda_compute_version_le",
    "requires_cuda_compute_version_lt",
    "requires_package",
    "requires_rocm",
    "set_random_seed",
    "torch_assert_close",
]

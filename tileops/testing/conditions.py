"""Marks for tests that need something of the machine; without it they are skipped."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from tileops.errors import ArgumentError

Test = TypeVar("Test", bound=Callable[..., Any])

_COMPARISONS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("more than", operator.gt),
    "le": ("at most", operator.le),
    "lt": ("less than", operator.lt),
    "eq": ("exactly", operator.eq),
}


def _needs(condition: bool, reason: str) -> Callable[[Test], Test]:
    import pytest

    marker = pytest.mark.skipif(not condition, reason=reason)

    def mark(test: Test) -> Test:
        marked: Test = marker(test)
        return marked

    return mark


def requires_cuda(test: Test) -> Test:
    """Skip the test on a machine without a CUDA device."""
    return _needs(_has_cuda(), "needs a CUDA device")(test)


def requires_rocm(test: Test) -> Test:
    """Skip the test on a machine without a ROCm device."""
    found = torch.version.hip is not None and torch.cuda.is_available()
    return _needs(found, "needs a ROCm device")(test)


def requires_package(*packages: str) -> Callable[[Test], Test]:
    """Skip the test where one of these packages is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return _needs(not missing, f"needs {', '.join(missing)}")


def requires_cuda_compute_version(
    major_version: int, minor_version: int = 0, mode: str = "ge"
) -> Callable[[Test], Test]:
    """Skip the test unless device 0's compute capability compares as ``mode`` says.

    ``mode`` is ge, gt, le, lt or eq; ArgumentError for another.
    """
    if mode not in _COMPARISONS:
        raise ArgumentError(f"mode must be one of {', '.join(_COMPARISONS)}, got {mode!r}")
    words, compare = _COMPARISONS[mode]
    wanted = (major_version, minor_version)
    found = _has_cuda() and compare(torch.cuda.get_device_capability(0), wanted)
    return _needs(found, f"needs compute capability {words} {major_version}.{minor_version}")


def requires_cuda_compute_version_ge(
    major_version: int, minor_version: int = 0
) -> Callable[[Test], Test]:
    """Skip the test below this compute capability."""
    return requires_cuda_compute_version(major_version, minor_version, "ge")


def requires_cuda_compute_version_gt(
    major_version: int, minor_version: int = 0
) -> Callable[[Test], Test]:
    """Skip the test at or below this compute capability."""
    return requires_cuda_compute_version(major_version, minor_version, "gt")


def requires_cuda_compute_version_le(
    major_version: int, minor_version: int = 0
) -> Callable[[Test], Test]:
    """Skip the test above this compute capability."""
    return requires_cuda_compute_version(major_version, minor_version, "le")


def requires_cuda_compute_version_lt(
    major_version: int, minor_version: int = 0
) -> Callable[[Test], Test]:
    """Skip the test at or above this compute capability."""
    return requires_cuda_compute_version(major_version, minor_version, "lt")


def requires_cuda_compute_version_eq(
    major_version: int, minor_version: int = 0
) -> Callable[[Test], Test]:
    """Skip the test at any other compute capability."""
    return requires_cuda_compute_version(major_version, minor_version, "eq")


def _has_cuda() -> bool:
    return torch.version.hip is None and torch.cuda.is_available()

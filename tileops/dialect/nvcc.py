"""``contrib.nvcc``: versions of CUDA and of compute capabilities, and what they have."""

from __future__ import annotations

import torch

from tileops.dialect.tvm.target import Target
from tileops.errors import ArgumentError, ToolchainError
from tileops.target import Target as OwnTarget

__all__ = [
    "get_cuda_version",
    "get_target_arch",
    "get_target_compute_version",
    "have_bf16",
    "have_fp8",
    "have_fp16",
    "have_int8",
    "have_mbarrier",
    "have_pdl",
    "have_tensorcore",
    "have_tma",
    "is_hopper",
    "parse_compute_version",
]

_HOPPER = (9, 0)
Version = str | tuple[int, int]
AnyTarget = Target | OwnTarget | str | None


def get_cuda_version(cuda_path: object = None) -> tuple[int, ...]:
    """The version of CUDA that torch was built for, as numbers; ``cuda_path`` is not read.

    ToolchainError where torch was built without CUDA.
    """
    if torch.version.cuda is None:
        raise ToolchainError("get_cuda_version: this torch was built without CUDA")
    return tuple(int(part) for part in torch.version.cuda.split("."))


def get_target_compute_version(target: AnyTarget = None) -> str:
    """The compute capability of a target, as in ``9.0``.

    By default that of the target entered by ``with``, else of the current device. ArgumentError
    for a target that is not CUDA's.
    """
    capability = _own(target).capability
    return f"{capability // 10}.{capability % 10}"


def _own(target: AnyTarget) -> OwnTarget:
    if isinstance(target, OwnTarget):
        return target
    if target is None:
        return (Target.current() or Target("cuda")).own
    return Target(target).own


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """The two numbers of ``9.0``; ArgumentError for another text."""
    major, dot, minor = compute_version.partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise ArgumentError(
            f"compute capability: expected a text such as 9.0, got {compute_version!r}"
        )
    return int(major), int(minor)


def _numbers(version: Version) -> tuple[int, int]:
    return parse_compute_version(version) if isinstance(version, str) else version


def get_target_arch(compute_version: Version) -> str:
    """The number of an architecture as compilers name it: ``80``, ``90a``."""
    major, minor = _numbers(compute_version)
    return f"{major * 10 + minor}{'a' if major >= 9 else ''}"


def have_fp16(compute_version: Version) -> bool:
    """Whether the hardware computes in float16."""
    return _numbers(compute_version) >= (5, 3)


def have_int8(compute_version: Version) -> bool:
    """Whether the hardware has dot products of int8."""
    return _numbers(compute_version) >= (6, 1)


def have_bf16(compute_version: Version) -> bool:
    """Whether the hardware computes in bfloat16."""
    return _numbers(compute_version) >= (8, 0)


def have_fp8(compute_version: Version) -> bool:
    """Whether the hardware has products of 8-bit floats."""
    return _numbers(compute_version) >= (8, 9)


def have_tensorcore(compute_version: Version | None = None, target: AnyTarget = None) -> bool:
    """Whether the hardware has units for matrix products."""
    return _numbers(compute_version or get_target_compute_version(target)) >= (7, 0)


def have_tma(target: AnyTarget) -> bool:
    """Whether the target copies boxes of tensors asynchronously."""
    return _numbers(get_target_compute_version(target)) >= _HOPPER


def have_mbarrier(target: AnyTarget) -> bool:
    """Whether the target has barriers in shared memory."""
    return _numbers(get_target_compute_version(target)) >= (8, 0)


def have_pdl(target: AnyTarget) -> bool:
    """Whether a kernel may start before the one before it ends."""
    return _numbers(get_target_compute_version(target)) >= _HOPPER


def is_hopper(target: AnyTarget) -> bool:
    """Whether the target is of compute capability 9.0."""
    return _numbers(get_target_compute_version(target)) == _HOPPER

"""Owns questions about devices: how many, what they are, and the target that fits one."""

from __future__ import annotations

from typing import Any

from tileops.errors import ArgumentError
from tileops.runtime.binding import native
from tileops.target import Target, parse_target


def device_count() -> int:
    """The number of CUDA devices that the driver shows; 0 where there is no driver."""
    return int(native().device_count())


def device_properties(device_index: int) -> dict[str, Any]:
    """Name, compute capability (90 for 9.0) and the facts that host programs can use, by name.

    Raises DriverError for a device that does not exist and ToolchainError where there is no driver.
    """
    return dict(native().device_properties(device_index))


def device_target(device_index: int | None) -> Target:
    """The target of a CUDA device, or of the processor for None."""
    if device_index is None:
        return parse_target("cpu")
    return parse_target(f"cuda:sm_{device_properties(device_index)['capability']}")


def current_device() -> int | None:
    """The index of torch's current CUDA device, None where torch sees none."""
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else None


def resolve_target(text: str) -> Target:
    """A target from text; ``auto`` and bare ``cuda`` take the architecture of the current device.

    ``auto`` without a device means the processor; ``cuda`` without one raises ArgumentError.
    """
    if text not in ("auto", "cuda"):
        return parse_target(text)
    index = current_device()
    if index is None and text == "cuda":
        raise ArgumentError(
            "target 'cuda': no CUDA device is present; name an architecture such as cuda:sm_90"
        )
    return device_target(index)


def is_capturing(device_index: int) -> bool:
    """Whether torch's current stream on the device records a CUDA graph."""
    return bool(native().is_capturing(device_index))

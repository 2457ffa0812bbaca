"""The current device, and the targets of devices."""

from __future__ import annotations

from tileops.errors import ArgumentError
from tileops.runtime import binding
from tileops.target import Target, parse_target


def device_target(device_index: int | None) -> Target:
    """The target of a CUDA device, or of the processor for None."""
    if device_index is None:
        return parse_target("cpu")
    return parse_target(f"cuda:sm_{binding.device_properties(device_index)['capability']}")


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

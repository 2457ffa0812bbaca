"""Facts of devices for host code of programs: multiprocessors, shared memory, names.

For sizes that a program computes in Python before it is traced. Inside a program, facts of the
device are read at each call.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = [
    "get_current_device",
    "get_device_name",
    "get_max_dynamic_shared_size_bytes",
    "get_num_sms",
]


def get_num_sms(device: int | torch.device | None = None) -> int:
    """Multiprocessors of a CUDA device (default: the current one)."""
    return int(_properties(device).multi_processor_count)


def get_max_dynamic_shared_size_bytes(device: int | torch.device | None = None) -> int:
    """Bytes of shared memory that one block of a CUDA device may ask for."""
    found: int = _properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    return found


def get_current_device() -> torch.device:
    """The current CUDA device; the CPU on a machine without one."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def get_device_name(device: int | torch.device | None = None) -> str:
    """Name of a CUDA device, as its driver gives it."""
    return str(_properties(device).name)


@functools.lru_cache(maxsize=64)
def device_model(device: torch.device) -> str:
    """The model of a GPU or of this machine's processor, as its maker calls it."""
    if device.type == "cuda":
        return get_device_name(device)
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "cpu"


def _properties(device: int | torch.device | None) -> torch.cuda._CudaDeviceProperties:
    import torch

    return torch.cuda.get_device_properties(device)

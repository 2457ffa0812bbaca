"""Devices as programs ask for them: facts through ``driver``, and one as a value, ``CUDA``."""

from __future__ import annotations

import torch

from tileops import devices as driver
from tileops.errors import ArgumentError
from tileops.roofline import Machine, machine_of
from tileops.target import Target, parse_target

__all__ = [
    "CDNA",
    "CUDA",
    "TileDevice",
    "driver",
    "has_mma_support",
    "is_ada_arch",
    "is_ampere_arch",
    "is_cdna_arch",
    "is_cuda_arch",
    "is_hopper_arch",
]

# Multiprocessors of a target's usual machine, for the place of a device that is not there.
_MULTIPROCESSORS = {80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 120: 170}


class TileDevice:
    """A device by its target; what it has is the device's own where the machine has it."""

    platform = ""

    def __init__(self, target: Target, name: str, multiprocessors: int) -> None:
        self.target, self.name = target, name
        self.compute_max_core = multiprocessors
        self.warp_size = target.warp_size
        self.smem_cap = target.shared_limit
        self.reg_cap = 65536
        self.transaction_size = [32, 128]

    @property
    def machine(self) -> Machine | None:
        """Its peaks; None where they are not known."""
        return machine_of(self.target, self.name)

    @property
    def bandwidth(self) -> list[float]:
        """Megabytes a second of its memory, twice; ArgumentError where that is not known."""
        if self.machine is None:
            raise ArgumentError(f"{self!r}: the speed of its memory is not known")
        return [self.machine.bandwidth * 1e-6] * 2

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target})"


class CUDA(TileDevice):
    """A CUDA device: ``CUDA("cuda")`` is the current one, ``CUDA("cuda:sm_90")`` one of a kind.

    ArgumentError for another target, and for ``cuda`` on a machine without a GPU.
    """

    platform = "CUDA"

    def __init__(self, target: str | Target = "cuda") -> None:
        own = getattr(target, "own", target)
        if isinstance(own, Target):
            super().__init__(own, "", _MULTIPROCESSORS.get(own.capability, 132))
        elif own in ("cuda", "auto"):
            if not torch.cuda.is_available():
                raise ArgumentError(
                    "CUDA('cuda') needs a GPU to take its facts from, and torch sees none; name an "
                    "architecture, such as CUDA('cuda:sm_90')"
                )
            major, minor = torch.cuda.get_device_capability()
            found = parse_target(f"cuda:sm_{major}{minor}")
            super().__init__(found, driver.get_device_name(), driver.get_num_sms())
        else:
            named = parse_target(own)
            super().__init__(named, "", _MULTIPROCESSORS.get(named.capability, 132))
        self.sm_version = self.target.capability
        self.compute_capability = str(self.sm_version)


class CDNA(TileDevice):
    """An AMD device of an architecture, ``CDNA("hip:gfx942")``; ArgumentError for others."""

    platform = "CDNA"

    def __init__(self, target: str | Target = "hip:gfx942") -> None:
        own = target if isinstance(target, Target) else parse_target(target)
        if own.kind != "hip":
            raise ArgumentError(f"CDNA: expected a target such as hip:gfx942, got {own}")
        super().__init__(own, "", 304)


def is_cuda_arch(arch: TileDevice) -> bool:
    """True for a CUDA device."""
    return isinstance(arch, CUDA)


def is_cdna_arch(arch: TileDevice) -> bool:
    """True for an AMD device."""
    return isinstance(arch, CDNA)


def is_ampere_arch(arch: TileDevice) -> bool:
    """True for compute capability 8.0 to 8.8."""
    return isinstance(arch, CUDA) and 80 <= arch.sm_version < 89


def is_ada_arch(arch: TileDevice) -> bool:
    """True for compute capability 8.9."""
    return isinstance(arch, CUDA) and arch.sm_version == 89


def is_hopper_arch(arch: TileDevice) -> bool:
    """True for compute capability 9.0."""
    return isinstance(arch, CUDA) and arch.sm_version == 90


def has_mma_support(arch: TileDevice) -> bool:
    """True for devices with matrix instructions that tileops uses."""
    return isinstance(arch, CUDA) and arch.sm_version >= 80

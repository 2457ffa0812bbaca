"""The roofline of a program: the least time that its operations and its bytes take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileops.ir.program import Program
from tileops.roofline.machines import Machine, machine_of
from tileops.roofline.work import Work, work_of
from tileops.target import Target


@dataclass(frozen=True)
class Estimate:
    """A program's work and what it takes of a machine; times are seconds.

    ``memory_seconds`` is for each tensor once, as with a perfect cache, ``traffic_seconds`` for
    all that the blocks ask for, as without one. Without a known machine, times are None.
    """

    program: str
    work: Work
    machine: Machine | None

    @property
    def intensity(self) -> float:
        """Operations for each byte of the tensors."""
        return self.work.flops / max(1, self.work.tensor_bytes)

    @property
    def compute_seconds(self) -> float | None:
        """The products on their units or the elementwise operations: whichever takes longer."""
        if self.machine is None:
            return None
        products = sum(n / self.machine.product_peak(d) for d, n in self.work.products.items())
        return max(products, sum(self.work.elementwise.values()) / self.machine.elementwise)

    @property
    def memory_seconds(self) -> float | None:
        """The bytes of all tensors at the memory's speed."""
        return self.work.tensor_bytes / self.machine.bandwidth if self.machine else None

    @property
    def traffic_seconds(self) -> float | None:
        """The bytes that blocks read and write at the memory's speed."""
        return self.work.traffic_bytes / self.machine.bandwidth if self.machine else None

    @property
    def seconds(self) -> float | None:
        """The greater of ``compute_seconds`` and ``memory_seconds``: no run is faster."""
        if self.compute_seconds is None or self.memory_seconds is None:
            return None
        return max(self.compute_seconds, self.memory_seconds)


def analyze(
    program: Program,
    target: Target,
    sizes: Mapping[str, int] | None = None,
    device_name: str = "",
) -> Estimate:
    """The estimate for one call on a target's usual machine, or on the device of a name.

    ``sizes`` are values of run-time sizes. ArgumentError for a size without a value.
    """
    return Estimate(program.name, work_of(program, sizes), machine_of(target, device_name))

"""What machines can do: peaks from their makers' data sheets, without sparsity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileops.target import Target


@dataclass(frozen=True)
class Machine:
    """A model of a GPU.

    ``products`` are operations a second of matrix products by the dtype of their operands,
    ``elementwise`` those on single float32, ``bandwidth`` bytes a second of its memory.
    """

    name: str
    products: Mapping[str, float]
    elementwise: float
    bandwidth: float

    def product_peak(self, dtype: str) -> float:
        """Operations a second of products of ``dtype``; what has no unit runs elementwise."""
        return self.products.get(dtype, self.elementwise)


def _products(half: float, tf32: float, **others: float) -> dict[str, float]:
    """Tera-operations a second as operations, with float16 and bfloat16 alike."""
    every = {"float16": half, "bfloat16": half, "float32": tf32, "tfloat32": tf32, **others}
    return {name: peak * 1e12 for name, peak in every.items()}


# By compute capability, the model that data centres or desks have most of.
_MACHINES = {
    80: Machine("A100 SXM 80 GB", _products(312, 156, float64=19.5, int8=624, uint8=624),
                19.5e12, 2.039e12),
    89: Machine("L40S", _products(362, 183, int8=733, uint8=733, float8_e4m3fn=733,
                                  float8_e5m2=733), 91.6e12, 0.864e12),
    90: Machine("H100 SXM", _products(989, 494, float64=67, int8=1979, uint8=1979,
                                      float8_e4m3fn=1979, float8_e5m2=1979), 67e12, 3.35e12),
    100: Machine("B200", _products(2250, 1100, float64=37, int8=4500, uint8=4500,
                                   float8_e4m3fn=4500, float8_e5m2=4500), 75e12, 8e12),
}  # fmt: skip
# The same units with another memory, by a part of the device's name.
_MEMORIES = {"H200": (90, 4.8e12), "A100-SXM4-40GB": (80, 1.555e12), "A100-PCIE": (80, 1.555e12)}


def machine_of(target: Target, device_name: str = "") -> Machine | None:
    """The machine that a target stands for, with the memory of a device of this name.

    None for targets whose peaks are not known, such as CPUs.
    """
    if target.kind != "cuda":
        return None
    found = _MACHINES.get(target.capability)
    for name, (capability, bandwidth) in _MEMORIES.items():
        if found is not None and capability == target.capability and name in device_name:
            return Machine(name, found.products, found.elementwise, bandwidth)
    return found

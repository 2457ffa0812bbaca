"""The descriptors of a launch: parameters that the host makes from a tensor's address and sizes."""

from __future__ import annotations

from tileops.codegen.kernel_code import KernelParam, TensorMapSpec
from tileops.codegen.triton.writer import Names
from tileops.ir import fold
from tileops.ir.expr import Buffer
from tileops.ir.program import Program
from tileops.ir.schedule import Descriptor, Schedule


class Maps:
    """Names of the descriptors, slots and shared tiles of one schedule."""

    def __init__(self, schedule: Schedule, names: Names) -> None:
        fetched = [d for r in schedule.rings for d in r.descriptors]
        self._names = {
            d: names.fresh(f"{d.tensor.name}_desc")
            for d in dict.fromkeys((*fetched, *schedule.staged))
        }
        self._staging = {
            form: names.fresh(f"{d.tensor.name}_tile") for form, d in schedule.staging.items()
        }
        self._tiles = {b.id: names.fresh(f"{b.name}_tile") for b in schedule.shared}
        self._slots = {b.id: names.fresh(b.name) for r in schedule.rings for b in r.buffers}

    def descriptor(self, descriptor: Descriptor) -> str:
        """The parameter that holds a descriptor."""
        return self._names[descriptor]

    def staging(self, descriptor: Descriptor) -> str:
        """The shared tile through which a box leaves."""
        return self._staging[descriptor.tensor.dtype, descriptor.box, descriptor.swizzle]

    def tile(self, buffer: Buffer) -> str:
        """The shared memory of an operand that the math role computes."""
        return self._tiles[buffer.id]

    def slots(self, buffer: Buffer) -> str:
        """The shared memory of a ring's buffer, all slots."""
        return self._slots[buffer.id]

    def params(self, program: Program) -> list[KernelParam]:
        """The descriptors as parameters of the kernel."""
        tensors = [t.buffer.id for t in program.tensors()]
        return [
            KernelParam(
                name,
                "tensormap",
                tensors.index(d.tensor.id),
                "tensordesc",
                str(d.tensor.dtype),
                tensormap=TensorMapSpec(
                    d.box, d.tensor.shape, fold.strides_of(d.tensor), d.swizzle
                ),
            )
            for d, name in self._names.items()
        ]
